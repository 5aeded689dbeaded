"""Selects records for an oracle (one device, the newest binary of each kernel) and for training (one device,
the newest binary of each pair)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pandas as pd

from tile_oracle.errors import RecordError
from tile_oracle.terminal.counts import count


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
    last = built.groupby([*of, "source_hash"], observed=True)["time"].max().reset_index()
    last = last.sort_values([*of, "time", "source_hash"], na_position="first")
    newest = last.drop_duplicates(of, keep="last")[[*of, "source_hash"]]
    own = records[of].merge(newest, on=of, how="left")["source_hash"].to_numpy()
    return records[(records["source_hash"].isna() | (records["source_hash"] == own)).to_numpy()]
