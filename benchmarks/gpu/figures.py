"""What the recorded measurements of a run on a GPU come to: the figures that benchmarks/gpu is about."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from tile_oracle.judge.oracle import find_oracles
from tile_oracle.record.final import final_measurements
from tile_oracle.record.schema import ROUND_SWEEP

RIGHT = ("ok", "noisy")
REFUSED = "unsupported"


@dataclass(frozen=True)
class Numerics:
    """pairs, kernels: how many were looked at. bad: pairs that are neither right nor refused with a reason,
    as (status, kernel, problem, detail). never_ran: kernels that were right on no problem."""

    pairs: int
    kernels: int
    statuses: Mapping[str, int]
    bad: tuple[tuple[str, str, str, str], ...]
    never_ran: tuple[str, ...]


def numerics(records: pd.DataFrame) -> Numerics:
    """Of all rounds: a kernel that is wrong once is wrong."""
    refused = (records["status"] == REFUSED) & (records["detail"].fillna("") != "")
    bad = records[~records["status"].isin(RIGHT) & ~refused]
    ran = set(records.loc[records["status"].isin(RIGHT), "kernel"])
    kernels = sorted(records["kernel"].unique())
    first = records.drop_duplicates(["problem", "kernel"])
    return Numerics(
        len(first),
        len(kernels),
        {str(status): int(count) for status, count in first["status"].value_counts().items()},
        tuple(
            (row.status, row.kernel, row.problem, row.detail)
            for row in bad[["status", "kernel", "problem", "detail"]].itertuples(index=False)
        ),
        tuple(name for name in kernels if name not in ran),
    )


@dataclass(frozen=True)
class Throughput:
    """busy_share: of `wall_s`, in warm-up and timed runs by the device's own clock; recording_busy_share: the
    same of the time from the first record to the last. pairs_per_s: of those that ran, over `wall_s`."""

    pairs: int
    wall_s: float
    busy_s: float
    busy_share: float
    recording_busy_share: float
    pairs_per_s: float


def throughput(records: pd.DataFrame, wall_s: float) -> Throughput:
    """wall_s: of the whole pytest process, from its start to its end."""
    busy_s = float(records["busy_ms"].fillna(0).sum()) / 1e3
    ran = records[records["status"].isin(RIGHT) & (records["round"] == ROUND_SWEEP)]
    time = pd.to_datetime(records["time"], utc=True)
    recording_s = float((time.max() - time.min()).total_seconds()) if len(records) > 1 else math.nan
    return Throughput(
        len(ran),
        wall_s,
        busy_s,
        busy_s / wall_s,
        busy_s / recording_s if recording_s > 0 else math.nan,
        len(ran) / wall_s,
    )


def oracles(records: pd.DataFrame) -> pd.DataFrame:
    """tile_oracle.judge.oracle.find_oracles, by problem id."""
    return find_oracles(final_measurements(records)).set_index("problem")


def best_over_median(found: pd.DataFrame) -> float:
    """The median over problems of the oracle's TFLOPS / the median kernel's."""
    return float((found["oracle_tflops"] / found["median_tflops"]).median())


@dataclass(frozen=True)
class Agreement:
    """share: of the problems that both runs have an oracle for, those within the tolerance."""

    problems: int
    share: float
    worst_percent: float


def agreement(one: pd.DataFrame, other: pd.DataFrame, tolerance: float = 0.02) -> Agreement:
    """Of the oracles' TFLOPS in two runs."""
    pairs = [found["oracle_tflops"].astype("float64") for found in (one, other)]
    both = pd.concat(pairs, axis=1, join="inner", keys=["one", "other"]).dropna()
    off = (both["other"] / both["one"] - 1).abs()
    if not len(off):
        return Agreement(0, math.nan, math.nan)
    return Agreement(len(off), float((off <= tolerance).mean()), 100 * float(off.max()))


def geometric_mean(values: Iterable[float]) -> float:
    """NaN for none."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan
