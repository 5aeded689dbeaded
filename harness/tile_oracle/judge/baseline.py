"""The accepted state of a model on a device and problem set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import pandas as pd

from tile_oracle.errors import GateError
from tile_oracle.judge.failures import failures_of
from tile_oracle.judge.noise import Margin
from tile_oracle.judge.selection import COVERED, NOT_MEASURED, PICK_NOT_MEASURED, UNDECIDED

EFFICIENCY_DECIMALS = 8
"""Decimals of an efficiency, in a baseline's file and in comparisons with it."""


@dataclass(frozen=True)
class Baseline:
    """The accepted state of one model on one target device and problem set.

    efficiencies: problem id -> fraction, or None for a problem of the set that was not covered.
    known_failures: problem id -> kernel name -> one of FAILURE_STATUSES.
    picks: problem id -> the pick and the uncertainty of its efficiency.
    ranked_by: the origin of the picks: a model folder and the digest of its files, or the out-of-fold recipe.
    """

    model: str
    model_kind: str
    target: str
    arch: str
    device: str
    problem_set: str
    problem_set_sha256: str
    kernel_set: str
    created: str
    harness_version: str
    efficiencies: Mapping[str, Annotated[float, msgspec.Meta(ge=0, le=1)] | None]
    known_failures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    picks: Mapping[str, Margin] = field(default_factory=dict)
    ranked_by: str = ""

    @property
    def coverage_percent(self) -> float:
        """Share of the set's problems that had an efficiency."""
        covered = sum(value is not None for value in self.efficiencies.values())
        return 100.0 * covered / len(self.efficiencies) if self.efficiencies else 0.0

    def knows(self, problem: str, kernel: str) -> str | None:
        """Returns the status that a pair is known to fail with, or None."""
        return self.known_failures.get(problem, {}).get(kernel)


def efficiencies_of(selection: pd.DataFrame) -> dict[str, float | None]:
    """Problem id -> efficiency of the pick, rounded as files have it; None where not covered."""
    covered = (selection["coverage"] == COVERED).tolist()
    values = selection["efficiency"].astype("float64").tolist()
    problems = selection["problem"].tolist()
    return {
        str(problem): round(float(value), EFFICIENCY_DECIMALS) if is_covered else None
        for problem, value, is_covered in zip(problems, values, covered, strict=True)
    }


def make_baseline(
    selection: pd.DataFrame,
    final: pd.DataFrame,
    *,
    previous: Baseline | None = None,
    margins: Mapping[str, Margin] | None = None,
    **identity: str,
) -> Baseline:
    """Returns the baseline that accepts this run. identity: the string fields of Baseline. margins: the picks
    with the uncertainty of their efficiencies (tile_oracle.judge.noise).

    Values that this run did not measure are kept from `previous`: efficiencies of the run's problems that are
    not covered because a measurement is missing, and known failures of unmeasured pairs.

    Raises GateError if no problem has an efficiency: such a baseline would accept anything.
    """
    efficiencies: dict[str, float | None] = dict(efficiencies_of(selection))
    if all(value is None for value in efficiencies.values()):
        raise GateError("no problem of this run has an efficiency: there is nothing to accept as a baseline")
    known: dict[str, dict[str, str]] = {}
    picks = dict(margins or {})
    if previous is not None:
        measured = set(zip(final["problem"], final["kernel"], strict=True))
        unmeasured = selection["coverage"].isin([NOT_MEASURED, PICK_NOT_MEASURED, UNDECIDED])
        for problem in selection.loc[unmeasured, "problem"]:
            efficiencies[problem] = previous.efficiencies.get(problem)
            if problem in previous.picks:
                picks[problem] = previous.picks[problem]
        for problem, kernels in previous.known_failures.items():
            for kernel, status in kernels.items():
                if problem in efficiencies and (problem, kernel) not in measured:
                    known.setdefault(problem, {})[kernel] = status
    for row in failures_of(final).itertuples(index=False):
        known.setdefault(str(row.problem), {})[str(row.kernel)] = str(row.status)
    return Baseline(**identity, efficiencies=efficiencies, known_failures=known, picks=picks)
