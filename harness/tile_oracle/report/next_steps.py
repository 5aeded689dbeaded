"""What to do next: the commands that pages, summaries and the end of a session propose."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.judge.picker import FOLDER
from tile_oracle.judge.selection import NOT_MEASURED, PICK_NOT_MEASURED
from tile_oracle.judge.verdict import FAILED, IN_SAMPLE, NO_BASELINE, PASSED
from tile_oracle.pages import words
from tile_oracle.report import wording
from tile_oracle.report.data import ReportData, RunInfo


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
