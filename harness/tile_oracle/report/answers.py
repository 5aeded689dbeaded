"""What a reader of a report asks first, answered in sentences made from its data."""

from __future__ import annotations

import re

from tile_oracle.pages import words
from tile_oracle.report import wording
from tile_oracle.report.data import ReportData
from tile_oracle.report.lost_time import losing_slices

_WORST = 3


class Sentence(str):
    """A sentence. links: (what it names, where the page shows it)."""

    links: tuple[tuple[str, str], ...]

    def __new__(cls, text: str, *links: tuple[str, str]) -> Sentence:
        """Make one from its text."""
        made = super().__new__(cls, text)
        made.links = links
        return made


def is_it_good(data: ReportData) -> list[str]:
    """Returns what is wrong or missing; then the mean beside the baseline, what one sweep finds and one
    kernel for all, and the time-weighted mean."""
    figures = data.efficiency
    mean = figures.mean_percent
    sentences: list[str] = _wrong_or_missing(data)
    if mean is None:
        return [*sentences, "No pick can be judged: no problem has both an oracle and a measured pick."]
    sentences += [
        f"The picks reach {words.percent(mean)} of the oracle on average over "
        f"{words.count(figures.covered, 'problem')}."
    ]
    beside = [_beside(mean, other, name) for name, other in wording.beside(data)]
    if beside:
        sentences.append(f"That is {words.listed(beside)}.")
    weighted = data.time_weighted_percent
    if weighted is not None:
        failed = data.selection["efficiency"] == 0
        without = f" (without {words.count(int(failed.sum()), 'pick')} that failed)" if failed.any() else ""
        sentences.append(
            f"Weighted by time, they reach {words.percent(weighted)}{without}: all problems together take "
            f"{_longer(weighted)} with the oracles."
        )
    return sentences


def _wrong_or_missing(data: ReportData) -> list[str]:
    """Results that are not right, and problems without an efficiency: they are not in any mean."""
    found: list[str] = []
    wrong, missing = data.statuses["wrong"] + data.statuses.get("flaky", 0), data.not_covered
    if wrong:
        pairs = f"{wrong:,} of {words.count(len(data.final), 'pair')}"
        found.append(Sentence(f"{pairs} {_are(wrong)} wrong.", (pairs, "#pairs")))
    if missing:
        without = sum(map(len, missing.values()))
        problems = f"{without:,} of {words.count(len(data.selection), 'problem')}"
        why = ", ".join(f"{len(ids):,} {reason}" for reason, ids in missing.items())
        said = f"{problems} {_are(without)} not judged: {why}."
        found.append(Sentence(said, (problems, "#problems")))
    return found


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _beside(value: float, other: float, name: str) -> str:
    """1.0 points below the baseline (99.9 %). The difference is that of the values as they are shown."""
    points = words.as_shown(value) - words.as_shown(other)
    where = "level with" if abs(points) < 0.05 else f"{abs(points):.1f} points {_SIDE[points > 0]}"
    return f"{where} {name} ({words.percent(other)})"


_SIDE = {True: "above", False: "below"}


def _longer(weighted: float) -> str:
    """0.5 % longer than; 1.37 times as long as."""
    times = 100.0 / weighted
    if times < 1.0005:
        return "as long as"
    return f"{100.0 * (times - 1.0):.1f} % longer than" if times < 1.3 else f"{times:.2f} times as long as"


def where_it_fails(data: ReportData) -> list[str]:
    """Returns the picks that failed, then the lost time: by kind of problem, each problem counted once, and
    by problem."""
    sentences: list[str] = []
    failed = int((data.selection["efficiency"] == 0).sum())
    if failed:
        picks = words.count(failed, "pick")
        sentences.append(Sentence(f"{picks} failed: no time to compare, efficiency 0.", (picks, "#problems")))
    lost = data.lost
    total = float(lost["lost_us"].sum()) if len(lost) else 0.0
    if not data.efficiency.covered:
        return ["No pick was measured."]
    if not total > 0:
        return sentences or ["Every pick is as fast as the oracle."]
    for place, one in enumerate(losing_slices(lost, _WORST)):
        said = (
            f"{'besides these, ' if place else ''}{one.name}: {words.count(one.problems, 'problem')}, "
            f"mean {words.percent(one.mean_percent)}, {words.percent(one.lost_percent)} of the lost time."
        )
        sentences.append(Sentence(said, (one.name, f"#{kind_anchor(one.name)}")))
    half = int((lost["lost_us"].cumsum() < total / 2).sum()) + 1
    worst = str(lost["problem"].iloc[0])
    first, share = words.one_line(worst), words.percent(100.0 * float(lost["lost_us"].iloc[0]) / total)
    by = "by problem, " if losing_slices(lost, _WORST) else ""  # it is in a kind's share, too
    said = f"{by}{first} alone: {share} of the lost time."
    if half > 1:
        many = f"Half of the lost time is in {half:,} of {words.count(len(lost), 'problem')}"
        said = f"{many}; the largest share is {first} ({share})."
    return [*sentences, Sentence(said, (first, f"#{problem_anchor(worst)}"))]


def kind_anchor(kind: str) -> str:
    """Returns the address of a kind's problems in the page."""
    return "kind-" + re.sub(r"\W+", "-", kind)


def problem_anchor(problem: str) -> str:
    """Returns the address of a problem's kernels in the page."""
    return f"open={problem}"
