"""The problems that a verdict covers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pandas as pd

from tile_oracle.judge.baseline import Baseline
from tile_oracle.judge.selection import COVERED
from tile_oracle.judge.verdict import IN_SAMPLE, Verdict

NOTHING_JUDGED = "nothing judged"
LEAST_UNSEEN = 0.5
"""If a smaller fraction of the covered problems is new to the model, the verdict is in-sample."""


@dataclass(frozen=True)
class Part:
    """The part of a run to judge. selection, baseline: without the problems that are not informative:
    in_sample, the training problems; alone, those whose pick was the only candidate, which is 100 %
    by construction. covered: number of problems with an efficiency before their removal."""

    selection: pd.DataFrame
    baseline: Baseline | None
    in_sample: tuple[str, ...]
    alone: tuple[str, ...]
    covered: int

    @property
    def nothing_left(self) -> bool:
        """Whether there were problems with an efficiency and none of them is left."""
        return 0 < self.covered == len(self.in_sample) + len(self.alone)

    def settled(self, verdict: Verdict) -> Verdict:
        """Returns the verdict on this part, or in-sample if the part is too small. A failure remains a
        failure."""
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
    """Returns the problems that a verdict may cover. in_sample: training problems that do not count. Failures
    of kernels count on every problem, because they do not depend on the model."""
    covered = selection[selection["coverage"] == COVERED]
    seen = covered["problem"].isin(list(in_sample))
    # Where a picker names its choice alone, its candidates are the kernels that are not refused. It had a
    # choice where others of them were wrong, and where it named a refused one.
    refused = covered["kernels_unsupported"].where(covered["kernels_ranked"] == 1, 0)
    candidates = covered["kernels_measured"] - refused
    alone = ~seen & (candidates == 1) & (covered["pick_status"] == "ok")
    gone = {*in_sample, *covered.loc[alone, "problem"]}
    rest = selection[~selection["problem"].isin(list(gone))]
    if baseline is not None and gone:
        kept = {problem: value for problem, value in baseline.efficiencies.items() if problem not in gone}
        baseline = replace(baseline, efficiencies=kept)
    names = covered["problem"].astype(str)
    return Part(rest, baseline, tuple(names[seen]), tuple(names[alone]), len(covered))
