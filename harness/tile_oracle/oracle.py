"""Measurements -> one settled row a pair -> the oracle of every problem.

All that follows the measurements is joined by the problem's id. The id is the key in text (it is
reversible), and `final_measurements` refuses records whose id is not the id of their key columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ProblemError, RecordError
from tile_oracle.operation import operation_named, operation_of_columns
from tile_oracle.problem import Problem, problem_from_row
from tile_oracle.record.schema import (
    PROBLEM_COLUMNS,
    ROUND_FINAL,
    ROUND_SWEEP,
    STATUSES,
    WARM,
    op_of,
    problem_columns,
)

KEY_COLUMNS: tuple[str, ...] = ("op", *PROBLEM_COLUMNS)
"""What tells convolutions apart in a table of records; `key_columns` has it for any operation."""

_NEEDED = ("op", "problem", "kernel", "round", "status", "latency_ms", "tflops")

_MOST_SWEEPS = 50
_STILL = 1e-6
"""Of a log latency: sweeps of a median polish that move no kernel by more are the last."""

# A kernel that once gave a wrong result, crashed or hung is not redeemed by another run that went well.
_STICKY = {"timeout": 3, "crash": 4, "flaky": 5, "wrong": 6}
_OK = 2


def key_columns(op: str) -> tuple[str, ...]:
    """What tells problems of an operation apart in a table of records. Raises RecordError."""
    return ("op", *problem_columns(op))


def records_op(records: pd.DataFrame) -> str:
    """The one operation that a table is of: by its column `op`, without one by its problem's columns.

    Raises RecordError for a table of several.
    """
    if "op" in records:
        return op_of(records["op"].unique())
    return operation_of_columns(records.columns).name


def final_measurements(records: pd.DataFrame) -> pd.DataFrame:
    """One row a (problem, kernel), sorted by both: the record that settles what became of the pair.

    records: rows with the columns of tile_oracle.record.schema; several rows a pair are several rounds or
    repeated runs. What settles a pair, first match first:

    1. a row that is wrong, else flaky, else crash, else timeout, in whatever round;
    2. the ok row of the highest round, the latest of it: the second measurement replaces the first,
       whose figure is flattered by having been chosen. A second measurement that is noisy or
       device_lost says nothing about the kernel, so the ok of the sweep stands, not measured again.
       Where pairs of a problem were measured again in several rounds, their latencies are those of
       `latencies_over_rounds`;
    3. the row of the highest round, the latest of it.

    Columns: those of the records (latency and tflops null unless ok or noisy), then `remeasured`
    (bool: the figure is of the second round) and `sweep_tflops` (TFLOPS in the first round, null unless
    ok there).

    Raises RecordError for missing columns, unknown statuses, an ok row without a positive tflops,
    rows whose problem id is not the id of their columns, and for rows with warm and with cold caches.
    """
    _check_columns(records)
    check_caches(records)
    frame = records.reset_index(drop=True)
    problem_codes, _ = pd.factorize(frame["problem"], use_na_sentinel=True)
    kernel_codes, kernel_names = pd.factorize(frame["kernel"], use_na_sentinel=True)
    _check_values(frame, problem_codes, kernel_codes)
    _check_keys(frame, problem_codes)

    round_ = frame["round"].to_numpy(dtype=np.int64)
    status = frame["status"].astype(object)
    weight = status.map({"ok": _OK, **_STICKY}).fillna(0).to_numpy(dtype=np.int64)
    order = np.lexsort((_when(frame), round_, weight, kernel_codes, problem_codes))
    pair = problem_codes.astype(np.int64) * max(len(kernel_names), 1) + kernel_codes
    last = np.ones(len(order), dtype=bool)
    last[:-1] = pair[order][1:] != pair[order][:-1]
    chosen = order[last]

    final = frame.iloc[chosen].reset_index(drop=True)
    timed = final["status"].isin(["ok", "noisy"])
    for column in ("latency_ms", "latency_min_ms", "spread", "tflops"):
        if column in final:
            final[column] = final[column].astype("float64").where(timed)
    _settle_over_rounds(final, frame)
    final["remeasured"] = (final["round"] >= ROUND_FINAL) & (final["status"] == "ok")
    swept = order[(round_[order] == ROUND_SWEEP) & (weight[order] == _OK)]
    sweep = pd.Series(frame["tflops"].to_numpy(dtype=np.float64)[swept], index=pair[swept])
    sweep = sweep[~sweep.index.duplicated(keep="last")]
    final["sweep_tflops"] = sweep.reindex(pair[chosen]).to_numpy()
    return final.sort_values(["problem", "kernel"], ignore_index=True)


def _settle_over_rounds(final: pd.DataFrame, frame: pd.DataFrame) -> None:
    """Pairs of problems with several rounds after the sweep get their latency over all of these rounds."""
    again = frame[(frame["round"] >= ROUND_FINAL) & (frame["status"] == "ok")]
    rounds = again.groupby("problem", observed=True)["round"].nunique()
    again = again[again["problem"].isin(rounds[rounds > 1].index)]
    if again.empty:
        return
    settled: dict[tuple[str, str], float] = {}
    for problem, rows in again.groupby("problem", observed=True):
        table = rows.pivot_table(index="kernel", columns="round", values="latency_ms", aggfunc="last")
        latencies = latencies_over_rounds(table.to_numpy(dtype=np.float64))
        settled |= {(str(problem), str(name)): one for name, one in zip(table.index, latencies, strict=True)}
    pairs = zip(final["problem"], final["kernel"], strict=True)
    found = pd.Series([settled.get(pair, np.nan) for pair in pairs], index=final.index)
    found = found.where((final["status"] == "ok") & (final["round"] >= ROUND_FINAL))
    faster = (final["latency_ms"] / found).fillna(1.0)
    final["tflops"] = final["tflops"] * faster
    final["latency_ms"] = found.fillna(final["latency_ms"])


def latencies_over_rounds(latency_ms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """One latency for each kernel of a problem, in ms, from rounds in which several were timed in turn.

    latency_ms: (kernels, rounds), NaN where a kernel was not timed in a round; each kernel in one at least. A
    machine may run at another speed in each round, and not every kernel is timed in every round: so latencies
    are taken as kernel times round, and the kernels' factors are found by median polish of the logarithms
    (Tukey, Exploratory Data Analysis, 1977, chapter 11). Where all kernels were timed in all rounds and the
    rounds are alike, these are the medians over the rounds. It begins with the least-squares solution: from
    the kernels' own medians it could stop where those of two groups of rounds never meet.
    """
    logs = np.log(latency_ms)
    count = len(logs)
    kernel, round_ = np.nonzero(~np.isnan(logs))
    design = np.zeros((len(kernel), sum(logs.shape)))
    design[np.arange(len(kernel)), kernel] = 1.0
    design[np.arange(len(kernel)), count + round_] = 1.0
    kernels = np.linalg.lstsq(design, logs[kernel, round_], rcond=None)[0][:count]
    rounds = np.zeros(logs.shape[1])
    for _ in range(_MOST_SWEEPS):
        rounds = np.nanmedian(logs - kernels[:, None], axis=0)
        polished = np.nanmedian(logs - rounds, axis=1)
        moved = float(np.abs(polished - kernels).max())
        kernels = polished
        if moved < _STILL:
            break
    return np.asarray(np.exp(kernels + np.median(rounds)))


def find_oracles(final: pd.DataFrame) -> pd.DataFrame:
    """The oracle of every problem of `final` (see `final_measurements`), one row a problem, sorted by id.

    Where leaders were measured again, the oracle is the best of those that are ok: their figures are not
    flattered, while one that was measured once, and lost, would have to beat them by luck. Otherwise it
    is the best ok kernel. Equal TFLOPS go to the name that sorts first.

    Columns: `problem`, `key_columns`, `oracle_kernel`, `oracle_tflops`, `oracle_latency_ms`,
    `oracle_remeasured`, `median_tflops` and `worst_tflops` (of the ok kernels), `worst_kernel`,
    `sweep_winner` (best kernel of the first round that is still ok), `sweep_winner_efficiency` (its
    settled TFLOPS / the oracle's: 1 where measuring again changed nothing), `kernels_measured` and
    `kernels_<status>` (counts). A problem with no ok kernel has nulls and its counts.
    """
    keys = key_columns(records_op(final))
    oracles = final[["problem", *keys]].drop_duplicates("problem").set_index("problem")
    ok = final[final["status"] == "ok"]
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
    counts = pd.crosstab(final["problem"], final["status"]).reindex(oracles.index)
    oracles["kernels_measured"] = counts.sum(axis=1).astype("int64")
    for status in STATUSES:
        column = counts[status] if status in counts else pd.Series(0, index=oracles.index)
        oracles[f"kernels_{status}"] = column.astype("int64")
    return oracles.reset_index().sort_values("problem", ignore_index=True)


def problem_table(problems: Iterable[Problem]) -> pd.DataFrame:
    """`problem` (id), the key's columns and `flops`, one row a distinct problem, in the order given.

    Raises RecordError for problems of several operations.
    """
    distinct = {problem.key: problem for problem in problems}.values()
    op = op_of(problem.op for problem in distinct)
    rows = [{"problem": p.id, "op": p.op, **p.as_row(), "flops": float(p.flops)} for p in distinct]
    table = pd.DataFrame(rows, columns=["problem", *key_columns(op), "flops"])
    numbers = {field.name: "int64" for field in fields(operation_named(op).problem) if field.type == "int"}
    return table.astype({**numbers, "flops": "float64"})


def problems_of(records: pd.DataFrame) -> tuple[Problem, ...]:
    """The distinct problems of a table of records, in order of first appearance."""
    first = records.drop_duplicates("problem")[list(problem_columns(records_op(records)))]
    return tuple(problem_from_row(row) for row in _rows(first))


def _first(frame: pd.DataFrame, by: str, *, ascending: bool) -> pd.DataFrame:
    """Each problem's row that sorts first; equal values go to the first name."""
    ordered = frame.sort_values([by, "kernel"], ascending=[ascending, True])
    return ordered.drop_duplicates("problem").set_index("problem")


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _when(frame: pd.DataFrame) -> np.ndarray:
    if "time" not in frame:
        return np.arange(len(frame))
    return np.asarray(pd.to_datetime(frame["time"], utc=True).astype("int64"))


def _check_columns(records: pd.DataFrame) -> None:
    keys = key_columns(records_op(records))
    missing = [name for name in dict.fromkeys((*keys, *_NEEDED)) if name not in records.columns]
    if missing:
        raise RecordError(
            f"the records lack the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}: "
            "they are not measurements of this schema"
        )


def check_caches(records: pd.DataFrame) -> None:
    """Raises RecordError for records of both warm and cold caches."""
    if "cache" not in records:
        return
    found = sorted(records["cache"].astype(object).fillna(WARM).unique())
    if len(found) > 1:
        raise RecordError(
            f"the records are of {' and '.join(map(str, found))} caches, which do not compare: "
            "read runs with --cold-cache apart from others"
        )


def _check_values(frame: pd.DataFrame, problem_codes: np.ndarray, kernel_codes: np.ndarray) -> None:
    if (problem_codes < 0).any() or (kernel_codes < 0).any() or frame["round"].isna().any():
        raise RecordError("a record has no problem, kernel or round: every row names all three")
    unknown = set(frame["status"].unique()) - set(STATUSES)
    if unknown:
        raise RecordError(
            f"status {sorted(map(str, unknown))[0]!r} in the records is not one of {', '.join(STATUSES)}"
        )
    tflops = pd.to_numeric(frame["tflops"], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    bad = (frame["status"] == "ok").to_numpy() & ~(np.isfinite(tflops) & (tflops > 0))
    if bad.any():
        row = frame.iloc[int(np.flatnonzero(bad)[0])]
        raise RecordError(
            f"{row['kernel']} on {row['problem']} is ok with tflops = {row['tflops']}: "
            "an ok record has a positive, finite tflops"
        )


def _check_keys(frame: pd.DataFrame, problem_codes: np.ndarray) -> None:
    """Every row has the id of its own key columns; so the id may stand for the key from here on."""
    if not len(frame):
        return
    _, first = np.unique(problem_codes, return_index=True)
    keys = key_columns(records_op(frame))
    for row in _rows(frame.iloc[first][["problem", *keys]]):
        try:
            expected = problem_from_row(row).id
        except (ProblemError, ValueError, TypeError) as error:
            raise RecordError(
                f"a record of {row['problem']!r} has columns that are no problem: {error}"
            ) from None
        if expected != row["problem"]:
            raise RecordError(
                f"a record calls itself {row['problem']!r} but its columns are those of {expected!r}: "
                "problems are told apart by all their dimensions"
            )
    for name in keys:
        codes, _ = pd.factorize(frame[name])
        differs = codes != codes[first][problem_codes]
        if differs.any():
            odd = frame.iloc[int(np.flatnonzero(differs)[0])]
            raise RecordError(
                f"records of {odd['problem']!r} differ in {name} ({odd[name]!r}): "
                "problems are told apart by all their dimensions"
            )
