"""The names, figures and sentences that all forms of a report share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from tile_oracle.judge.criteria import FAIL, Criterion
from tile_oracle.judge.failures import Failure
from tile_oracle.judge.verdict import FAILED, Verdict
from tile_oracle.pages.words import count, few, one_line, percent, short_name
from tile_oracle.record.final import is_censored
from tile_oracle.record.schema import STATUSES
from tile_oracle.report.data import ReportData
from tile_oracle.report.picker_figures import PickerFigures


def why(row: Mapping[str, Any]) -> str:
    """Returns why a pick falls short of the oracle, from a row of the selection."""
    in_sample = ", in-sample" if row.get("in_sample") else ""
    return _shortfall(row) + in_sample


def _shortfall(row: Mapping[str, Any]) -> str:
    if row["pick_status"] != "ok":
        detail = one_line(row["pick_detail"])
        return f"the pick is {row['pick_status']}" + (f": {detail}" if detail else "")
    if row["pick_kernel"] == row["oracle_kernel"]:
        return "the pick is the oracle"
    parts = [_misjudged("pick", row["pick_predicted_tflops"], row["pick_tflops"])]
    if row.get("pick_at_least_ms", math.nan) > 0:
        most = 100.0 * row["efficiency"] * row["pick_latency_ms"] / row["pick_at_least_ms"]
        parts.append(f"far behind after one run: an efficiency of at most {percent(min(100.0, most))}")
    if pd.isna(row["oracle_rank"]):
        parts.append("oracle not ranked")
    else:
        parts.append(f"oracle ranked {int(row['oracle_rank'])} of {row['kernels_ranked']}")
        parts.append(_misjudged("oracle", row["oracle_predicted_tflops"], row["oracle_tflops"]))
    return ", ".join(part for part in parts if part)


def _misjudged(whose: str, predicted: float, measured: float) -> str:
    if not measured > 0 or pd.isna(predicted):
        return ""
    error = 100.0 * (predicted / measured - 1.0)
    if abs(error) < 2.0:
        return f"{whose} predicted correctly"
    return f"{whose} predicted {abs(error):,.0f} % too {'high' if error > 0 else 'low'}"


def comparison(criterion: Criterion) -> tuple[str, str, str, str]:
    """(value, baseline, limit, outcome) of a criterion. The limit includes >= or <=."""
    unit = {"%": " %", "points": " points", "pairs": ""}[criterion.unit]
    digits = 0 if criterion.unit == "pairs" else 2

    def figure(value: float | None) -> str:
        return "-" if value is None else f"{value:.{digits}f}{unit}"

    side = ">=" if criterion.unit == "%" else "<="
    limit = "-" if criterion.limit is None else f"{side} {figure(criterion.limit)}"
    outcome = "FAIL" if criterion.outcome == FAIL else criterion.outcome
    return figure(criterion.value), figure(criterion.baseline), limit, outcome


def interval(criterion: Criterion) -> str:
    """Returns the interval of a criterion's change, in points; one number if it is known exactly, and "" for
    a plain comparison."""
    if criterion.low is None or criterion.high is None or criterion.confidence is None:
        return ""
    sign = "+" if criterion.unit == "%" else ""
    if criterion.high - criterion.low < 0.005:
        return f"{criterion.low + 0.0:{sign}.2f}"
    return f"{criterion.low:{sign}.2f} to {criterion.high:{sign}.2f}"


def open_lines(verdict: Verdict) -> list[str]:
    """Returns why criteria cannot tell, and the commands that would settle them."""
    doubtful = [one for one in verdict.criteria if one.cause]
    lines = [f"{one.name} cannot tell: {one_line(one.cause, 400)}" for one in doubtful]
    return lines + [f"to settle it: {one_line(command, 1000)}" for command in settling(verdict)]


def settling(verdict: Verdict) -> list[str]:
    """Returns the commands that would settle the criteria that cannot tell."""
    return list(dict.fromkeys(one.command for one in verdict.criteria if one.cause and one.command))


def title(data: ReportData) -> str:
    """Returns a headline: the problems and the device."""
    where = data.run.target or "?"
    if data.run.device:
        where += f" ({one_line(data.run.device, 60)})"
    if data.run.replayed:
        where += ", replayed"
    return f"{one_line(data.run.problem_set, 80) or one_line(data.run.name, 80)} on {where}"


def pairs_sentence(data: ReportData) -> str:
    """Returns how much was measured, how much is left, and why."""
    scope = data.scope
    measured = scope.measured or len(data.final)
    done = "replayed" if data.run.replayed else "measured"
    parts = [f"{count(len(data.selection), 'problem')}, {count(measured, 'pair')} {done}"]
    if censored := int(is_censored(data.final).sum()):
        parts.append(f"{censored:,} of them far behind after one checked run")
    if scope.unrecorded:
        parts.append(f"{scope.unrecorded:,} never recorded")
    if scope.left:
        parts.append(f"{count(scope.left, 'pair')} left")
    if scope.deselected:
        parts.append(f"{scope.deselected:,} deselected")
    sentence = ", ".join(parts)
    if scope.stopped:
        sentence += f"; stopped early: {one_line(scope.stopped)}"
    return sentence


def beside(data: ReportData) -> list[tuple[str, float]]:
    """(name, mean efficiency in percent) of what stands beside the judged model: the baseline, what one sweep
    finds, one kernel for all, and the other pickers, with the number of problems where that is another."""
    judged = next((one for one in data.verdict.criteria if one.name == "mean"), None)
    found = (
        ("the baseline", None if judged is None else judged.baseline),
        ("the winners of one sweep", data.repeatability_percent),
        ("the best single kernel", data.fixed_mean_percent),
        *((_said_beside(one, data), one.mean_percent) for one in data.beside if one.name != "single"),
    )
    return [(name, value) for name, value in found if value is not None]


def _said_beside(one: PickerFigures, data: ReportData) -> str:
    name = "the roofline" if one.name == "roofline" else one.name
    same = one.problems == data.efficiency.covered
    return name if same else f"{name}, on {count(one.problems, 'problem')}"


def coverage_sentence(data: ReportData) -> str:
    """Covered problems, and the reasons for the rest."""
    figures = data.efficiency
    text = (
        f"{figures.covered:,} of {count(figures.problems, 'problem')} ({percent(figures.coverage_percent)})"
    )
    rest = [f"{len(problems):,} {reason}" for reason, problems in data.not_covered.items()]
    return text + (f"; {', '.join(rest)}" if rest else "")


def status_counts(data: ReportData) -> list[tuple[str, int]]:
    """(status, pairs) of the statuses that occur, ok first."""
    return [(status, data.statuses[status]) for status in STATUSES if data.statuses.get(status)]


def rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Returns the rows of a table as mappings."""
    names = [str(name) for name in frame]
    # tolist: to iterate over a column of texts takes twenty times as long.
    columns = (column.tolist() for _, column in frame.items())
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def failure_line(one: Failure) -> str:
    """Returns kernel, problem and detail of a failure."""
    return f"{short_name(one.kernel)} on {one_line(one.problem)}" + (
        f": {one_line(one.detail)}" if one.detail else ""
    )


def by_status(failures: Iterable[Failure]) -> dict[str, list[Failure]]:
    """Failures grouped by status, in the order of the statuses."""
    groups: dict[str, list[Failure]] = {}
    for failure in failures:
        groups.setdefault(failure.status, []).append(failure)
    return {status: groups[status] for status in STATUSES if status in groups}


def verdict_notes(data: ReportData) -> list[str]:
    """Notes on the verdict: changes of the set, lost coverage, healed kernels."""
    verdict = data.verdict
    notes = [*scope_notes(data), *verdict.notes]
    if verdict.criteria:
        both = count(verdict.compared, "problem")
        notes.insert(0, f"mean, median, P10 and largest loss: over the {both} that the baseline has, too")
    for problems, what in (
        (verdict.new_problems, "not in the baseline"),
        (verdict.gone_problems, "only in the baseline"),
        (verdict.newly_uncovered, "covered in the baseline, not now"),
    ):
        if problems:
            notes.append(f"{count(len(problems), 'problem')} {what}: {few(problems)}")
    if verdict.undecided:
        notes.append(
            f"{count(len(verdict.undecided), 'problem')} undecided, the pick is too noisy to be timed: "
            f"{few(verdict.undecided)}"
        )
    if verdict.healed:
        healed = [f"{failure.kernel} on {failure.problem}" for failure in verdict.healed]
        notes.append(
            f"{count(len(healed), 'known failure')} healed: {few(healed)}; --update-baseline accepts that"
        )
    if data.baseline is not None and data.run.problem_set_sha256:
        then = data.baseline.problem_set_sha256
        if then and then != data.run.problem_set_sha256:
            notes.append("the problem set has changed since the baseline was made")
    partly = data.selection[
        (data.selection["kernels_measured"] > 0)
        & (data.selection["kernels_measured"] < data.selection["kernels_ranked"])
    ]
    if len(partly):
        notes.append(
            f"{count(len(partly), 'problem')} measured in part: the oracle is the best measured kernel"
        )
    flattered = int(data.selection["pick_flattered"].sum())
    if flattered:
        notes.append(
            f"{count(flattered, 'pick')} measured once, and faster than the oracle measured again: "
            "compared by both times in the sweep"
        )
    return notes


def scope_notes(data: ReportData) -> list[str]:
    """Notes on what flatters the model: in-sample problems, and small pools."""
    notes, training, pool = [], data.training, data.candidates
    if data.in_sample:
        same = training.same_measurements
        by = f" ({same:,} of them by these very measurements)" if same else ""
        used = (
            "counted in the verdict, as --allow in-sample asks"
            if training.counted
            else "left out of the verdict"
        )
        of_all = f"{data.in_sample:,} of {count(data.efficiency.covered, 'problem')}"
        notes.append(f"in-sample: the model was trained on {of_all}{by}: {used}")
    if not training.known:
        notes.append("the model does not record its training problems: whether it is in-sample is unknown")
    if data.extrapolating.note:
        notes.append(one_line(data.extrapolating.note, 300))
    if data.extrapolating.travel:
        notes.append(one_line(data.extrapolating.travel, 500))
    if data.alone:
        notes.append(
            f"{count(len(data.alone), 'problem')} with one candidate, which is 100 % by construction: "
            f"left out of the verdict"
        )
    if pool.not_built:
        notes.append(
            f"{count(pool.not_built, 'kernel')} of the kernel set not built by this checkout: the "
            f"candidates are the other {pool.ranked:,}"
        )
    if pool.recorded is not None and pool.recorded_ranked < pool.recorded:
        notes.append(
            f"only {pool.recorded_ranked:,} of {count(pool.recorded, 'recorded kernel')} were candidates, "
            "so this is easier than the full pool"
        )
    if pool.recorded is not None and pool.ranked > pool.recorded_ranked:
        never = count(pool.ranked - pool.recorded_ranked, "candidate")
        notes.append(f"{never} never recorded: a pick of one has no efficiency")
    if pool.trained is not None and pool.trained_ranked < pool.trained:
        notes.append(
            f"only {pool.trained_ranked:,} of the model's {count(pool.trained, 'kernel')} were candidates, "
            "so this is easier than the full pool"
        )
    return notes


def headline(data: ReportData) -> str:
    """Returns the verdict in one line."""
    state = data.verdict.state
    return f"{state.upper() if state == FAILED else state}: {data.verdict.message}"
