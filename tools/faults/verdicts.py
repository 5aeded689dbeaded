"""Losses planted into recorded runs: does the gate find them, and does it leave unchanged runs alone?

The shipped oracles of 300 problems (three of an H200, one of a CPU) are measured again in simulation: every
record's latency is drawn anew from its median, spread and samples, from the scatter between rounds that the
recording shows, and from a drift that kernels timed in turn share. The baseline is the shipped model's picks
on the recording itself. Three kinds of run, in turn:

- unchanged: the same picks;
- mean: some picks exchanged for slower kernels, none by more than nine points, so that the mean falls by one;
- problem: one pick exchanged, so that its problem loses twelve points.

Records cannot be measured again, so the gate decides from these rows alone. Only the leaders, the picks and
the exchanged kernels of each problem are drawn: the others are too slow to change an oracle.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.data_files import data_folder
from harness.judge.baseline import Baseline, make_baseline
from harness.judge.baseline_file import load_baseline
from harness.judge.criteria import FAIL, Criteria
from harness.judge.noise import margins
from harness.judge.verdict import Verdict, judge
from harness.oracle import final_measurements, find_oracles, problems_of
from harness.problem import Problem
from harness.record.dataset import load_records
from harness.selection import select
from tools.faults.campaign import Campaign, Outcome, main

KINDS = ("unchanged", "mean", "problem")
MEAN_POINTS, PROBLEM_POINTS = 1.0, 12.0
_LARGEST_OF_MANY = 9.0
_DRIFT = 0.01
_FOUND, _NOT_FAILED = 0.95, 0.98
_OF_FEW_SAMPLES = 0.005


@dataclass(frozen=True)
class Recording:
    """A recorded run: its name, rows, problems, the picks of the model, and the losses that exchanging a pick
    for another kernel would cost, in points (problem, kernel, loss)."""

    name: str
    records: pd.DataFrame
    problems: tuple[Problem, ...]
    picks: pd.Series
    losses: pd.DataFrame
    scatter: float


def recordings() -> list[Path]:
    """The shipped oracles that have a baseline beside them."""
    found = sorted(data_folder("models").glob("*/*/*_validation_300/*.parquet"))
    return [path for path in found if path.with_suffix(".json").is_file()]


@cache
def load(path: Path) -> Recording:
    """A shipped oracle with the picks that its baseline was made of."""
    records = load_records(path)
    accepted = load_baseline(path.with_suffix(".json"))
    assert accepted is not None
    final = final_measurements(records)
    oracles = find_oracles(final).set_index("problem")
    ok = final[final["status"] == "ok"]
    efficiency = (ok["tflops"] / ok["problem"].map(oracles["oracle_tflops"])).clip(upper=1.0)
    table = ok[["problem", "kernel", "latency_ms"]].assign(efficiency=efficiency)
    table["wanted"] = table["problem"].map(accepted.efficiencies).astype("float64")
    table["off"] = (table["efficiency"] - table["wanted"]).abs()
    best = table.sort_values(["off", "kernel"]).drop_duplicates("problem").dropna(subset=["off"])
    best = best[best["off"] < 1e-6]
    picks = best.set_index("problem")["kernel"].sort_index()
    losses = table[table["problem"].isin(picks.index)].assign(
        loss=100 * (table["wanted"] - table["efficiency"])
    )
    losses = losses[losses["loss"] > 0.2][["problem", "kernel", "loss"]].reset_index(drop=True)
    again = records[(records["round"] >= 1) & (records["status"] == "ok")]
    leaders = pd.MultiIndex.from_frame(again[["problem", "kernel"]].drop_duplicates())
    both = records[pd.MultiIndex.from_frame(records[["problem", "kernel"]]).isin(leaders)]
    wide = both[both["status"] == "ok"].pivot_table(
        index=["problem", "kernel"], columns="round", values="latency_ms"
    )
    change = np.log(wide[1] / wide[0]).dropna()
    change = change - change.groupby("problem").transform("median")
    scatter = 1.4826 * float(change.abs().median()) / np.sqrt(2)
    name = f"{path.parents[2].name}/{path.parent.name}"
    chosen = records[records["problem"].isin(picks.index)].reset_index(drop=True)
    return Recording(name, chosen, problems_of(chosen), picks, losses, scatter)


def planted(recording: Recording, kind: str, rng: np.random.Generator) -> tuple[pd.Series, float]:
    """The picks of the changed model, and by what the latency of its one exchanged pick is to be multiplied
    so that the planted loss is exact."""
    picks = recording.picks.copy()
    if kind == "mean":
        left = MEAN_POINTS * len(picks)
        allowed = recording.losses[recording.losses["loss"] <= _LARGEST_OF_MANY]
        by_problem = dict(list(allowed.groupby("problem")))
        for problem in rng.permutation(list(by_problem)):
            options = by_problem[problem]
            fitting = options[options["loss"] <= left]
            if len(fitting):
                one = fitting.iloc[int(rng.integers(len(fitting)))]
                picks[problem], left = one["kernel"], left - one["loss"]
            if left < 1.0:  # of 300 points
                return picks, 1.0
        raise ValueError(f"{recording.name}: {left:.1f} points of the planted loss found no pick to exchange")
    if kind == "problem":
        near = recording.losses[(recording.losses["loss"] - PROBLEM_POINTS).abs() < 2.0]
        one = near.iloc[int(rng.integers(len(near)))]
        picks[one["problem"]] = one["kernel"]
        return picks, float(one["loss"])
    return picks, 1.0


def drawn(records: pd.DataFrame, scatter: float, rng: np.random.Generator) -> pd.DataFrame:
    """The same rows, measured again in simulation."""
    several = records["samples"].fillna(0) > 1
    error = 0.93 * records["spread"].astype("float64") / np.sqrt(records["samples"].where(several))
    noise = np.hypot(error.fillna(_OF_FEW_SAMPLES).to_numpy(dtype=np.float64), scatter)
    group = records.groupby(["problem", "round"], sort=False).ngroup().to_numpy()
    drift = rng.normal(0.0, _DRIFT, group.max() + 1)[group]
    factor = np.exp(rng.normal(0.0, 1.0, len(records)) * noise + drift)
    return records.assign(latency_ms=records["latency_ms"] * factor, tflops=records["tflops"] / factor)


def verdict_on(recording: Recording, kind: str, rng: np.random.Generator) -> Verdict:
    """One simulated run, judged against the baseline of the recording."""
    picks, loss = planted(recording, kind, rng)
    wanted = pd.MultiIndex.from_tuples([*recording.picks.items(), *picks.items()])
    records = recording.records
    again = records[records["round"] >= 1]
    leaders = pd.MultiIndex.from_frame(again[["problem", "kernel"]])
    records = records[pd.MultiIndex.from_frame(records[["problem", "kernel"]]).isin(wanted.union(leaders))]
    accepted = _analysed(recording, records, recording.picks)
    if kind == "problem":
        records = _with_exact_loss(recording, records, picks, loss)
    selection, final, noise = _analysed(recording, drawn(records, recording.scatter, rng), picks)
    baseline = make_baseline(accepted[0], accepted[1], margins=accepted[2], **_identity())
    return judge(selection, final, baseline, Criteria(), margins=noise)


def _with_exact_loss(
    recording: Recording, records: pd.DataFrame, picks: pd.Series, loss: float
) -> pd.DataFrame:
    """The exchanged pick made a little faster or slower, so that its problem loses twelve points."""
    (problem,) = picks.index[picks != recording.picks]
    selection, _, _ = _analysed(recording, records, recording.picks)
    before = float(selection.set_index("problem").at[problem, "efficiency"])
    factor = (before - loss / 100) / (before - PROBLEM_POINTS / 100)
    changed = (records["problem"] == problem) & (records["kernel"] == picks[problem])
    scale = np.where(changed, factor, 1.0)
    return records.assign(latency_ms=records["latency_ms"] * scale, tflops=records["tflops"] / scale)


def _analysed(recording: Recording, records: pd.DataFrame, picks: pd.Series):  # type: ignore[no-untyped-def]
    final = final_measurements(records)
    ranked = pd.DataFrame({"problem": picks.index, "kernel": picks.to_numpy(), "predicted_tflops": 0.0})
    selection = select(recording.problems, final, find_oracles(final), ranked)
    return selection, final, margins(records, final, selection)


def _identity() -> dict[str, Any]:
    return {one.name: "" for one in fields(Baseline) if one.type == "str"}


def run(count: int, seed: int, paths: list[Path] | None = None) -> Outcome:
    """`count` simulated runs of each kind for each recording."""
    counts: Counter[str] = Counter()
    failures: list[str] = []
    total = 0
    for path in paths or recordings():
        recording = load(path)
        for kind in KINDS:
            states: Counter[str] = Counter()
            found = 0
            for number in range(count):
                rng = np.random.default_rng([seed, number, KINDS.index(kind)])
                verdict = verdict_on(recording, kind, rng)
                states[verdict.state] += 1
                named = {"mean": "mean", "problem": "largest loss"}.get(kind, "")
                found += any(one.name == named and one.outcome == FAIL for one in verdict.criteria)
                total += 1
            for state, times in states.items():
                counts[f"{recording.name} {kind}: {state}"] = times
            if kind == "unchanged" and states["failed"] > (1 - _NOT_FAILED) * count:
                failures.append(f"{recording.name}: {states['failed']} of {count} unchanged runs failed")
            if kind != "unchanged" and found < _FOUND * count:
                failures.append(f"{recording.name}: the loss ({kind}) was found in {found} of {count} only")
    return Outcome(total, counts, failures)


CAMPAIGN = Campaign(
    "verdicts",
    "planted losses are found in 95 of 100 replayed runs, unchanged runs do not fail in 98 of 100",
    100,
    run,
)

if __name__ == "__main__":
    sys.exit(main(CAMPAIGN))
