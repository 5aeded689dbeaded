"""The last lines of a session that did not pass: what the outcome means and which command to run next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tile_oracle.pages import words
from tile_oracle.report import wording
from tile_oracle.report.data import ReportData
from tile_oracle.session.command_line import CommandLine
from tile_oracle.session.conclusion import Conclusion
from tile_oracle.session.outcome import MEANINGS, Outcome, most_severe


def closing_lines(
    conclusion: Conclusion, allowed: frozenset[Outcome], arguments: Sequence[str], replayed: bool
) -> list[str]:
    """The lines about one problem set's outcomes, most severe first; none if it passed or only failed.

    arguments: the session's own command line. replayed: nothing was measured, so nothing can be resumed.
    """
    command = CommandLine(arguments, replayed=replayed)
    lines = []
    for outcome in sorted(conclusion.outcomes - {Outcome.PASSED, Outcome.FAILED}, reverse=True):
        is_allowed = " (allowed)" if outcome in allowed else ""
        data = conclusion.of_outcome(outcome)
        whose = f" ({data.ranked_by.name})" if data is not conclusion.data and data.ranked_by.name else ""
        lines.append(f"{outcome.words}{is_allowed}{whose}: {_REASONS.get(outcome, _meaning(outcome))(data)}")
        ways = _WAYS[outcome](data, command) if outcome in _WAYS else []
        if outcome not in allowed:
            ways.append((_ALLOWING.get(outcome, _GREEN), command.with_options(_allow(outcome))))
        lines += [f"  {what}:\n    {how}" for what, how in ways]
    return [part for line in lines for part in line.split("\n")]


def status_line(outcomes: Iterable[Outcome], status: int) -> str:
    """A line on the outcome that became the exit status; "" for a status of pytest's own."""
    found = most_severe(outcomes)
    if found <= Outcome.FAILED or status != found:
        return ""
    return (
        f"exit status {status}: {found.words}, which is not a pass (docs/gate.md, Outcomes and exit statuses)"
    )


_GREEN = "exit with status 0 anyway"
_ALLOWING = {Outcome.IN_SAMPLE: "let these problems count"}


def _allow(outcome: Outcome) -> str:
    return f"--allow={outcome.option}"


def _meaning(outcome: Outcome) -> Callable[[ReportData], str]:
    return lambda data: MEANINGS[outcome]


def _no_baseline(data: ReportData) -> str:
    return f"there is no baseline for {data.ranked_by.name or 'this model'}, this device and kernel pool"


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
    Outcome.NO_BASELINE: _no_baseline,
    Outcome.CANNOT_TELL: _cannot_tell,
    Outcome.IN_SAMPLE: lambda data: words.one_line(data.verdict.message, 400),
    Outcome.INCOMPLETE: _incomplete,
    Outcome.NOTHING_JUDGED: _nothing_judged,
    Outcome.EXPORT_DIFFERS: lambda data: words.one_line(data.export_differs, 400),
}


_WAYS: dict[Outcome, Callable[[ReportData, CommandLine], list[tuple[str, str]]]] = {
    Outcome.NO_BASELINE: lambda data, command: [
        ("accept them as the baseline", command.resumed("--update-baseline"))
    ],
    Outcome.CANNOT_TELL: lambda data, command: [("settle it", one) for one in wording.settling(data.verdict)],
    Outcome.IN_SAMPLE: lambda data, command: [
        (
            "judge models of this kind on problems that they were not trained on",
            command.resumed("--model=out-of-fold"),
        )
    ],
    Outcome.INCOMPLETE: lambda data, command: [
        *([("measure the rest", command.resumed())] if data.scope.stopped else [])
    ],
    Outcome.EXPORT_DIFFERS: lambda data, command: [("see what differs", "tile-oracle model parity --help")],
}
