"""Compares a model's picks with the oracles, problem by problem, and summarizes the efficiencies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.judge.pair_numbers import pair_numbers
from tile_oracle.judge.picker import COLUMNS
from tile_oracle.judge.ranking import Ranking
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem
from tile_oracle.record.final import problem_table, records_op

TOP_K = 10
"""Top-k efficiencies are computed for k = 1 to TOP_K."""

_INCONCLUSIVE = ("noisy", "device_lost")
"""Statuses that say nothing about the kernel, so a pick with one of them has no efficiency."""

TOP_K_COLUMNS: tuple[str, ...] = tuple(f"efficiency_top_{k}" for k in range(1, TOP_K + 1))

COVERED = "covered"
NO_OK_KERNEL = "no ok kernel"
NOT_TIMED = "not timed"
"""Its right kernels ran where nothing is timed."""
NOT_MEASURED = "not measured"
PICK_NOT_MEASURED = "pick not measured"
NOT_RANKED = "not ranked"
NO_MODEL = "no model"
UNDECIDED = "undecided"
"""The pick was measured, but too noisily for a reliable latency."""


def select(
    problems: Iterable[Problem], final: pd.DataFrame, oracles: pd.DataFrame, rankings: pd.DataFrame | None
) -> pd.DataFrame:
    """Returns one row per problem, in the given order, with oracle, pick and efficiency.

    final, oracles: from record.final and judge.oracle. rankings: columns `problem` (id), `kernel` (name) and
    `predicted_tflops`, one row per pair that the model ranked; None without a model. A problem's pick is the
    kernel with the highest prediction (ties: the name that sorts first), measured or not.

    Columns, besides those of `problem_table` and `find_oracles`:

    - `pick_kernel`, `pick_predicted_tflops`, `pick_status`, `pick_detail`, `pick_tflops`,
      `pick_latency_ms`, `pick_remeasured`, `pick_at_least_ms` (of a censored time, else null);
    - `coverage`: COVERED, or the first reason that applies. A problem without an ok kernel, or whose pick was
      not measured or was too noisy, has no efficiency; it does not count as 0;
    - `efficiency`: TFLOPS of the pick / TFLOPS of the oracle, 0 to 1; 0 if the pick is not ok; null unless
      covered. `pick_flattered`: the pick was measured only in the sweep, and faster than the oracle's second
      measurement. Then the sweep's TFLOPS of both are compared; a pick that is faster in the sweep, too,
      becomes the oracle;
    - `oracle_rank`: rank of the oracle in the ranking, from 1; `oracle_predicted_tflops`;
    - `efficiency_top_<k>`: efficiency of the best of the first k picks (kernels that are not ok or were not
      measured are ignored); null unless covered;
    - `kernels_ranked`.

    Raises ModelError for rankings with a duplicate pair or a prediction that is not finite.
    """
    table = _with_oracles(problem_table(problems), oracles)
    order = _order_of(rankings)
    oracle_of = dict(zip(table["problem"], table["oracle_kernel"], strict=True))
    ranked = _with_measurements(order.best(TOP_K, oracle_of), final)
    flattered, fair = _flattered(ranked, final, table)
    table = _with_new_oracles(table, ranked, flattered & ~(fair < 1.0))
    ranked["oracle_kernel"] = ranked["problem"].map(table.set_index("problem")["oracle_kernel"])
    by_problem = table.set_index("problem")

    picks = ranked[ranked["rank"] == 1].set_index("problem")
    for name in ("kernel", "predicted_tflops", *_MEASURED):
        by_problem[f"pick_{name}"] = picks[name]
    found = ranked[ranked["kernel"] == ranked["oracle_kernel"]].set_index("problem")
    by_problem["oracle_rank"] = found["rank"].astype("Int64")
    by_problem["oracle_predicted_tflops"] = found["predicted_tflops"]
    by_problem["kernels_ranked"] = pd.Series(order.counts, index=order.problems, dtype="int64")
    by_problem["kernels_ranked"] = by_problem["kernels_ranked"].fillna(0).astype("int64")

    by_problem["coverage"] = _coverage(by_problem, has_model=rankings is not None)
    covered = by_problem["coverage"] == COVERED
    reached = by_problem["pick_tflops"].where(by_problem["pick_status"] == "ok", 0.0)
    ratio = (reached / by_problem["oracle_tflops"]).where(~(flattered & (fair < 1.0)), fair)
    by_problem["efficiency"] = ratio.clip(upper=1.0).where(covered)
    by_problem["pick_flattered"] = covered & flattered
    top = _top_k(ranked).reindex(by_problem.index)
    top = top.div(by_problem["oracle_tflops"], axis=0).clip(upper=1.0).where(covered)
    return pd.concat([by_problem, top], axis=1).reset_index()


def _with_oracles(table: pd.DataFrame, oracles: pd.DataFrame) -> pd.DataFrame:
    """Returns the table of problems with the columns of `oracles`; counts are 0 where a problem has no row
    there."""
    table = table.merge(
        oracles.drop(columns=[c for c in oracles.columns if c in table and c != "problem"]),
        on="problem",
        how="left",
    )
    counts = [name for name in table.columns if name.startswith("kernels_")]
    table[counts] = table[counts].fillna(0).astype("int64")
    return table


def _flattered(ranked: pd.DataFrame, final: pd.DataFrame, table: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """By problem: whether the pick was measured only in the sweep and beats the oracle's second measurement;
    and the sweep TFLOPS of the pick / those of the oracle (NaN if there are none)."""
    ids = pd.Index(table["problem"])
    picks = ranked[(ranked["rank"] == 1) & (ranked["status"] == "ok")].set_index("problem").reindex(ids)
    oracle = table.set_index("problem")
    above = picks["tflops"].astype("float64") > oracle["oracle_tflops"].astype("float64")
    wanted = above[above].index
    fair = pd.Series(np.nan, index=ids, dtype="float64")
    if len(wanted) and "sweep_tflops" in final:
        swept = final.set_index(["problem", "kernel"])["sweep_tflops"].astype("float64")
        pick, best = (
            swept.reindex(pd.MultiIndex.from_arrays([wanted, kernels[wanted]])).to_numpy()
            for kernels in (picks["kernel"], oracle["oracle_kernel"])
        )
        fair[wanted] = pick / best
    return above, fair


def _with_new_oracles(table: pd.DataFrame, ranked: pd.DataFrame, promoted: pd.Series) -> pd.DataFrame:
    """Returns the table with the picks of the `promoted` problems as their oracles."""
    if not promoted.any():
        return table
    picks = ranked[ranked["rank"] == 1].set_index("problem")
    table = table.set_index("problem")
    for problem in promoted[promoted].index:
        for name in ("kernel", "tflops", "latency_ms", "remeasured"):
            table.at[problem, f"oracle_{name}"] = picks.at[problem, name]
    return table.reset_index()


def _with_measurements(frame: pd.DataFrame, final: pd.DataFrame) -> pd.DataFrame:
    pairs, wanted = pair_numbers(final, frame)
    measured = final[[name for name in ("problem", "kernel", *_MEASURED) if name in final]]
    measured = measured[np.isin(pairs, wanted)].reindex(columns=["problem", "kernel", *_MEASURED])
    measured = measured.astype({"at_least_ms": "float64"})
    return frame.merge(measured, on=["problem", "kernel"], how="left", validate="one_to_one")


@dataclass(frozen=True)
class Efficiency:
    """Metrics over the covered problems, in percent; None if no problem is covered.

    P10 is numpy's linear 10th percentile. top_1 and top_5: share of problems whose oracle is the model's
    first pick, or among its first five. measure_top[k - 1]: mean efficiency of the best of the first k picks.
    """

    problems: int
    covered: int
    mean_percent: float | None = None
    median_percent: float | None = None
    p10_percent: float | None = None
    min_percent: float | None = None
    top_1_percent: float | None = None
    top_5_percent: float | None = None
    measure_top_percent: tuple[float, ...] = ()

    @property
    def coverage_percent(self) -> float:
        return 100.0 * self.covered / self.problems if self.problems else 0.0


def summarise(selection: pd.DataFrame) -> Efficiency:
    """Returns the metrics of a selection (see `select`)."""
    covered = selection[selection["coverage"] == COVERED]
    if covered.empty:
        return Efficiency(len(selection), 0)
    percent = 100.0 * covered["efficiency"].to_numpy(dtype=np.float64)
    rank = covered["oracle_rank"].to_numpy(dtype=np.float64, na_value=np.inf)
    return Efficiency(
        problems=len(selection),
        covered=len(covered),
        mean_percent=float(percent.mean()),
        median_percent=float(np.median(percent)),
        p10_percent=float(np.percentile(percent, 10)),
        min_percent=float(percent.min()),
        top_1_percent=float(100.0 * (rank <= 1).mean()),
        top_5_percent=float(100.0 * (rank <= 5).mean()),
        measure_top_percent=tuple(float(100.0 * covered[name].mean()) for name in TOP_K_COLUMNS),
    )


def kernel_table(final: pd.DataFrame, selection: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per kernel of `final`, most oracles first: `kernel`, `oracles` and `picks` (number of
    problems of which it is the oracle or the pick), `ok` and `not_ok` (number of measured problems) and
    `mean_efficiency` (its TFLOPS / the oracle's, 0 to 1, mean over its ok problems)."""
    oracle = selection.set_index("problem")["oracle_tflops"].astype("float64")
    ok = final["status"] == "ok"
    of_oracle = final["problem"].map(oracle).astype("float64")  # map() of an empty table gives strings
    ratio = (final["tflops"].where(ok) / of_oracle).clip(upper=1.0)
    pairs = pd.DataFrame({"kernel": final["kernel"], "ok": ok, "ratio": ratio})
    grouped = pairs.groupby("kernel", observed=True)
    table = pd.DataFrame({"ok": grouped["ok"].sum(), "measured": grouped["ok"].size()})
    table["not_ok"] = table.pop("measured") - table["ok"]
    table["mean_efficiency"] = grouped["ratio"].mean()
    for name, column in (("oracles", "oracle_kernel"), ("picks", "pick_kernel")):
        table[name] = selection[column].value_counts().reindex(table.index).fillna(0).astype("int64")
    table = table.reset_index()[["kernel", "oracles", "picks", "ok", "not_ok", "mean_efficiency"]]
    order = {"oracles": False, "picks": False, "mean_efficiency": False, "kernel": True}
    return table.sort_values(list(order), ascending=list(order.values()), ignore_index=True)


def fixed_kernels(final: pd.DataFrame, selection: pd.DataFrame) -> pd.DataFrame:
    """Returns a reference without a model: per problem, the kernel that is best on average, `kernel`, and its
    efficiency, `ratio`.

    For each kind of problem this is the kernel with the highest mean of TFLOPS / oracle TFLOPS over the
    problems with an oracle; problems where it is not ok count as 0. Indexed by problem id; only problems with
    an oracle; 0 to 1. The kernel is chosen with hindsight, so no fixed choice can do better.
    """
    with_oracle = selection[selection["oracle_tflops"].notna()]
    kind_fields = ["op", *operation_named(records_op(selection)).kind_fields]
    kind = with_oracle.groupby(kind_fields, observed=True, dropna=False).ngroup().to_numpy()
    problems, names = pd.factorize(final["problem"])
    row = pd.Index(with_oracle["problem"]).get_indexer(pd.Index(names))[problems]
    counted = (final["status"] == "ok").to_numpy() & (row >= 0)
    row = row[counted]
    kernels, names_of = pd.factorize(final["kernel"][counted], sort=True)
    tflops = final["tflops"].to_numpy(dtype=np.float64)[counted]
    ratio = np.minimum(tflops / with_oracle["oracle_tflops"].to_numpy(dtype=np.float64)[row], 1.0)
    pairs = pd.DataFrame({"kind": kind[row], "kernel": kernels, "ratio": ratio})
    total = pairs.groupby(["kind", "kernel"])["ratio"].sum().reset_index()
    best = total.sort_values(["ratio", "kernel"], ascending=[False, True]).drop_duplicates("kind")
    kernel_of = np.zeros(len(with_oracle), dtype=np.int64)
    kernel_of[best["kind"]] = best["kernel"]
    chosen = kernels == kernel_of[kind[row]]
    found = np.zeros(len(with_oracle))
    found[row[chosen]] = ratio[chosen]
    named = np.asarray(names_of, dtype=object)[kernel_of[kind]] if len(found) else kind
    return pd.DataFrame(
        {"kernel": named, "ratio": found}, index=pd.Index(with_oracle["problem"], name="problem")
    )


_MEASURED = ("status", "detail", "tflops", "latency_ms", "remeasured", "at_least_ms")


def _checked(rankings: pd.DataFrame | None) -> pd.DataFrame:
    names = list(COLUMNS)
    if rankings is None:
        empty = {"problem": pd.Series(dtype=object), "kernel": pd.Series(dtype=object)}
        return pd.DataFrame({**empty, "predicted_tflops": pd.Series(dtype="float64")})
    missing = [name for name in names if name not in rankings.columns]
    if missing:
        raise ModelError(f"the rankings lack the column {missing[0]}: they need {', '.join(names)}")
    predicted = pd.to_numeric(rankings["predicted_tflops"], errors="coerce").astype("float64")
    frame = rankings[names].assign(predicted_tflops=predicted)
    bad = ~np.isfinite(frame["predicted_tflops"].to_numpy(dtype=np.float64, na_value=np.nan))
    if bad.any():
        row = frame.iloc[int(np.flatnonzero(bad)[0])]
        raise ModelError(f"the model predicts no finite TFLOPS for {row['kernel']} on {row['problem']}")
    return frame


def _order_of(rankings: pd.DataFrame | None) -> Ranking:
    frame = _checked(rankings)
    order = Ranking.of(frame)
    if order.has_duplicates:
        row = frame[frame.duplicated(["problem", "kernel"])].iloc[0]
        raise ModelError(f"the rankings name {row['kernel']} on {row['problem']} twice: list each pair once")
    return order


def _coverage(table: pd.DataFrame, *, has_model: bool) -> pd.Series:
    """Returns the first reason that applies, or COVERED."""
    reasons = [
        (table["kernels_measured"] == 0, NOT_MEASURED),
        (table["oracle_kernel"].isna() & (table["kernels_untimed"] > 0), NOT_TIMED),
        (table["oracle_kernel"].isna(), NO_OK_KERNEL),
        (pd.Series(not has_model, index=table.index), NO_MODEL),
        (table["pick_kernel"].isna(), NOT_RANKED),
        (table["pick_status"].isna(), PICK_NOT_MEASURED),
        (table["pick_status"].isin(_INCONCLUSIVE), UNDECIDED),
    ]
    conditions = [condition.to_numpy(dtype=bool) for condition, _ in reasons]
    chosen = np.select(conditions, [name for _, name in reasons], COVERED)
    return pd.Series(chosen, index=table.index, dtype=object)


def _top_k(ranked: pd.DataFrame) -> pd.DataFrame:
    """Best TFLOPS among the first k picks of each problem, one column per k; only ok kernels count."""
    first = ranked[ranked["rank"] <= TOP_K]
    reached = first["tflops"].where(first["status"] == "ok", 0.0).astype("float64")
    best = first.assign(best=reached.groupby(first["problem"]).cummax())
    wide = best.pivot(index="problem", columns="rank", values="best").reindex(columns=range(1, TOP_K + 1))
    return wide.ffill(axis=1).set_axis(list(TOP_K_COLUMNS), axis=1)
