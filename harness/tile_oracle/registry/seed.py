"""Tuned results from the records of runs: their oracles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from tile_oracle.judge.oracle import find_oracles
from tile_oracle.record.final import final_measurements
from tile_oracle.registry.tuned import TunedEntry

_NEEDED = ("target", "arch", "device", "toolchain", "source_hash")
"""Columns that matching a result requires. Imported measurements lack most of them."""


@dataclass(frozen=True)
class SeedEntries:
    """Tuned entries made from records. left_out: reason -> number of problems without an entry."""

    entries: tuple[TunedEntry, ...]
    left_out: Mapping[str, int]


def entries_of_records(records: pd.DataFrame) -> SeedEntries:
    """Returns the oracle of every problem on every device, target and toolchain of a table of records.

    Raises RecordError for a table that is not of records.
    """
    entries: list[TunedEntry] = []
    left_out: Counter[str] = Counter()
    keys = ["target", "arch", "device", "toolchain"]
    # Rows of kernels that never ran have no toolchain and are not needed here.
    known = records.dropna(subset=[*keys])
    unknown = set(records["problem"]) - set(known["problem"])
    if unknown:
        left_out["whose records do not say device and toolchain"] = len(unknown)
    for _, rows in known.groupby(keys, sort=True):
        final = final_measurements(rows)
        best = final.set_index(["problem", "kernel"])
        for oracle in find_oracles(final).to_dict("records"):
            if not isinstance(oracle["oracle_kernel"], str):
                left_out["without a kernel that is ok"] += 1
                continue
            row = best.loc[(oracle["problem"], oracle["oracle_kernel"])]
            if not all(isinstance(row[name], str) and row[name] for name in _NEEDED):
                left_out["whose records do not say device and toolchain"] += 1
                continue
            entries.append(
                TunedEntry(
                    problem=oracle["problem"],
                    kernel=oracle["oracle_kernel"],
                    latency_ms=float(oracle["oracle_latency_ms"]),
                    tflops=float(oracle["oracle_tflops"]),
                    kernels=int(oracle["kernels_measured"]),
                    target=row["target"],
                    arch=row["arch"],
                    device=row["device"],
                    driver=row["driver"] if isinstance(row["driver"], str) else "",
                    toolchain=row["toolchain"],
                    source_hash=row["source_hash"],
                    time=pd.Timestamp(row["time"]).isoformat(timespec="seconds"),
                )
            )
    return SeedEntries(tuple(entries), dict(left_out))
