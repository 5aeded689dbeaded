"""Compares an old and a new model on the same measurements: agreement, gains, losses, verdict."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.evaluation.evaluate import Evaluation
from tile_oracle.judge.baseline import Baseline, make_baseline
from tile_oracle.judge.bootstrap import Interval, Statistic, mean, median, p10, paired_interval
from tile_oracle.judge.criteria import Criteria
from tile_oracle.judge.scope import part_to_judge
from tile_oracle.judge.selection import COVERED
from tile_oracle.judge.verdict import Verdict, judge
from tile_oracle.record.final import final_measurements

SAME_POINTS = 0.1
"""Problems whose efficiency changed by no more than this (percentage points) count as the same."""

COMPARED: dict[str, Statistic] = {"mean": mean, "median": median, "P10": p10}
"""The metrics of efficiency that are compared."""


def _no_identity(model: str) -> dict[str, Any]:
    return {**{f.name: "" for f in fields(Baseline) if f.type in ("str", str)}, "model": model}


@dataclass(frozen=True)
class Comparison:
    """`changes`: one row per problem covered by both: old and new pick, efficiency in percent, delta.

    They are those that neither model was trained on or, where no such problem is left, all. in_sample: the
    others, which do not count in the verdict either. `verdict` applies the gate's criteria with the old model
    as the baseline.
    """

    old: Evaluation
    new: Evaluation
    changes: pd.DataFrame
    agreement: int
    deltas: dict[str, Interval]
    improved: int
    same: int
    degraded: int
    verdict: Verdict
    in_sample: tuple[str, ...] = ()

    def figure(self, side: str, statistic: Statistic) -> float:
        """A metric of the `old` or `new` model's efficiencies, in percent."""
        return float(statistic(self.changes[f"efficiency_{side}"].to_numpy(dtype=np.float64)))

    def regressions(self) -> pd.DataFrame:
        """Problems that got worse, worst first."""
        return self.changes[self.changes["delta"] < -SAME_POINTS].sort_values(["delta", "problem"])

    def as_json(self) -> dict[str, Any]:
        """The content of --json: plain numbers and texts."""
        return {
            "old": self.old.name,
            "new": self.new.name,
            "problems": len(self.changes),
            "agreement": self.agreement,
            "delta_points": {key: asdict(value) for key, value in self.deltas.items()},
            "improved": self.improved,
            "same": self.same,
            "degraded": self.degraded,
            "regressions": self.regressions().to_dict("records"),
            "verdict": self.verdict.to_dict(),
            "in_sample": list(self.in_sample),
        }


def compare(
    records: pd.DataFrame,
    old: Evaluation,
    new: Evaluation,
    criteria: Criteria | None = None,
    seed: int = 0,
    in_sample: Collection[str] = (),
) -> Comparison:
    """Compares two evaluations of the same records. in_sample: the problems that either model was trained on.
    Raises ModelError if no problem is covered by both."""
    columns = ["problem", "pick_kernel", "efficiency"]
    sides = [side.selection[side.selection["coverage"] == COVERED][columns] for side in (old, new)]
    changes = sides[0].merge(sides[1], on="problem", suffixes=("_old", "_new"))
    if changes.empty:
        raise ModelError(f"{old.name} and {new.name} cover no problem in common")
    seen = changes["problem"].isin(list(in_sample))
    if not seen.all():
        changes = changes[~seen]
    before = 100.0 * changes["efficiency_old"].to_numpy(dtype=np.float64)
    after = 100.0 * changes["efficiency_new"].to_numpy(dtype=np.float64)
    changes = pd.DataFrame(
        {
            "problem": changes["problem"],
            "pick_old": changes["pick_kernel_old"],
            "pick_new": changes["pick_kernel_new"],
            "efficiency_old": before,
            "efficiency_new": after,
            "delta": after - before,
        }
    )
    delta = changes["delta"].to_numpy(dtype=np.float64)
    final = final_measurements(records)
    baseline = make_baseline(old.selection, final, **_no_identity(old.name))
    part = part_to_judge(new.selection, baseline, in_sample)
    complete = not part.nothing_left
    verdict = judge(part.selection, final, part.baseline, criteria or Criteria(), complete=complete)
    return Comparison(
        old,
        new,
        changes,
        int((changes["pick_old"] == changes["pick_new"]).sum()),
        {name: paired_interval(before, after, statistic, seed) for name, statistic in COMPARED.items()},
        int((delta > SAME_POINTS).sum()),
        int((np.abs(delta) <= SAME_POINTS).sum()),
        int((delta < -SAME_POINTS).sum()),
        part.settled(verdict),
        part.in_sample,
    )
