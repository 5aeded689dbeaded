"""What a verdict is about: the problems that a model can be judged by."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pandas as pd

from tile_oracle.judge.baseline import Baseline
from tile_oracle.judge.verdict import IN_SAMPLE, Verdict
from tile_oracle.selection import COVERED

NOTHING_JUDGED = "nothing judged"
LEAST_UNSEEN = 0.5
"""Where fewer of the covered problems than this share are new to the model, the verdict is in-sample."""


@dataclass(frozen=True)
class Part:
    """What is left to judge. selection, baseline: less the problems that say nothing of the model: in_sample,
    those that it was trained on; alone, those with one candidate, whose efficiency is 100 % by construction.
    covered: problems with an efficiency before that."""

    selection: pd.DataFrame
    baseline: Baseline | None
    in_sample: tuple[str, ...]
    alone: tuple[str, ...]
    covered: int

    @property
    def nothing_left(self) -> bool:
        """Whether no problem with an efficiency is left, though there were some."""
        return 0 < self.covered == len(self.in_sample) + len(self.alone)

    def settled(self, verdict: Verdict) -> Verdict:
        """The verdict on this part, or that the part is too little for one. What failed has failed."""
        seen, unseen = len(self.in_sample), self.covered - len(self.in_sample)
        if verdict.failed:
            return verdict
        if seen and unseen < LEAST_UNSEEN * self.covered:
            whole = f"the model was trained on {seen:,} of the {self.covered:,} problems that judge it"
            rest = f", which leaves {unseen:,}" if unseen else ""
            return replace(verdict, state=IN_SAMPLE, message=whole + rest)
        if self.nothing_left:
            only = "each problem has one candidate, and the efficiency of an only candidate is 100 %"
            return replace(verdict, state=NOTHING_JUDGED, message=only)
        return verdict


def part_to_judge(selection: pd.DataFrame, baseline: Baseline | None, in_sample: Collection[str]) -> Part:
    """The problems that a verdict may be about. in_sample: those that the model was trained on and that are
    not to count. Kernels' failures are no matter of the model: they count on every problem."""
    covered = selection[selection["coverage"] == COVERED]
    seen = covered["problem"].isin(list(in_sample))
    alone = ~seen & ((covered["kernels_ranked"] == 1) | (covered["kernels_measured"] == 1))
    gone = {*in_sample, *covered.loc[alone, "problem"]}
    rest = selection[~selection["problem"].isin(list(gone))]
    if baseline is not None and gone:
        kept = {problem: value for problem, value in baseline.efficiencies.items() if problem not in gone}
        baseline = replace(baseline, efficiencies=kept)
    names = covered["problem"].astype(str)
    return Part(rest, baseline, tuple(names[seen]), tuple(names[alone]), len(covered))
