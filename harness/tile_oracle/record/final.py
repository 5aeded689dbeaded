"""Reduces measurements to one final row per pair.

Tables are joined by the problem's id, which is the text form of its key: record.invariants refuses records
whose id is not that of their key columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import RecordError
from tile_oracle.operation import operation_named, operation_of_columns
from tile_oracle.problem import Problem, problem_from_row
from tile_oracle.record.schema import ROUND_FINAL, ROUND_SWEEP, WARM, op_of, problem_columns
from tile_oracle.record.twins import is_measured, measured_kernels

_NEEDED = ("op", "problem", "kernel", "round", "status", "latency_ms", "tflops")

_MAX_SWEEPS = 50
_CONVERGED = 1e-6
"""Convergence threshold of the median polish: the largest change of a log latency in one sweep."""

# A kernel that once gave a wrong result, crashed or hung keeps that status even if another run succeeds.
_WEIGHTS = {"ok": 2, "timeout": 3, "crash": 4, "flaky": 5, "wrong": 6}


def key_columns(op: str) -> tuple[str, ...]:
    """Returns the columns that form a problem's key in a table of records. Raises RecordError for unknown
    operations."""
    return ("op", *problem_columns(op))


def records_op(records: pd.DataFrame) -> str:
    """Returns the operation of a table of records: from its column `op`, or from its key columns if there is
    none.

    Raises RecordError if the table has several operations.
    """
    if "op" in records:
        return op_of(records["op"].unique())
    return operation_of_columns(records.columns).name


def final_measurements(records: pd.DataFrame, only: Collection[str] | None = None) -> pd.DataFrame:
    """Returns one row per (problem, kernel), sorted by both: the record that decides the pair's status and
    latency.

    records: rows with the columns of tile_oracle.record.schema; several rows of a pair are several rounds or
    repeated runs. The deciding record is the first that applies:

    1. a row that is wrong, else flaky, else crash, else timeout, in whatever round;
    2. the latest ok row of the highest round, one that is not censored before one that is: the second
       measurement replaces the first, which is biased because the pair was selected by it. If the second
       measurement is noisy or device_lost, the ok row of the sweep stands. If pairs of a problem were
       measured again in several rounds, their latencies are those of `latencies_over_rounds`;
    3. the latest row of the highest round.

    Columns: those of the records (latency and tflops null unless ok or noisy), then `remeasured` (bool:
    measured after the sweep) and `sweep_tflops` (TFLOPS in the sweep, null unless ok there). only: the
    columns of the records to return; None: all.

    Raises RecordError for missing columns, and as `check_comparable`.
    """
    _check_columns(records)
    check_comparable(records)
    frame = records.reset_index(drop=True)
    problem, kernel = _places(frame["problem"]), _places(frame["kernel"])
    round_ = frame["round"].to_numpy(dtype=np.int64)
    status_codes, statuses = pd.factorize(frame["status"])
    weight = np.array([*(_WEIGHTS.get(name, 0) for name in statuses), 0])[status_codes]
    order = np.lexsort((_when(frame), ~is_censored(frame), round_, weight, kernel, problem))
    pair = (problem * (kernel.max(initial=0) + 1) + kernel)[order]
    last = np.append(pair[1:] != pair[:-1], True)[: len(order)]
    chosen = order[last]
    swept = (round_[order] == ROUND_SWEEP) & (weight[order] == _WEIGHTS["ok"])
    sweep_tflops = np.full(len(chosen), np.nan)
    # Of several rows of a pair, the last stays.
    sweep_tflops[(np.cumsum(last) - last)[swept]] = frame["tflops"].to_numpy(dtype=np.float64)[order[swept]]

    kept = frame if only is None else frame[[name for name in frame.columns if name in only]]
    final = kept.iloc[chosen].reset_index(drop=True)
    timed = final["status"].isin(["ok", "noisy"])
    for column in ("latency_ms", "latency_min_ms", "spread", "tflops"):
        if column in final:
            final[column] = final[column].astype("float64").where(timed)
    _settle_over_rounds(final, frame)
    final["remeasured"] = (final["round"] >= ROUND_FINAL) & (final["status"] == "ok")
    final["sweep_tflops"] = sweep_tflops
    return final


def is_censored(records: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which rows have a lower bound of the time (at_least_ms) and one run that was checked in part."""
    if "at_least_ms" not in records:
        return np.zeros(len(records), dtype=bool)
    return np.asarray(records["at_least_ms"].notna(), dtype=bool)


def _places(column: pd.Series) -> npt.NDArray[np.int64]:
    """Returns the place of each row's name among the sorted names, -1 for a missing one."""
    codes, names = pd.factorize(column)
    return np.asarray(np.append(np.argsort(np.argsort(names.to_numpy(dtype=object))), -1)[codes])


def _settle_over_rounds(final: pd.DataFrame, frame: pd.DataFrame) -> None:
    """Replaces the latencies of problems that have several rounds after the sweep by those over all
    rounds."""
    again = (frame["round"] >= ROUND_FINAL) & (frame["status"] == "ok")
    rounds = frame.loc[again, ["problem", "round"]].groupby("problem", observed=True)["round"].nunique()
    again = frame[again & frame["problem"].isin(rounds[rounds > 1].index)]
    again = again[is_measured(again)]  # a copy is no further timing
    if again.empty:
        return
    settled = dict(_settled_latencies(again.drop_duplicates(["problem", "kernel", "round"], keep="last")))
    pairs = zip(final["problem"], measured_kernels(final), strict=True)
    found = pd.Series([settled.get(pair, np.nan) for pair in pairs], index=final.index)
    found = found.where((final["status"] == "ok") & (final["round"] >= ROUND_FINAL))
    faster = (final["latency_ms"] / found).fillna(1.0)
    final["tflops"] = final["tflops"] * faster
    final["latency_ms"] = found.fillna(final["latency_ms"])


def _settled_latencies(again: pd.DataFrame) -> Iterator[tuple[tuple[str, str], float]]:
    """(problem, kernel) and its latency in ms over all rounds. again: ok rows, one per pair and round."""
    columns = ("problem", "kernel", "round", "latency_ms")
    problems, kernels, rounds, latencies = (again[name].to_numpy(dtype=object) for name in columns)
    order = np.argsort(problems, kind="stable")
    for rows in np.split(order, np.flatnonzero(problems[order][1:] != problems[order][:-1]) + 1):
        names, kernel = np.unique(kernels[rows], return_inverse=True)
        numbers, round_ = np.unique(rounds[rows], return_inverse=True)
        table = np.full((len(names), len(numbers)), np.nan)
        table[kernel, round_] = latencies[rows]
        for name, latency in zip(names, latencies_over_rounds(table), strict=True):
            yield (str(problems[rows[0]]), str(name)), float(latency)


def latencies_over_rounds(latency_ms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns one latency in ms for each kernel of a problem, shape (kernels,), from rounds of interleaved
    timing.

    latency_ms: (kernels, rounds), NaN where a kernel was not timed in a round; every kernel is timed in at
    least one. The machine's speed may differ between rounds, and not every kernel is timed in every round. So
    a latency is modelled as kernel factor x round factor, fitted by median polish of the logarithms (Tukey,
    Exploratory Data Analysis, 1977, chapter 11). If all kernels were timed in all rounds at equal speed, the
    results are the medians over the rounds. The fit starts from the least-squares solution: from the kernels'
    own medians it could stop before two groups of rounds agree.
    """
    logs = np.log(latency_ms)
    count = len(logs)
    kernel, round_ = np.nonzero(~np.isnan(logs))
    design = np.zeros((len(kernel), sum(logs.shape)))
    design[np.arange(len(kernel)), kernel] = 1.0
    design[np.arange(len(kernel)), count + round_] = 1.0
    kernels = np.linalg.lstsq(design, logs[kernel, round_], rcond=None)[0][:count]
    rounds = np.zeros(logs.shape[1])
    for _ in range(_MAX_SWEEPS):
        rounds = _median_of_known((logs - kernels[:, None]).T)
        polished = _median_of_known(logs - rounds)
        moved = float(np.abs(polished - kernels).max())
        kernels = polished
        if moved < _CONVERGED:
            break
    return np.asarray(np.exp(kernels + np.median(rounds)))


def _median_of_known(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Medians over the last axis without NaN, as np.nanmedian, which is slow for many small tables."""
    ordered = np.sort(values, axis=-1)  # NaN last
    count = np.count_nonzero(~np.isnan(values), axis=-1)
    row = np.arange(len(values))
    return np.asarray((ordered[row, (count - 1) // 2] + ordered[row, count // 2]) / 2)


def problem_table(problems: Iterable[Problem]) -> pd.DataFrame:
    """Returns a table with `problem` (id), the key columns and `flops`, one row per distinct problem, in
    their order.

    Raises RecordError for problems of several operations.
    """
    distinct = {problem.key: problem for problem in problems}.values()
    op = op_of(problem.op for problem in distinct)
    rows = [{"problem": p.id, "op": p.op, **p.as_row(), "flops": float(p.flops)} for p in distinct]
    table = pd.DataFrame(rows, columns=["problem", *key_columns(op), "flops"])
    numbers = {field.name: "int64" for field in fields(operation_named(op).problem) if field.type == "int"}
    return table.astype({**numbers, "flops": "float64"})


def problems_of(records: pd.DataFrame) -> tuple[Problem, ...]:
    """Returns the distinct problems of a table of records, in order of first appearance."""
    first = records.drop_duplicates("problem")[list(problem_columns(records_op(records)))]
    return tuple(problem_from_row(row) for row in _rows(first))


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _when(frame: pd.DataFrame) -> np.ndarray:
    if "time" not in frame:
        return np.arange(len(frame))
    return np.asarray(pd.to_datetime(frame["time"]).astype("int64"))


def _check_columns(records: pd.DataFrame) -> None:
    keys = key_columns(records_op(records))
    missing = [name for name in dict.fromkeys((*keys, *_NEEDED)) if name not in records.columns]
    if not missing and records["round"].isna().any():
        missing = ["round"]
    if missing:
        raise RecordError(
            f"the records lack the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}: "
            "they are not measurements of this schema"
        )


def check_caches(records: pd.DataFrame) -> None:
    """Raises RecordError for a mix of warm-cache and cold-cache records."""
    if "cache" not in records:
        return
    found = sorted({WARM if pd.isna(cache) else cache for cache in records["cache"].unique()})
    if len(found) > 1:
        raise RecordError(
            f"the records are of {' and '.join(map(str, found))} caches, which are not comparable: "
            "read runs with --cold-cache separately from others"
        )


def check_comparable(records: pd.DataFrame) -> None:
    """Raises RecordError for a mix of caches, and for times of one problem on several devices or
    architectures."""
    check_caches(records)
    for column in ("device", "arch"):
        if column not in records or records[column].nunique() < 2:
            continue
        timed = records.loc[records["latency_ms"].notna(), ["problem", column]].astype(object)
        found = timed[timed[column].fillna("") != ""].drop_duplicates()
        several = found[found.duplicated("problem", keep=False)]
        if len(several):
            problem = several["problem"].iloc[0]
            names = several.loc[several["problem"] == problem, column]
            raise RecordError(
                f"the records of {problem} are of {' and '.join(map(str, names))}, whose times are not "
                "comparable: `tile-oracle runs merge --format oracle --device NAME` selects one device's"
            )
