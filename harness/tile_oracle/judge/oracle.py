"""The oracle of every problem, from its final measurements (tile_oracle.record.final)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.record.final import key_columns, records_op
from tile_oracle.record.schema import STATUSES


def find_oracles(final: pd.DataFrame) -> pd.DataFrame:
    """Returns the oracle of every problem of `final` (see `final_measurements`), one row per problem, sorted
    by id.

    If leaders were measured again, the oracle is the best ok kernel among them: their second measurements are
    unbiased, and a kernel outside the leaders could be faster only by chance. Otherwise it is the best ok
    kernel. Ties in TFLOPS go to the name that sorts first.

    Columns: `problem`, the `key_columns` that `final` has, `oracle_kernel`, `oracle_tflops`,
    `oracle_latency_ms`, `oracle_remeasured`, `median_tflops` and `worst_tflops` (of the ok kernels),
    `worst_kernel`, `sweep_winner` (best kernel of the sweep that is still ok), `sweep_winner_efficiency` (its
    final TFLOPS / the oracle's: 1 if measuring again changed nothing), `kernels_measured` and
    `kernels_<status>` (counts). A problem without an ok kernel has nulls and its counts.
    """
    keys = [name for name in key_columns(records_op(final)) if name in final]
    oracles = final[["problem", *keys]].drop_duplicates("problem").set_index("problem")
    measured = ["problem", "kernel", "tflops", "latency_ms", "remeasured", "sweep_tflops"]
    ok = final.loc[final["status"] == "ok", measured]
    again = ok[ok["remeasured"]]
    eligible = pd.concat([again, ok[~ok["problem"].isin(again["problem"])]])
    best = _first(eligible, "tflops", ascending=False)
    worst = _first(ok, "tflops", ascending=True)
    winner = _first(ok[ok["sweep_tflops"].notna()], "sweep_tflops", ascending=False)

    oracles["oracle_kernel"] = best["kernel"].astype(object)
    oracles["oracle_tflops"] = best["tflops"]
    oracles["oracle_latency_ms"] = best["latency_ms"]
    oracles["oracle_remeasured"] = best["remeasured"].astype("boolean")
    oracles["median_tflops"] = ok.groupby("problem", observed=True)["tflops"].median()
    oracles["worst_tflops"] = worst["tflops"]
    oracles["worst_kernel"] = worst["kernel"].astype(object)
    oracles["sweep_winner"] = winner["kernel"].astype(object)
    ratio = winner["tflops"].reindex(oracles.index) / oracles["oracle_tflops"]
    oracles["sweep_winner_efficiency"] = ratio.clip(upper=1.0)
    problems = pd.Index(oracles.index).get_indexer(final["problem"])
    codes, statuses = pd.factorize(final["status"])
    oracles["kernels_measured"] = np.bincount(problems, minlength=len(oracles))
    for status in STATUSES:
        of_status = problems[np.append(statuses == status, False)[codes]]
        oracles[f"kernels_{status}"] = np.bincount(of_status, minlength=len(oracles))
    return oracles.reset_index().sort_values("problem", ignore_index=True)


def _first(frame: pd.DataFrame, by: str, *, ascending: bool) -> pd.DataFrame:
    """Returns the first row of each problem when sorted by `by`; ties go to the kernel name that sorts
    first."""
    return frame.iloc[first_of_each(frame["problem"], frame[by], frame["kernel"], ascending)].set_index(
        "problem"
    )


def first_of_each(
    groups: pd.Series, values: pd.Series, names: pd.Series, ascending: bool = True
) -> npt.NDArray[np.int64]:
    """Returns the place of the first row of each group when sorted by value; ties go to the name that sorts
    first. Sorts numbers, not names: the rows of a table have few different names."""
    group, found = pd.factorize(groups)
    name, _ = pd.factorize(names, sort=True)
    sign = 1 if ascending else -1
    value = pd.Series(sign * values.to_numpy(dtype=np.float64, na_value=sign * np.inf))
    tied = np.flatnonzero(value == value.groupby(group).transform("min"))
    tied = tied[np.argsort(name[tied], kind="stable")][::-1]
    first = np.empty(len(found), dtype=np.int64)
    first[group[tied]] = tied
    return first
