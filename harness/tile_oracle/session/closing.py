"""The last lines of a session that did not pass: what the outcome means and which command to run next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from tile_oracle.pages import words
from tile_oracle.report import wording
from tile_oracle.report.answers import Step, next_steps
from tile_oracle.report.data import ReportData
from tile_oracle.session.command_line import CommandLine
from tile_oracle.session.conclusion import Conclusion
from tile_oracle.session.outcome import MEANINGS, Outcome, most_severe
from tile_oracle.terminal.documentation import page


def closing_lines(conclusion: Conclusion, allowed: frozenset[Outcome]) -> list[str]:
    """Returns the lines about one problem set's outcomes, most severe first; none if it passed or only
    failed."""
    lines = []
    for outcome in sorted(conclusion.outcomes - {Outcome.PASSED, Outcome.FAILED}, reverse=True):
        is_allowed = " (allowed)" if outcome in allowed else ""
        data = conclusion.of_outcome(outcome)
        named = conclusion.named(outcome)
        whose = f" ({', '.join(named)})" if named else ""
        lines.append(f"{outcome.words}{is_allowed}{whose}: {_REASONS.get(outcome, _meaning(outcome))(data)}")
        lines += _shown([step for step in next_steps(data) if step.about == outcome.option])
    return [part for line in lines for part in line.split("\n")]


def allowing_lines(
    outcomes: Collection[Outcome], allowed: frozenset[Outcome], command: CommandLine, status: int
) -> list[str]:
    """Returns how to end a session of these outcomes, whose exit status is theirs, with another one."""
    found = most_severe(set(outcomes) - allowed)
    if found <= Outcome.FAILED or status != found:
        return []
    why = "exit with status 0 anyway"
    if Outcome.IN_SAMPLE in set(outcomes) - allowed:  # what then judges decides
        why = "let these problems count"
    names = ",".join(one.option for one in sorted({*outcomes, *allowed}) if one > Outcome.FAILED)
    return _shown([Step(why, command.resumed(f"--allow={names}"))])


def _shown(steps: Iterable[Step]) -> list[str]:
    return [f"  {step.reason.removeprefix('to ')}:\n    {step.command}" for step in steps]


def status_line(outcomes: Iterable[Outcome], status: int) -> str:
    """Returns a line on the outcome that became the exit status; "" for a status of pytest's own."""
    found = most_severe(outcomes)
    if found <= Outcome.FAILED or status != found:
        return ""
    return f"exit status {status}: {found.words}, which is not a pass ({page('gate')})"


def _meaning(outcome: Outcome) -> Callable[[ReportData], str]:
    return lambda data: MEANINGS[outcome]


def _incomplete(data: ReportData) -> str:
    if data.scope.stopped:
        return f"{words.one_line(data.scope.stopped)}; {words.count(data.scope.left, 'pair')} left"
    if data.scope.deselected:
        return f"{words.count(data.scope.deselected, 'pair')} of the set were left out by your selection"
    return f"{words.count(data.scope.left, 'pair')} left"


def _cannot_tell(data: ReportData) -> str:
    causes = dict.fromkeys(one.cause for one in data.verdict.criteria if one.cause)
    return "; ".join(causes) or words.one_line(data.verdict.message, 400)


def _nothing_judged(data: ReportData) -> str:
    return words.one_line(data.verdict.message if data.efficiency.covered else _why_nothing(data), 400)


def _why_nothing(data: ReportData) -> str:
    if data.rankings is None:
        return data.ranked_by.sentence
    return f"no problem has an efficiency: {wording.coverage_sentence(data)}"


_REASONS: dict[Outcome, Callable[[ReportData], str]] = {
    Outcome.NO_BASELINE: lambda data: "there is none for this model, device and kernel pool",
    Outcome.CANNOT_TELL: _cannot_tell,
    Outcome.IN_SAMPLE: lambda data: words.one_line(data.verdict.message, 400),
    Outcome.INCOMPLETE: _incomplete,
    Outcome.NOTHING_JUDGED: _nothing_judged,
    Outcome.EXPORT_DIFFERS: lambda data: words.one_line(data.export_differs, 400),
}
