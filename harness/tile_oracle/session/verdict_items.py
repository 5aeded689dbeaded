"""The criteria as test items of pytest: `tile_oracle::verdict[mean]` and so on, reported at a session's end.

They are not collected: a verdict is about all pairs, and with pytest-xdist only the controller sees all of
them. They only pass through pytest's reporting hooks, and count, fail and appear in JUnit like any test.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tile_oracle.judge.criteria import Criterion
from tile_oracle.pages import words
from tile_oracle.report import wording
from tile_oracle.report.data import ReportData
from tile_oracle.session.items import SUITE_ID
from tile_oracle.session.pytest_private import TerminalRepr
from tile_oracle.terminal.text_table import first_few

if TYPE_CHECKING:
    from tile_oracle.session.pytest_private import TerminalWriter

CRITERION_NAMES = ("mean", "median", "P10", "largest loss", "coverage", "new failures")
"""The names of a verdict's criteria (tile_oracle.judge.verdict.judge)."""

_OF_EFFICIENCY = ("mean", "median", "P10", "largest loss")
"""The criteria that the losses of single problems explain."""

_NAMED = 5
_SHOWN_POINTS = 0.005


@dataclass(frozen=True)
class _Crash:
    """The location and message that `--tb=line`, the short summary and JUnit show."""

    message: str
    path: str = ""
    lineno: int = 0

    def __str__(self) -> str:
        return self.message


class CriterionRepr(TerminalRepr):
    """Why a criterion failed: one line, followed by details."""

    def __init__(self, message: str, details: Sequence[str]) -> None:
        self.reprcrash = _Crash(message)
        self.details = tuple(details)

    def toterminal(self, tw: TerminalWriter) -> None:
        tw.line(self.reprcrash.message, red=True, bold=True)
        for line in self.details:
            tw.line(line)


@dataclass(frozen=True)
class VerdictItem:
    """One criterion as a test. outcome: passed, failed or skipped; reason: why it was skipped."""

    nodeid: str
    outcome: str
    reason: str = ""
    failure: CriterionRepr | None = None
    properties: tuple[tuple[str, object], ...] = ()

    @property
    def name(self) -> str:
        return self.nodeid.rpartition("::")[2]


def item_ids(sets: Sequence[str]) -> list[str]:
    """Returns the node ids of a session's criteria; sets: the names of its problem sets."""
    labels = [f"{one}-" if len(sets) > 1 else "" for one in sets]
    return [f"{SUITE_ID}::verdict[{label}{name}]" for label in labels for name in CRITERION_NAMES]


def verdict_items(nodeids: Sequence[str], data: ReportData, accepted: bool) -> list[VerdictItem]:
    """Returns the items of one problem set. nodeids: from `item_ids`. accepted: --update-baseline has made
    this run the new baseline, so nothing fails."""
    criteria = {criterion.name: criterion for criterion in data.verdict.criteria}
    items: list[VerdictItem] = []
    failed: dict[str, str] = {}
    for name, nodeid in zip(CRITERION_NAMES, nodeids, strict=True):
        criterion = criteria.get(name)
        outcome, reason, failure = "skipped", "", None
        if criterion is None:
            reason = _unapplied(data)
        elif criterion.passed:
            outcome = "passed"
        elif criterion.passed is None:
            reason = criterion.cause or criterion.note or _unapplied(data)
            reason += f"; to settle it: {criterion.command}" if criterion.command else ""
        elif accepted:
            reason = f"{_sentence(criterion)}; --update-baseline has accepted it"
        else:
            outcome = "failed"
            failure = CriterionRepr(_sentence(criterion), list(_details(data, criterion, failed)))
            failed[name] = nodeid.rpartition("::")[2]
        facts = () if criterion is None else _properties(criterion)
        items.append(VerdictItem(nodeid, outcome, reason, failure, facts))
    return items


def report_items(config: pytest.Config, items: Sequence[VerdictItem]) -> None:
    """Pass the items through pytest's hooks, as if they had just run."""
    hook = config.hook
    for item in items:
        path = item.nodeid.partition("::")[0]
        location = (path, None, item.name)
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=location)
        for when in ("setup", "call", "teardown"):
            hook.pytest_runtest_logreport(report=_report(item, when, location))
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=location)


def _report(item: VerdictItem, when: str, location: tuple[str, int | None, str]) -> pytest.TestReport:
    now, is_call = time.time(), when == "call"
    why = (location[0], 0, f"Skipped: {item.reason}") if item.outcome == "skipped" else item.failure
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=location,
        keywords={item.name: 1, "tile_oracle": 1},
        outcome=item.outcome if is_call else "passed",  # type: ignore[arg-type]
        longrepr=why if is_call else None,
        when=when,  # type: ignore[arg-type]
        start=now,
        stop=now,
        user_properties=item.properties,
    )


# ---- messages ---------------------------------------------------------------------------------------


def _unapplied(data: ReportData) -> str:
    return f"{data.verdict.state}: {words.one_line(data.verdict.message, 400)}"


def _sentence(criterion: Criterion) -> str:
    """mean is 95.13 %, must be >= 97.50 % (baseline 98.00 %)."""
    value, baseline, limit, _ = wording.comparison(criterion)
    if criterion.value is None:
        return f"{criterion.name}: {criterion.note}"
    text = f"{criterion.name} is {value}, must be {limit}"
    if criterion.unit == "%":
        text += f" (baseline {baseline})"
    if criterion.low is not None and criterion.high is not None:
        sure = f"{100 * criterion.confidence:.0f} % " if criterion.confidence else ""
        text += f"; {sure}interval of the change {criterion.low:+.2f} to {criterion.high:+.2f} points"
    return text + (f"; {criterion.note}" if criterion.note else "")


def _details(data: ReportData, criterion: Criterion, failed: Mapping[str, str]) -> Iterator[str]:
    """Yields what stands below a failed criterion. failed: name -> item of those that failed before, whose
    details are not repeated."""
    verdict = data.verdict
    if criterion.name == "new failures":
        failures = [f"{one.status}  {wording.failure_line(one)}" for one in verdict.new_failures]
        yield from _listed(failures, "failures")
    elif criterion.name == "coverage":
        named = [words.one_line(problem) for problem in verdict.newly_uncovered]
        yield from _listed(named, "covered in the baseline, and not now")
    else:
        shown = next((item for name, item in failed.items() if name in _OF_EFFICIENCY), None)
        if shown is None:
            yield from _listed(_losses(data), "largest losses (baseline -> now)")
        else:
            yield f"largest losses: see {shown}"
    if failed:
        return
    yield "see also"
    if data.run.folder:
        yield f"  report    {words.one_line(data.run.folder, 1000)}/report.html"
    if data.run.baseline_file:
        yield f"  baseline  {words.one_line(data.run.baseline_file, 1000)}"


def _losses(data: ReportData) -> list[str]:
    """Returns the problems that lost most against the baseline, with their picks."""
    then = data.baseline.efficiencies if data.baseline is not None else {}
    lost = []
    for row in wording.rows(data.covered):
        before, now = 100.0 * (then.get(row["problem"]) or 0.0), 100.0 * row["efficiency"]
        if before - now > _SHOWN_POINTS:
            lost.append((before - now, before, now, row))
    lost.sort(key=lambda one: (-one[0], one[3]["problem"]))
    return [
        f"{before:.1f} % -> {now:.1f} %  {words.one_line(row['problem'])}: "
        f"pick {words.short_name(row['pick_kernel'])}, "
        f"oracle {words.short_name(row['oracle_kernel'])}"
        for _, before, now, row in lost
    ]


def _listed(texts: Sequence[str], heading: str) -> Iterator[str]:
    if not texts:
        return
    yield heading
    yield from (f"  {text}" for text in first_few(texts, _NAMED))


def _properties(criterion: Criterion) -> tuple[tuple[str, object], ...]:
    found = (("value", criterion.value), ("baseline", criterion.baseline), ("limit", criterion.limit))
    numbers = tuple((name, f"{value:.6g}") for name, value in found if value is not None)
    return (*numbers, ("unit", criterion.unit))
