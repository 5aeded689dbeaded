"""One side of a comparison: the time of each problem's kernels, read from a run, records, an oracle file or a
baseline.

The standard error of a kernel's log latency comes from its rounds after the sweep, else from the samples of
its sweep. A few rounds give a poor estimate of their scatter, so it is moderated by the typical scatter of
the side, which counts as PRIOR_DOF degrees of freedom (Smyth, Statistical Applications in Genetics and
Molecular Biology 3, 2004).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from tile_oracle.errors import GateError, RecordError
from tile_oracle.files.vouched_files import MANIFEST_FILE
from tile_oracle.judge.baseline import Baseline
from tile_oracle.judge.baseline_file import load_baseline
from tile_oracle.judge.noise import MEDIAN_ERROR, PRIOR_DOF, TYPICAL_NOISE
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.record.dataset import load_records
from tile_oracle.record.final import final_measurements
from tile_oracle.record.schema import ROUND_FINAL
from tile_oracle.record.sealed_parquet import read_table
from tile_oracle.record.twins import is_measured, measured_kernels

Pair = tuple[str, str]
"""A problem's id and a kernel's name."""

_SELECTION = "selection.parquet"


@dataclass(frozen=True)
class Time:
    """A kernel's latency on a problem. sigma: standard error of its logarithm; dof: degrees of freedom."""

    kernel: str
    latency_ms: float
    sigma: float
    dof: float


@dataclass(frozen=True)
class Side:
    """One side. kind: "run", "records" or "baseline". times: of every ok pair; a baseline knows those of the
    pick and of its rival. oracles, picks: problem -> kernel; picks are absent from records. statuses: of
    every measured pair; of a baseline only its known failures. made_by: device, driver, ... -> text."""

    name: str
    kind: str
    times: Mapping[Pair, Time]
    oracles: Mapping[str, str]
    picks: Mapping[str, str]
    statuses: Mapping[Pair, str]
    problems: frozenset[str]
    made_by: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_kernels(self) -> bool:
        """Whether the side lists all the kernels that it measured."""
        return self.kind != "baseline"


def read_side(path: Path) -> Side:
    """Reads a run's folder, a baseline (.json) or records (.parquet or a folder of them).

    Raises RecordError, GateError.
    """
    if (path / MANIFEST_FILE).is_file() or path.suffix == ".csv":
        raise RecordError(
            f"{path} is a model or a file of picks: to compare models, add --records RECORDS to judge them by"
        )
    if path.suffix == ".json":
        baseline = load_baseline(path)
        if baseline is None:
            raise GateError(f"there is no baseline at {path}")
        return _of_baseline(path, baseline)
    records = load_records(path)
    if records.empty:
        raise RecordError(f"{path} holds no measurement")
    selection = path / _SELECTION
    return side_of_records(path.name or str(path), records, _picks(selection) if selection.is_file() else {})


def side_of_records(name: str, records: pd.DataFrame, picks: Mapping[str, str] | None = None) -> Side:
    """Returns the side of a table of records, with the picks of a run: problem -> kernel."""
    final = final_measurements(records)
    oracles = find_oracles(final).dropna(subset=["oracle_kernel"])
    pairs = list(zip(final["problem"], final["kernel"], strict=True))
    return Side(
        name,
        "records" if picks is None or not picks else "run",
        _times(records, final),
        dict(zip(oracles["problem"], oracles["oracle_kernel"], strict=True)),
        dict(picks or {}),
        dict(zip(pairs, final["status"].astype(str), strict=True)),
        frozenset(final["problem"]),
        _made_by(records),
    )


def _times(records: pd.DataFrame, final: pd.DataFrame) -> dict[Pair, Time]:
    """Returns the times of all ok pairs. A copy (record.twins) has the noise of the kernel that was
    measured."""
    ok = final[final["status"] == "ok"].assign(measured=lambda table: measured_kernels(table))
    noise = _noise(records, ok)
    found = {}
    columns = ("problem", "kernel", "measured", "latency_ms")
    for problem, kernel, measured, latency in zip(*(ok[name] for name in columns), strict=True):
        error, dof = noise.get((problem, measured), (TYPICAL_NOISE, PRIOR_DOF))
        found[problem, kernel] = Time(kernel, float(latency), error, dof)
    return found


def _noise(records: pd.DataFrame, ok: pd.DataFrame) -> dict[Pair, tuple[float, float]]:
    """(problem, measured kernel) -> standard error of its log latency, and degrees of freedom."""
    rows = records[(records["status"] == "ok") & is_measured(records)]
    rows = rows[["problem", "kernel", "round", "latency_ms", "spread", "samples"]].astype(
        {"latency_ms": "float64", "spread": "float64", "samples": "float64"}
    )
    rows["log"] = np.log(rows["latency_ms"])
    rows["within"] = (MEDIAN_ERROR * rows["spread"]) ** 2 / rows["samples"].where(rows["samples"] > 1)
    again = rows["round"] >= ROUND_FINAL
    keys = ["problem", "kernel"]
    grouped = rows[again].groupby(keys, observed=True)
    rounds = pd.DataFrame(
        {
            "count": grouped["log"].size(),
            "variance": grouped["log"].var(ddof=1),
            "within": grouped["within"].mean(),
        }
    )
    swept = rows[~again].groupby(keys, observed=True)["within"].mean()
    several = rounds[rounds["count"] > 1]
    typical = float(np.sqrt(several["variance"].mean())) if len(several) else math.nan
    sampled = float(np.sqrt(swept.median())) if swept.notna().any() else math.nan
    known = [value for value in (typical, sampled) if not math.isnan(value)]
    prior = max(known) if known else TYPICAL_NOISE
    table = pd.DataFrame(index=pd.MultiIndex.from_frame(ok[["problem", "measured"]].drop_duplicates()))
    count = rounds["count"].reindex(table.index).fillna(1.0).to_numpy(dtype=np.float64)
    own = rounds["variance"].reindex(table.index).fillna(0.0).to_numpy(dtype=np.float64)
    within = rounds["within"].reindex(table.index).fillna(swept.reindex(table.index)).fillna(0.0)
    dof = PRIOR_DOF + count - 1
    variance = (PRIOR_DOF * prior**2 + (count - 1) * own) / dof
    sigma = np.sqrt(np.maximum(variance, within.to_numpy(dtype=np.float64)) / count)
    return {
        (str(problem), str(kernel)): (float(error), float(free))
        for (problem, kernel), error, free in zip(table.index, sigma, dof, strict=True)
    }


def _of_baseline(path: Path, baseline: Baseline) -> Side:
    times: dict[Pair, Time] = {}
    oracles: dict[str, str] = {}
    for problem, margin in baseline.picks.items():
        error = margin.sigma / math.sqrt(2)
        times[problem, margin.pick] = Time(margin.pick, margin.pick_latency_ms, error, margin.dof)
        if margin.other:
            times[problem, margin.other] = Time(margin.other, margin.other_latency_ms, error, margin.dof)
        oracles[problem] = margin.pick if margin.log_ratio >= 0 or not margin.other else margin.other
    if not times:
        raise GateError(
            f"{path} has no times: baselines of older versions hold efficiencies only; "
            "--update-baseline writes a new one"
        )
    failures = {
        (problem, kernel): status
        for problem, kernels in baseline.known_failures.items()
        for kernel, status in kernels.items()
    }
    return Side(
        f"{path.parent.name}/{path.name}",
        "baseline",
        times,
        oracles,
        {problem: margin.pick for problem, margin in baseline.picks.items()},
        failures,
        frozenset(baseline.efficiencies),
        {"device": baseline.device, "model": baseline.model},
    )


def _picks(path: Path) -> dict[str, str]:
    table = read_table(path, ("problem", "pick_kernel")).to_pydict()
    if "pick_kernel" not in table or "problem" not in table:
        raise RecordError(f"{path} has no picks; `tile-oracle runs report` writes it again")
    pairs = zip(table["problem"], table["pick_kernel"], strict=True)
    return {str(problem): str(kernel) for problem, kernel in pairs if kernel is not None}


def _made_by(records: pd.DataFrame) -> dict[str, str]:
    """Device, driver and toolchain of the records, several joined by commas."""
    found = {}
    for name in ("device", "driver", "toolchain"):
        values = sorted({str(one) for one in records[name].dropna().unique()})
        found[name] = ", ".join(values[:4]) + (", ..." if len(values) > 4 else "")
    return found
