"""The three questions that a reader of a report asks first, answered in sentences made from its data."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tile_oracle.judge.model import FOLDER
from tile_oracle.judge.verdict import FAILED, PASSED
from tile_oracle.pages import words
from tile_oracle.report import wording
from tile_oracle.report.data import ReportData, RunInfo
from tile_oracle.report.lost_time import losing_slices, lost_times

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
    """What is wrong or missing; then the mean beside the baseline, the noise ceiling and one kernel for all,
    and the time-weighted mean."""
    figures = data.efficiency
    mean = figures.mean_percent
    sentences: list[str] = _wrong_or_missing(data)
    if mean is None:
        return [*sentences, "No pick can be judged: no problem has both an oracle and a measured pick."]
    sentences += [
        f"The picks reach {words.percent(mean)} of the oracle on average over "
        f"{words.count(figures.covered, 'problem')}."
    ]
    judged = next((one for one in data.verdict.criteria if one.name == "mean"), None)
    beside = [
        _beside(mean, other, name)
        for name, other in (
            ("the baseline", None if judged is None else judged.baseline),
            ("the noise ceiling", data.repeatability_percent),
            ("the best single kernel for all problems", data.fixed_mean_percent),
            *(
                (wording.beside_name(one, data), one.mean_percent)
                for one in data.beside
                if one.mean_percent is not None
            ),
        )
        if other is not None
    ]
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
    """1.0 points below the noise ceiling (99.9 %). The difference is that of the values as they are shown."""
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
    """The picks that failed, then the lost time: by kind of problem, each problem counted once, and by
    problem."""
    sentences: list[str] = []
    failed = int((data.selection["efficiency"] == 0).sum())
    if failed:
        picks = words.count(failed, "pick")
        sentences.append(Sentence(f"{picks} failed: no time to compare, efficiency 0.", (picks, "#problems")))
    lost = lost_times(data.selection)
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
    said = f"{first} alone: {share} of the lost time."
    if half > 1:
        many = f"Half of the lost time is in {half:,} of {words.count(len(lost), 'problem')}"
        said = f"{many}; the largest share is {first} ({share})."
    return [*sentences, Sentence(said, (first, f"#{problem_anchor(worst)}"))]


def kind_anchor(kind: str) -> str:
    """The address of a kind's problems in the page."""
    return "kind-" + re.sub(r"\W+", "-", kind)


def problem_anchor(problem: str) -> str:
    """The address of a problem's kernels in the page."""
    return f"open={problem}"


def _accepting(run: RunInfo) -> str:
    """The command of a run that does not name its own, as far as the report knows its options."""
    target = shlex.quote("replay" if run.replayed else run.target or "auto")
    return f"pytest --problem-set {shlex.quote(run.problem_set)} --target {target} --update-baseline"


def _from_here(folder: str) -> str:
    """A folder below the working directory by its relative path, in which the session's own command is."""
    path, here = Path(folder), Path.cwd()
    return str(path.relative_to(here)) if folder and path.is_relative_to(here) else folder


def next_commands(data: ReportData) -> list[tuple[str, str]]:
    """(reason, command) for what to do next. The commands are quoted for a shell."""
    run = data.run
    found = [("to settle the verdict", command) for command in wording.settling(data.verdict)]
    if run.folder:
        records = shlex.quote(_from_here(run.folder))
        if data.efficiency.covered:
            found = _of_failures(data, records) + found + _of_picks(data, records)
        found += _of_oracles(data, records)
        if data.verdict.state == FAILED and data.baseline is not None and run.accepting:
            found += [("to accept the loss as the new baseline, if it is intended", run.accepting)]
    return list(dict.fromkeys(found))


def _of_failures(data: ReportData, records: str) -> list[tuple[str, str]]:
    """How to look into a verdict that failed."""
    if data.verdict.state != FAILED or data.baseline is None or not data.run.baseline_file:
        return []
    compare = (
        f"tile-oracle runs compare {shlex.quote(_from_here(data.run.baseline_file))} {records} --by pick"
    )
    return [("to see which picks became slower, and which changed", compare)]


def _of_picks(data: ReportData, records: str) -> list[tuple[str, str]]:
    """How to accept the picks, and to measure those that were not."""
    run, verdict, found = data.run, data.verdict, []
    rest = bool(data.scope.left) and not run.replayed
    if rest and run.resuming:
        found.append(("to measure the rest", run.resuming))
    better = any(
        one.baseline is not None and one.value is not None and one.unit == "%" and one.value > one.baseline
        for one in verdict.criteria
    )
    accepted = "--update-baseline" in run.options or rest
    if run.problem_set and not accepted and (data.baseline is None or (verdict.state == PASSED and better)):
        found.append(("to accept these picks as the baseline", run.accepting or _accepting(run)))
    if data.ranked_by.kind == FOLDER and data.efficiency.covered < data.efficiency.problems:
        model = shlex.quote(data.ranked_by.name)
        # The problems that were not reached are not in the records.
        among = f" --problem-set {shlex.quote(run.problem_set)}" if rest and run.problem_set else ""
        suggest = f"tile-oracle runs suggest {records} --model {model}{among} --csv next.csv"
        found.append(("to find the pairs worth measuring next", suggest))
    return found


def _of_oracles(data: ReportData, records: str) -> list[tuple[str, str]]:
    """How to use the measurements: by themselves where picks lose against them, and to train."""
    run, found = data.run, []
    judged = bool(data.efficiency.covered)
    loses = (lost_times(data.selection)["lost_us"] > 0).any() if judged else True
    if run.target and loses and data.selection["oracle_tflops"].notna().any():
        tune = f"tile-oracle tune --from-records {records} --target {shlex.quote(run.target)}"
        found.append(("to let tile-oracle pick use the measured best kernels", tune))
        if (data.verdict.state == FAILED or data.ranked_by.kind != FOLDER) and not run.replayed:
            found.append(
                ("to train a model on this run", f"tile-oracle model train {records} -o models/next")
            )
    return found
