"""How a session can end, and pytest's exit status for each. docs/gate.md has the table for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from tile_oracle.errors import HarnessError


class Outcome(IntEnum):
    """The values are exit statuses. pytest's own 2 to 5 keep their meaning, so these start at 10; a greater
    number is a more severe outcome."""

    PASSED = 0
    FAILED = 1
    NO_BASELINE = 10
    CANNOT_TELL = 11
    INCOMPLETE = 12
    IN_SAMPLE = 13
    NOTHING_JUDGED = 14
    DEVICE_MISSING = 15
    NOTHING_MEASURED = 16
    NOT_TIMED = 17
    EXPORT_DIFFERS = 18

    @property
    def option(self) -> str:
        """Its name for `--allow`."""
        return self.name.lower().replace("_", "-")

    @property
    def words(self) -> str:
        """Its name in messages."""
        return self.option if self is Outcome.IN_SAMPLE else self.name.lower().replace("_", " ")

    @classmethod
    def of_state(cls, state: str) -> Outcome:
        """Returns how a session with a verdict of this state ends. A state of no outcome is not a pass."""
        return {one.words: one for one in cls}.get(state, cls.NOTHING_JUDGED)


STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable in which GitHub names the file for the summary of a workflow's step."""

MEANINGS: Mapping[Outcome, str] = {
    Outcome.PASSED: "every criterion is met",
    Outcome.FAILED: "a criterion or a test failed",
    Outcome.NO_BASELINE: "there is no accepted run to compare with",
    Outcome.CANNOT_TELL: "the measurements do not settle a criterion",
    Outcome.INCOMPLETE: "the budget is spent, or only some of the pairs were requested",
    Outcome.IN_SAMPLE: "the model is judged on problems that it was trained on",
    Outcome.NOTHING_JUDGED: "no pick could be compared with an oracle",
    Outcome.DEVICE_MISSING: "the target's device is missing or cannot be opened",
    Outcome.NOTHING_MEASURED: "no pair was measured or replayed",
    Outcome.NOT_TIMED: "results were checked in Triton's interpreter, which has no times",
    Outcome.EXPORT_DIFFERS: "an export beside the model folder picks otherwise, or could not be compared",
}

ALLOWABLE = tuple(outcome for outcome in Outcome if outcome not in (Outcome.PASSED, Outcome.FAILED))


def most_severe(outcomes: Iterable[Outcome]) -> Outcome:
    """Returns the outcome that becomes the exit status: `failed`, else the greatest number."""
    found = set(outcomes)
    return Outcome.FAILED if Outcome.FAILED in found else max(found, default=Outcome.PASSED)


def status_of(outcomes: Iterable[Outcome], allowed: frozenset[Outcome], status: int) -> int:
    """Returns the exit status of a session that pytest would end with `status`: 0 only where a verdict passed
    or every outcome is allowed. pytest's own 1 to 4 take precedence over a verdict."""
    if status not in (0, _NO_TESTS):
        return status
    found = set(outcomes) or {Outcome.NOTHING_JUDGED}
    return int(most_severe(found - allowed))


_NO_TESTS = 5
"""pytest's status of a session without tests; what it did not measure has an outcome of its own."""


def read_allowed(text: str) -> frozenset[Outcome]:
    """Returns the outcomes that `--allow` names, separated by commas. Raises HarnessError for an unknown
    name."""
    by_name = {outcome.option: outcome for outcome in ALLOWABLE}
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in by_name:
            raise HarnessError(f"--allow {name!r} is not one of {', '.join(by_name)}")
    return frozenset(by_name[name] for name in names)
