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
are kept and counted; users of the table choose among them (`tile_oracle.record.oracle_records`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from tile_oracle.errors import RecordError
from tile_oracle.record.dataset_file import content_keys, in_order
from tile_oracle.record.final import check_caches
from tile_oracle.record.schema import arrow_schema, columns, op_of
from tile_oracle.terminal.counts import count

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
                lines += [f"    {rows:>9,} rows  {value}" for value, rows in shown[:8]]
                lines += [f"    and {len(shown) - 8} more"] if len(shown) > 8 else []
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
    swept = rows[rows["round"] == rows["round"].min()]
    sizes = swept.groupby(["problem", "kernel"], observed=True).size()
    repeated = sizes[sizes > 1].index
    again = swept[pd.MultiIndex.from_frame(swept[["problem", "kernel"]]).isin(repeated)]
    by_pair = again.assign(ok=again["status"] == "ok").groupby(["problem", "kernel"], observed=True)["ok"]
    failed = again.assign(bad=again["status"].isin(_FAILED))
    bad = failed.groupby(["problem", "kernel"], observed=True)["bad"].any()
    ok = again[again["status"] == "ok"].groupby(["problem", "kernel"], observed=True)["latency_ms"]
    ratio = (ok.max() / ok.min() - 1.0)[ok.size() > 1]
    hashes = rows.dropna(subset=["source_hash"]).groupby("kernel", observed=True)["source_hash"].nunique()
    return MergeSummary(
        kept=len(rows),
        pairs=len(rows.drop_duplicates(["problem", "kernel"])),
        problems=int(rows["problem"].nunique()),
        repeated_pairs=len(repeated),
        disagreeing=int((by_pair.any() & bad).sum()),
        spread=float(np.median(ratio)) if len(ratio) else None,
        binaries=int((hashes > 1).sum()),
        rows_of={words: _counts(rows[name]) for name, words in _MADE_BY.items()},
        **counts,
    )


def _counts(column: pd.Series) -> dict[str, int]:
    named = column.astype(object).where(column.notna(), "").map(str)
    return {str(value): int(count) for value, count in named.value_counts().items() if value}
