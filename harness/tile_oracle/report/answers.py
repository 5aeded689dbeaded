"""What a reader of a report asks first, answered in sentences made from its data, and what to do next."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.judge.picker import FOLDER
from tile_oracle.judge.selection import NOT_MEASURED, PICK_NOT_MEASURED
from tile_oracle.judge.verdict import FAILED, IN_SAMPLE, NO_BASELINE, PASSED
from tile_oracle.pages import words
from tile_oracle.report import wording
from tile_oracle.report.data import ReportData, RunInfo
from tile_oracle.report.lost_time import losing_slices


@dataclass(frozen=True)
class Step:
    """A command, quoted for a shell, and what it is for. about: the outcome that it answers, by its name for
    --allow; "" for what a run is good for besides."""

    reason: str
    command: str
    about: str = ""


def next_steps(data: ReportData) -> list[Step]:
    """Returns what can be done next where the run was made, the most urgent first."""
    run = data.run
    found = [
        Step("to settle the verdict", command, "cannot-tell") for command in wording.settling(data.verdict)
    ]
    if data.export_differs:
        found.append(Step("to see what differs", "tile-oracle model export --help", "export-differs"))
    if run.folder:
        records = shlex.quote(_from_here(run.folder))
        if data.efficiency.covered:
            found = _of_failures(data, records) + found
        found += _of_picks(data, records)
        found += _of_oracles(data, records)
        if data.verdict.state == FAILED and data.baseline is not None and run.accepting:
            why = "to accept the loss as the new baseline, if it is intended"
            found.append(Step(why, run.accepting, "failed"))
    return list(dict.fromkeys(found))


def _from_here(folder: str) -> str:
    """Returns a folder below the working directory by its relative path, in which the session's own command
    is."""
    path, here = Path(folder), Path.cwd()
    return str(path.relative_to(here)) if folder and path.is_relative_to(here) else folder


def _of_failures(data: ReportData, records: str) -> list[Step]:
    """Returns how to look into a verdict that failed."""
    if data.verdict.state != FAILED or data.baseline is None or not data.run.baseline_file:
        return []
    compared = f"{shlex.quote(_from_here(data.run.baseline_file))} {records}"
    command = f"tile-oracle runs compare {compared} --by pick"
    return [Step("to see which picks became slower, and which changed", command, "failed")]


def _of_picks(data: ReportData, records: str) -> list[Step]:
    """Returns how to go on, to accept the picks, and to measure those that were not. A run that is not whole,
    or is judged by what its model has seen, is not accepted."""
    run, verdict, found = data.run, data.verdict, []
    if data.scope.left and not run.replayed and run.resuming:
        found.append(Step("to measure the rest", run.resuming, "incomplete"))
    if verdict.state == IN_SAMPLE and run.out_of_fold:
        why = "to judge models of this kind on problems that they were not trained on"
        found.append(Step(why, run.out_of_fold, "in-sample"))
    better = any(
        one.baseline is not None and one.value is not None and one.unit == "%" and one.value > one.baseline
        for one in verdict.criteria
    )
    whole = data.scope.complete and data.efficiency.covered and verdict.state != IN_SAMPLE
    lacking = [one.name for one in data.beside if one.state == NO_BASELINE]
    wanted = data.baseline is None or lacking or (verdict.state == PASSED and better)
    if run.problem_set and whole and wanted and "--update-baseline" not in run.options:
        accepting = run.accepting or _accepting(run)
        others = f"the picks of {words.listed(lacking)} as their baselines"
        what = others if data.baseline is not None and lacking else "these picks as the baseline"
        found.append(Step(f"to accept {what}", accepting, "no-baseline"))
    unmeasured = [data.not_covered.get(reason, ()) for reason in (NOT_MEASURED, PICK_NOT_MEASURED)]
    left = data.scope.unrecorded or data.scope.left  # what was left out by choice may be recorded
    if data.ranked_by.kind == FOLDER and any(unmeasured) and left and data.efficiency.covered:
        given = " ".join(map(shlex.quote, run.replayed.split(", "))) if run.replayed else records
        # Problems without any record are not in the records.
        among = f" --problem-set {shlex.quote(run.problem_set)}" if unmeasured[0] and run.problem_set else ""
        suggest = f"tile-oracle runs suggest {given} --model {shlex.quote(data.ranked_by.name)}{among}"
        found.append(Step("to find the pairs worth measuring next", f"{suggest} --csv next.csv"))
    return found


def _accepting(run: RunInfo) -> str:
    """Returns the command of a run that does not name its own, as far as the report knows its options."""
    target = shlex.quote("replay" if run.replayed else run.target or "auto")
    return f"pytest --problem-set {shlex.quote(run.problem_set)} --target {target} --update-baseline"


def _of_oracles(data: ReportData, records: str) -> list[Step]:
    """Returns how to train on the measurements of this machine, where picks lose against them."""
    run = data.run
    if run.replayed or not run.target or not data.selection["oracle_tflops"].notna().any():
        return []
    loses = not data.efficiency.covered or bool((data.lost["lost_us"] > 0).any())
    if not loses or (data.verdict.state != FAILED and data.ranked_by.kind == FOLDER):
        return []
    return [Step("to train a model on this run", f"tile-oracle model train {records} -o models/next")]


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
