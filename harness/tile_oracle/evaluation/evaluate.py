"""Judges rankings by recorded measurements, as a session that replays them does; of one picker, or of two."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.comparison.compare import MARGIN_PERCENT, side_of_records
from tile_oracle.comparison.compare import Comparison as Changes
from tile_oracle.comparison.wording import compared_picks, comparison_document
from tile_oracle.errors import ModelError
from tile_oracle.judge.baseline import Baseline, make_baseline
from tile_oracle.judge.bootstrap import Interval, Statistic, interval, mean, median, p10, paired_interval
from tile_oracle.judge.criteria import Criteria
from tile_oracle.judge.picker import PICKS, Origin
from tile_oracle.judge.scope import part_to_judge
from tile_oracle.judge.selection import COVERED, Efficiency
from tile_oracle.judge.verdict import Verdict, judge
from tile_oracle.record.final import final_measurements, problems_of
from tile_oracle.report.data import ReportData, RunInfo, Training, analyse
from tile_oracle.report.files import verdict_document

HEADLINES: dict[str, Statistic] = {
    "mean": mean,
    "median": median,
    "P10": p10,
    "P90": lambda values: np.asarray(np.percentile(values, 90, axis=-1)),
    "min": lambda values: np.asarray(values.min(axis=-1)),
}
"""The headline metrics of efficiency."""


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of one model's rankings."""

    name: str
    report: ReportData

    @property
    def efficiency(self) -> Efficiency:
        """The metrics over all problems."""
        return self.report.efficiency

    @property
    def selection(self) -> pd.DataFrame:
        """One row for each problem (judge.selection.select)."""
        return self.report.selection

    @cached_property
    def headlines(self) -> dict[str, Interval]:
        """Efficiency in percent with bootstrap intervals."""
        covered = self.selection[self.selection["coverage"] == COVERED]
        percent = 100.0 * covered["efficiency"].to_numpy(dtype=np.float64)
        return {name: interval(percent, statistic) for name, statistic in HEADLINES.items()}

    def as_json(self) -> dict[str, Any]:
        """Returns the content of --json: that of a session's verdict.json, with the intervals."""
        return {
            **verdict_document(self.report),
            "headlines_percent": {name: asdict(value) for name, value in self.headlines.items()},
        }


def evaluate(
    name: str,
    records: pd.DataFrame,
    rankings: pd.DataFrame,
    *,
    ranked_by: Origin | None = None,
    training: Training | None = None,
) -> Evaluation:
    """Evaluates rankings (problem, kernel, predicted_tflops) against records. Raises ModelError if no problem
    is covered."""
    known = records.reindex(columns=["target", "arch", "device"]).bfill().iloc[0].fillna("")
    run = RunInfo(
        name, target=known["target"], arch=known["arch"], device=known["device"], replayed="records"
    )
    report = analyse(
        records,
        problems_of(records),
        rankings,
        run=run,
        ranked_by=ranked_by or Origin(PICKS, name),
        training=training,
    )
    if not report.efficiency.covered:
        raise ModelError(f"{name}: no problem has both an ok measurement and a measured pick")
    return Evaluation(name, report)


COMPARED: dict[str, Statistic] = {"mean": mean, "median": median, "P10": p10}
"""The metrics of efficiency that are compared."""


def _no_identity(model: str) -> dict[str, Any]:
    return {**{f.name: "" for f in fields(Baseline) if f.type in ("str", str)}, "model": model}


@dataclass(frozen=True)
class Figures:
    """A metric of both efficiencies in percent, and their difference in points."""

    old: float
    new: float
    change: Interval


@dataclass(frozen=True)
class Comparison:
    """`changes`: the times of both picks, of the problems that both cover and that neither model was trained
    on or, where no such problem is left, of all. `efficiency`: metric -> its figures over the same problems.
    in_sample: the problems that do not count in the verdict. `verdict` applies the gate's criteria with the
    old model as the baseline.
    """

    changes: Changes
    efficiency: Mapping[str, Figures]
    verdict: Verdict
    in_sample: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Returns the content of --json: that of a comparison of runs, and what only pickers have."""
        return {
            **comparison_document(self.changes),
            "efficiency_percent": {name: asdict(one) for name, one in self.efficiency.items()},
            "verdict": self.verdict.to_dict(),
            "in_sample": list(self.in_sample),
        }


def compare(
    records: pd.DataFrame,
    old: Evaluation,
    new: Evaluation,
    criteria: Criteria | None = None,
    *,
    in_sample: Collection[str] = (),
    margin_percent: float = MARGIN_PERCENT,
) -> Comparison:
    """Compares two evaluations of the same records. in_sample: the problems that either model was trained on.
    margin_percent: changes of a time within it are none. Raises ModelError if no problem is covered by both.
    """
    sides = [
        side.selection[side.selection["coverage"] == COVERED].set_index("problem") for side in (old, new)
    ]
    shared = sides[0].index.intersection(sides[1].index, sort=False)
    if shared.empty:
        raise ModelError(f"{old.name} and {new.name} cover no problem in common")
    seen = shared.isin(list(in_sample))
    kept = shared if seen.all() else shared[~seen]
    before, after = (100.0 * side["efficiency"][kept].to_numpy(dtype=np.float64) for side in sides)
    changes = compared_picks(
        side_of_records("", records[records["problem"].isin(kept)]),
        (old.name, old.selection[old.selection["problem"].isin(kept)]),
        (new.name, new.selection[new.selection["problem"].isin(kept)]),
        margin_percent,
    )
    assert changes is not None
    final = final_measurements(records)
    part = part_to_judge(
        new.selection, make_baseline(old.selection, final, **_no_identity(old.name)), in_sample
    )
    verdict = judge(
        part.selection, final, part.baseline, criteria or Criteria(), complete=not part.nothing_left
    )
    return Comparison(
        changes,
        {
            name: Figures(float(of(before)), float(of(after)), paired_interval(before, after, of))
            for name, of in COMPARED.items()
        },
        part.settled(verdict),
        part.in_sample,
    )
