"""Merges records of several runs, machines and parts into one table without loss or duplicates.

The output depends only on the set of input measurements, not on their order or repetition. Merging merged
records again changes nothing. The rules, in this order:

1. A measurement is identified by run, problem, kernel, round and end time (microseconds), or by all of its
   columns if it has no time. Of duplicates one is kept: if the copies differ (files of older versions lack
   columns), the one with the fewest nulls, then the one that sorts first.
2. A device_lost row is dropped if the same run has another row of its pair and round: a resumed run measures
   such pairs again, and an older copy of its folder still has the row.
3. Rows of one run that still share problem, kernel and round come from several runs with the same name. All
   are kept: the second run (by time) is renamed NAME~2, and so on, so that `load_records` keeps its rows.

All rows of a pair that was measured in several runs, on several devices or with several toolchains or sources
are kept and counted; users of the table choose among them (`tile_oracle.record.merge`).

`align_runs` brings the times of several runs of a problem to one scale, by the kernels that the runs have in
common. A pool grows: new kernels are measured on problems whose other kernels were measured on another day,
perhaps on another device of the same model. Times of two such runs differ by a few percent for all kernels of
a problem, which is more than the distance between its best kernels. Of each problem, the run with most ok
kernels stays as it is. The times of every other run of the same architecture are multiplied by the median
ratio of the ok kernels that both measured. If these are fewer than LEAST_SHARED, the factor is the median
over all pairs that the two runs share, of at least LEAST_PAIRS; else the run stays as it is. The column
`aligned` has the factor.

`oracle_records` then selects those for an oracle (one device, the newest binary of each kernel), and
`records_to_learn_from` those for training (one device, the newest binary of each pair).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from tile_oracle.errors import RecordError
from tile_oracle.problem import problem_from_id
from tile_oracle.record.dataset_file import content_keys, in_order
from tile_oracle.record.final import check_caches
from tile_oracle.record.schema import arrow_schema, columns, op_of
from tile_oracle.terminal.counts import count
from tile_oracle.terminal.text_table import first_few

_OF_RUN = ["run", "problem", "kernel", "round"]
_MEASUREMENT = [*_OF_RUN, "time"]
_COPY = r"~[0-9]+$"
_MADE_BY = {
    "arch": "architectures",
    "target": "targets",
    "device": "devices",
    "driver": "drivers",
    "toolchain": "toolchains",
    "flags": "compiler flags",
    "harness_version": "versions of tile-oracle",
}
_FAILED = ["wrong", "flaky", "crash", "timeout", "build_error"]


@dataclass(frozen=True)
class MergeSummary:
    """The result of a merge, in rows.

    read: input rows. equal: dropped copies that equal the kept row in every column. differing: dropped copies
    that differ in some column. lost: device_lost rows that were measured again. renamed: rows whose run
    shares its name with another one. kept: output rows. repeated_pairs: pairs measured in several runs;
    disagreeing: those that are ok in one run and failed in another; spread: median of (slowest / fastest - 1)
    over the repeated ok pairs, None without any. rows_of: column (device, toolchain, ...) -> value -> rows.
    binaries: kernels with several source hashes.
    """

    read: int
    equal: int
    differing: int
    lost: int
    renamed: int
    kept: int
    pairs: int
    problems: int
    repeated_pairs: int
    disagreeing: int
    spread: float | None
    binaries: int
    rows_of: dict[str, dict[str, int]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Returns the summary, as text for the user."""
        lines = [
            f"{count(self.kept, 'row')} kept of {self.read:,}: {count(self.pairs, 'pair')} of "
            f"{count(self.problems, 'problem')}"
        ]
        for number, what in (
            (self.equal, "given more than once"),
            (self.differing, "given more than once with differences: the most complete row is kept"),
            (self.lost, "device_lost and measured again since: left out"),
            (self.renamed, "of a run that shares its name with another: it is now called NAME~2"),
        ):
            if number:
                lines.append(f"  {count(number, 'row')} {what}")
        if self.repeated_pairs:
            spread = "" if self.spread is None else f"; times differ by {100 * self.spread:.1f} % (median)"
            lines.append(f"  {count(self.repeated_pairs, 'pair')} measured in several runs, all kept{spread}")
        if self.disagreeing:
            lines.append(
                f"  {self.disagreeing:,} of them ok in one run and failed in another: they count as failed"
            )
        for column, values in self.rows_of.items():
            if len(values) > 1:
                lines.append(f"  several {column}, all kept:")
                shown = sorted(values.items(), key=lambda item: (-item[1], item[0]))
                told = [f"{rows:>9,} rows  {value}" for value, rows in shown]
                lines += [f"    {one}" for one in first_few(told, 8)]
        if self.binaries:
            lines.append(
                f"  {self.binaries:,} kernels were measured from several binaries (source, flags or "
                "toolchain differ): `tile-oracle runs merge --format oracle` takes the newest of each"
            )
        return lines


def merge_records(tables: Iterable[pd.DataFrame]) -> tuple[pd.DataFrame, MergeSummary]:
    """Merges the rows of all tables (columns of tile_oracle.record.schema) by the rules above, sorted.

    Raises RecordError for tables of several operations, no tables, or rows that are not records.
    """
    given = [table for table in tables if len(table)]
    if not given:
        raise RecordError("there is nothing to merge: the inputs hold no records")
    op = op_of(op for table in given for op in table["op"].unique())
    names = [column.name for column in columns(op)]
    schema = arrow_schema(op)
    rows = pd.concat([table.reindex(columns=names) for table in given], ignore_index=True)
    rows["run"] = rows["run"].astype(object).where(rows["run"].notna(), None)
    rows["run"] = rows["run"].str.replace(_COPY, "", regex=True)
    read = len(rows)

    rows, equal, differing = _one_a_measurement(rows)
    rows, lost = _without_lost(rows)
    rows, renamed = _runs_apart(rows)
    rows = in_order(rows[schema.names])
    check_caches(rows)
    return rows, _summary(rows, read=read, equal=equal, differing=differing, lost=lost, renamed=renamed)


def _one_a_measurement(rows: pd.DataFrame) -> tuple[pd.DataFrame, int, int]:
    """Returns the rows without duplicates, and the numbers of equal and of differing copies left out."""
    timed = rows["time"].notna()
    doubtful = rows.duplicated(_MEASUREMENT, keep=False) | ~timed
    some = rows[doubtful]
    content = content_keys(some)
    distinct = some[~content.duplicated()]
    order = pd.DataFrame({"nulls": distinct.isna().sum(axis=1), "content": content[distinct.index]})
    by_fullness = distinct.loc[order.sort_values(["nulls", "content"]).index]
    again = by_fullness.duplicated(_MEASUREMENT, keep="first") & timed.loc[by_fullness.index]
    kept = pd.concat([rows[~doubtful], by_fullness[~again]], ignore_index=True)
    return kept, len(some) - len(distinct), int(again.sum())


def _without_lost(rows: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    lost = rows["status"] == "device_lost"
    if not lost.any():
        return rows, 0
    others = pd.MultiIndex.from_frame(rows.loc[~lost, _OF_RUN].astype(object).fillna(""))
    gone = lost & pd.MultiIndex.from_frame(rows[_OF_RUN].astype(object).fillna("")).isin(others)
    return rows[~gone].reset_index(drop=True), int(gone.sum())


def _runs_apart(rows: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    shared = rows.duplicated(_OF_RUN, keep=False) & rows["run"].notna()
    if not shared.any():
        return rows, 0
    some = rows[shared]
    ordered = some.assign(_content=content_keys(some)).sort_values(["time", "_content"], na_position="first")
    place = ordered.groupby(_OF_RUN, sort=False).cumcount()
    later = place[place > 0]
    renamed = rows.copy()
    renamed.loc[later.index, "run"] = renamed.loc[later.index, "run"] + "~" + (later + 1).astype(str)
    return renamed, len(later)


def _summary(rows: pd.DataFrame, **counts: int) -> MergeSummary:
    pair = ["problem", "kernel"]
    swept = rows[rows["round"] == rows["round"].min()]
    again = swept[swept.duplicated(pair, keep=False)]
    measured = again["status"] == "ok"
    seen = again.assign(ok=measured, bad=again["status"].isin(_FAILED))
    repeated = seen.groupby(pair)[["ok", "bad"]].any()
    ok = again[measured].groupby(pair)["latency_ms"]
    ratio = (ok.max() / ok.min() - 1.0)[ok.size() > 1]
    hashes = rows.dropna(subset=["source_hash"]).groupby("kernel")["source_hash"].nunique()
    return MergeSummary(
        kept=len(rows),
        pairs=len(rows.drop_duplicates(pair)),
        problems=int(rows["problem"].nunique()),
        repeated_pairs=len(repeated),
        disagreeing=int(repeated.all(axis=1).sum()),
        spread=float(np.median(ratio)) if len(ratio) else None,
        binaries=int((hashes > 1).sum()),
        rows_of={words: _counts(rows[name]) for name, words in _MADE_BY.items()},
        **counts,
    )


def _counts(column: pd.Series) -> dict[str, int]:
    named = column.astype(object).where(column.notna(), "").map(str)
    return {str(value): int(count) for value, count in named.value_counts().items() if value}


LEAST_SHARED = 3
"""With fewer kernels one disturbed time could decide the factor."""

LEAST_PAIRS = 20
"""Of two runs, for a factor of theirs where a problem has too few."""

FACTOR = "aligned"
_TIMES = ("latency_ms", "latency_min_ms")


@dataclass(frozen=True)
class Alignment:
    """problems: those that several runs measured. aligned: pairs of problem and run that were scaled by
    kernels of the problem; by_run: by all that the two runs share; apart: not scaled. factors: the 5th, 50th
    and 95th percentile of the factors."""

    problems: int
    aligned: int
    by_run: int
    apart: int
    factors: tuple[float, float, float] | None

    def lines(self) -> list[str]:
        """Returns the summary, as text for the user."""
        if not self.problems:
            return ["  no problem was measured in several runs: no times to align"]
        found = [f"  {self.problems:,} problems were measured in several runs"]
        if self.factors is not None:
            low, middle, high = self.factors
            found.append(
                f"  {self.aligned + self.by_run:,} times of a run and problem aligned: multiplied by "
                f"{middle:.3f} (median; 5 to 95 %: {low:.3f} to {high:.3f})"
            )
        if self.by_run:
            found.append(
                f"    {self.by_run:,} of them by all pairs that the two runs share: the problem has fewer "
                f"than {LEAST_SHARED}"
            )
        if self.apart:
            found.append(
                f"  {self.apart:,} left as they are: the runs share fewer than {LEAST_PAIRS} ok pairs, or "
                "are of different architectures"
            )
        return found


def align_runs(records: pd.DataFrame) -> tuple[pd.DataFrame, Alignment]:
    """Returns the records with aligned times, and what was done. records: columns of
    tile_oracle.record.schema.

    Aligning aligned records again changes nothing but rounding.
    """
    records = records.reset_index(drop=True)
    runs = records.groupby("problem")["run"].nunique()
    several = runs.index[runs > 1]
    rows = records[records["problem"].isin(several) & (records["status"] == "ok")]
    latest = rows.sort_values(["round", "time"], kind="stable").drop_duplicates(
        ["problem", "run", "kernel"], keep="last"
    )
    comparisons = list(_comparisons(latest))
    of_runs: dict[tuple[str, str], list[float]] = {}
    for one in comparisons:
        of_runs.setdefault((one.fixed, one.run), []).extend(one.ratios)
    factor = pd.Series(1.0, index=records.index)
    places = records.groupby(["problem", "run"]).indices
    found: list[float] = []
    by_run = 0
    for one in comparisons:
        shared = of_runs[one.fixed, one.run]
        own = len(one.ratios) >= LEAST_SHARED
        if own or len(shared) >= LEAST_PAIRS:
            by_run += not own
            found.append(float(np.exp(np.median(one.ratios if own else shared))))
            factor.iloc[places[one.problem, one.run]] = found[-1]
    aligned = _scaled(records, factor)
    percentiles = tuple(map(float, np.percentile(found, (5, 50, 95)))) if found else None
    done = Alignment(len(several), len(found) - by_run, by_run, len(comparisons) - len(found), percentiles)  # type: ignore[arg-type]
    return aligned, done


@dataclass(frozen=True)
class _Comparison:
    """ratios: ln(time in the fixed run / time in the run) of the kernels that are ok in both."""

    problem: str
    fixed: str
    run: str
    ratios: tuple[float, ...]


def _comparisons(latest: pd.DataFrame) -> Iterator[_Comparison]:
    """Yields every run of a problem with the problem's largest one. latest: one ok row of a problem, run,
    kernel."""
    for problem, table in latest.groupby("problem"):
        by_run = table.pivot(index="kernel", columns="run", values="latency_ms")
        archs = table.groupby("run")["arch"].first()
        # Of several runs with as many kernels the one whose name sorts first.
        fixed = by_run.count().sort_index().idxmax()
        for run in by_run.columns.drop(fixed):
            alike = archs[run] == archs[fixed]
            ratios = np.log(by_run[fixed] / by_run[run]).dropna() if alike else ()
            yield _Comparison(str(problem), str(fixed), str(run), tuple(map(float, ratios)))


def _scaled(records: pd.DataFrame, factor: pd.Series) -> pd.DataFrame:
    timed = (factor != 1.0) & records["latency_ms"].notna()
    scaled = records.copy()
    for name in _TIMES:
        scaled.loc[timed, name] = records.loc[timed, name] * factor[timed]
    flops_of = {one: float(problem_from_id(one).flops) for one in records.loc[timed, "problem"].unique()}
    # As `Problem.tflops` computes it, to the last bit: oracle files leave the column out where it follows.
    scaled.loc[timed, "tflops"] = records.loc[timed, "problem"].map(flops_of).astype(float) / (
        scaled.loc[timed, "latency_ms"] * 1e9
    )
    scaled.loc[timed, FACTOR] = records.loc[timed, FACTOR].fillna(1.0) * factor[timed]
    return scaled


@dataclass(frozen=True)
class OracleSummary:
    """Numbers of rows selected and left out. devices: device -> rows, for all devices."""

    rows: int
    pairs: int
    problems: int
    device: str
    other_devices: int
    other_problems: int
    older_binaries: int

    def lines(self) -> list[str]:
        """Returns the summary, as text for the user."""
        lines = [
            f"{count(self.rows, 'record')} of {count(self.pairs, 'pair')} of "
            f"{count(self.problems, 'problem')} on {self.device or 'an unnamed device'}"
        ]
        for number, what in (
            (self.other_devices, "of other devices"),
            (self.other_problems, "of problems that are not in the problem set"),
            (self.older_binaries, "of a kernel's older binaries (its source, flags or toolchain changed)"),
        ):
            if number:
                lines.append(f"  left out: {count(number, 'row')} {what}")
        return lines


def oracle_records(
    records: pd.DataFrame, device: str | None = None, problems: Collection[str] | None = None
) -> tuple[pd.DataFrame, OracleSummary]:
    """Returns the rows for an oracle of one device. problems: ids to keep, None for all.

    Raises RecordError if the records are of several devices and none is chosen, or if nothing is left.
    """
    of_device, device = _one_device(records, device)
    wanted = of_device if problems is None else of_device[of_device["problem"].isin(problems)]
    if wanted.empty:
        raise RecordError(f"none of the {of_device['problem'].nunique()} recorded problems is in the set")
    newest = _newest_binaries(wanted, ["kernel"])
    return newest, OracleSummary(
        rows=len(newest),
        pairs=len(newest.drop_duplicates(["problem", "kernel"])),
        problems=int(newest["problem"].nunique()),
        device=device,
        other_devices=len(records) - len(of_device),
        other_problems=len(of_device) - len(wanted),
        older_binaries=len(wanted) - len(newest),
    )


def records_to_learn_from(records: pd.DataFrame, device: str | None = None) -> pd.DataFrame:
    """Returns the training rows of one device.

    If a pair was measured with several binaries, the last one counts. A pair that was measured only with an
    older binary is kept: a new compiler release, for example, makes new binaries but rarely different code.
    Raises RecordError if the records are of several devices and none is chosen, or of another device.
    """
    return _newest_binaries(_one_device(records, device)[0], ["problem", "kernel"])


def _one_device(records: pd.DataFrame, device: str | None) -> tuple[pd.DataFrame, str]:
    """Returns the rows of the device, or of the only device, and its name."""
    devices = records["device"].astype(object).where(records["device"].notna(), "").value_counts()
    if device is None:
        if len(devices) > 1:
            raise RecordError(
                f"the records are of {len(devices)} devices "
                f"({', '.join(map(repr, sorted(devices.index)[:4]))}): "
                "choose one with --device"
            )
        device = str(devices.index[0]) if len(devices) else ""
    of_device = records[records["device"].astype(object).where(records["device"].notna(), "") == device]
    if of_device.empty:
        raise RecordError(
            f"there are no records of the device {device!r}; there are "
            f"{', '.join(map(repr, sorted(devices.index)[:4])) or 'none at all'}"
        )
    return of_device, device


def _newest_binaries(records: pd.DataFrame, of: list[str]) -> pd.DataFrame:
    """Returns the rows of each kernel's, or pair's, last measured binary. Rows without a binary are kept:
    what a rule refused was never built. Equal times go to the hash that sorts last."""
    built = records.dropna(subset=["source_hash"])
    last = built.groupby([*of, "source_hash"])["time"].max().reset_index()
    last = last.sort_values([*of, "time", "source_hash"], na_position="first")
    newest = last.drop_duplicates(of, keep="last")[[*of, "source_hash"]]
    own = records[of].merge(newest, on=of, how="left")["source_hash"].to_numpy()
    return records[(records["source_hash"].isna() | (records["source_hash"] == own)).to_numpy()]
