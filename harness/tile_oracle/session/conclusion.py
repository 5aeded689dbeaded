"""The end of a session: from the run's records to verdicts, reports and baselines."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from tile_oracle.errors import GateError, RecordError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.judge.baseline import make_baseline, save_baseline
from tile_oracle.model.made_by import MadeBy, travel_note
from tile_oracle.problem_set import ProblemSet
from tile_oracle.process.arrow_memory import give_back
from tile_oracle.record.not_built import not_built
from tile_oracle.report.data import (
    THROTTLED,
    TIME_WENT,
    Candidates,
    Extrapolating,
    ReportData,
    RunInfo,
    Scope,
    Training,
    analyse,
)
from tile_oracle.report.files import write_report
from tile_oracle.session.beside import beside, exports_differ, reasons_of_picks
from tile_oracle.session.models import (
    NONE,
    ModelChoice,
    baseline_file,
    baseline_for,
    baseline_place,
    held_of,
    judged,
    ranges_of,
)
from tile_oracle.session.outcome import Outcome
from tile_oracle.session.plan import set_name, without
from tile_oracle.session.session import Session
from tile_oracle.session.time_left import where_time_went
from tile_oracle.training.extrapolation import extrapolating_picks
from tile_oracle.version import __version__

SUSPECTS = "suspects.csv"


@dataclass(frozen=True)
class Conclusion:
    """One problem set's report and outcomes. baseline_note: what was done with the baseline, "" for nothing.
    accepted: this run is the new baseline. of_each: the outcomes of each picker, the judged one first."""

    data: ReportData
    baseline_note: str = ""
    accepted: bool = False
    of_each: tuple[frozenset[Outcome], ...] = ()

    @property
    def outcomes(self) -> frozenset[Outcome]:
        """PASSED alone, or all that keep one of the pickers from passing."""
        found = frozenset[Outcome]().union(*self.of_each)
        return found - {Outcome.PASSED} or found

    def named(self, outcome: Outcome) -> list[str]:
        """Returns the pickers that have an outcome; none of a single one."""
        each = zip(self.data.pickers, self.of_each, strict=False)
        return [one.name for one, has in each if outcome in has] if len(self.of_each) > 1 else []

    def of_outcome(self, outcome: Outcome) -> ReportData:
        """Returns the report of the first picker that has an outcome."""
        reports = (self.data, *self.data.others)
        return next(one for one, has in zip(reports, self.of_each, strict=True) if outcome in has)


def conclude(
    session: Session,
    stopped: str,
    selected: Mapping[str, int],
    analysed: Mapping[str, ReportData] | None = None,
) -> list[Conclusion]:
    """Analyses the run's records and writes the reports: into the run's folder, or for several sets into one
    folder per set below it.

    stopped: why the session ended early, or "". selected: number of requested pairs by problem id. analysed:
    reports on the same records by problem set, which are reused. Raises HarnessError.
    """
    run = session.run
    if run is None or not run.has_files:
        return []
    known = analysed or {}
    records = session.records(run) if stopped or not known else None
    parts = tuple(zip(session.pickers, session.plan.sets, strict=True))
    reports = [
        known[part.name]
        if records is None
        else analyse_set(session, records, choices, part, stopped, selected, known.get(part.name))
        for choices, part in parts
    ]
    # Reports need the settled records alone, and as much memory as all records have.
    records = None
    session.forget_records()
    give_back()
    conclusions = []
    for (choices, part), data in zip(parts, reports, strict=True):
        folder = Path(data.run.folder)
        write_report(folder, data)
        write_suspects(folder, data)
        ends = []
        for choice, one in zip(choices, (data, *data.others), strict=True):
            note, accepted = _update_baseline(session, part, choice, one)
            found = outcomes_of(one, accepted, asked=session.is_judged)
            if session.target.interpreted:
                found = found - {Outcome.PASSED} | {Outcome.NOT_TIMED}
            ends.append((note, accepted, found))
        told = "\n".join(note for note, _, _ in ends if note)
        conclusions.append(Conclusion(data, told, ends[0][1], tuple(found for _, _, found in ends)))
    return conclusions


def analyse_set(
    session: Session,
    records: pd.DataFrame,
    choices: Sequence[ModelChoice],
    part: ProblemSet,
    stopped: str,
    selected: Mapping[str, int],
    before: ReportData | None = None,
) -> ReportData:
    """Returns one problem set's report, from the run's records: of the first picker, with the others beside
    it.

    before: an earlier report of this run, whose rankings and baseline are kept, because more records must not
    change the picks. Raises HarnessError.
    """
    of_set = records["problem"].isin({problem.id for problem in part.problems})
    own = records if of_set.all() else records[of_set]
    final = session.settled(own) if own is records else None
    reports: list[ReportData] = []
    for place, choice in enumerate(choices):
        earlier = None if before is None else (before, *before.others)[place]
        reports.append(_judged(session, own, choice, part, stopped, selected, earlier, final))
        final = reports[-1].final
    data, *others = reports
    spent = session.elapsed_s, session.workers, session.pytest_s
    went = where_time_went(records, session.began_at, *spent)
    run = replace(data.run, environment={**data.run.environment, **({TIME_WENT: went} if went else {})})
    data = replace(data, run=run, others=tuple(others), reasons=reasons_of_picks(choices[0], own, data))
    plan = without(session.plan, session.lacking | not_built(own))
    selections = {choice.name: one.selection for choice, one in zip(choices, reports, strict=True)}
    changes: tuple[str, ...] = ()
    if others:
        from tile_oracle.comparison.wording import paragraphs

        changes = paragraphs(selections, own)
    others_figures = beside(choices, plan, part, own, session.target.arch, data)
    return replace(data, beside=others_figures, changes=changes)


def _judged(
    session: Session,
    own: pd.DataFrame,
    choice: ModelChoice,
    part: ProblemSet,
    stopped: str,
    selected: Mapping[str, int],
    before: ReportData | None,
    final: pd.DataFrame | None,
) -> ReportData:
    """Returns one picker's report on the records of a problem set."""
    options, plan = session.options, session.plan
    assert session.run is not None
    several = len(plan.sets) > 1
    folder = session.run.folder / set_name(part, plan.sets) if several else session.run.folder
    ids = {problem.id for problem in part.problems}
    device = _most_common(own, "device")
    lacking = session.lacking | not_built(own)
    if before is None:
        baseline = baseline_for(choice, part, device, options, session.target) if device else None
        picker = judged(choice, held_of(choice, baseline, options))
        rankings, ranked_by = picker.rank(part.problems, without(plan, lacking).kernels, own)
        ranked_by = replace(ranked_by, considered=choice.considered())
        give_back()
    else:
        rankings, ranked_by, baseline = before.rankings, before.ranked_by, before.baseline
    all_pairs = sum(len(plan.kernels(problem)) for problem in part.problems)
    planned = sum(selected.get(problem_id, 0) for problem_id in ids)
    measured = int((~own.duplicated(["problem", "kernel"])).sum())
    left = max(0, planned - measured)
    asked = [problem for problem in part.problems if left and selected.get(problem.id)]
    unrecorded = min(left, sum(session.unrecorded(one, plan.asked(one)) for one in asked))
    data = analyse(
        own,
        part.problems,
        rankings,
        run=_run_info(session, part, own, folder, device, choice),
        ranked_by=ranked_by,
        scope=Scope(
            max(planned, measured),
            measured,
            max(0, all_pairs - max(planned, measured)),
            stopped,
            unrecorded,
        ),
        baseline=baseline,
        criteria=session.criteria,
        training=_training(session, choice, own, ids),
        candidates=_candidates(session, choice, part, lacking),
        settled_by=session.settling_command(session.run, folder / SUSPECTS),
        final=final,
    )
    give_back()
    travel = travel_note(dict.fromkeys(choice.folders.values()), MadeBy.of_records(own))
    picked = data.selection.dropna(subset=["pick_kernel"])
    picks = dict(zip(picked["problem"].astype(str), picked["pick_kernel"].astype(str), strict=True))
    outside = extrapolating_picks(ranges_of(choice), part.problems, picks)
    extrapolating = Extrapolating(outside.note, outside.why, travel)
    return replace(data, extrapolating=extrapolating, export_differs=exports_differ(choice, part))


def write_suspects(folder: Path, data: ReportData) -> None:
    """Writes suspects.csv for --pairs: the picks of every picker, oracles and the baselines' picks to measure
    again to decide what is open; no file if nothing is. Raises RecordError."""
    found: dict[tuple[str, str], None] = {}
    for one in (data, *data.others):
        accepted = one.baseline.picks if one.baseline is not None else {}
        rows = one.selection[one.selection["problem"].isin(one.verdict.suspects)]
        for row in rows.to_dict("records"):
            before = accepted.get(row["problem"])
            named = (row["pick_kernel"], row["oracle_kernel"], before and before.pick)
            found |= dict.fromkeys((row["problem"], kernel) for kernel in named if isinstance(kernel, str))
    pairs = pd.DataFrame(list(found), columns=["problem", "kernel"])
    path = folder / SUSPECTS
    with disk_errors_as(RecordError, f"{path} cannot be written"):
        if len(pairs):
            write_atomically(path, pairs.to_csv(index=False).encode("utf-8"))
        else:
            path.unlink(missing_ok=True)


def outcomes_of(data: ReportData, accepted: bool, asked: bool) -> frozenset[Outcome]:
    """Returns the outcomes of a set: PASSED alone, or all that keep the session from passing.

    accepted: this run is the new baseline, so it cannot be worse than the baseline. asked: whether a verdict
    is; without one a run is incomplete only where pairs were skipped that no budget left out.
    """
    verdict, found = data.verdict, set[Outcome]()
    if not asked:
        skipped = data.scope.left and not data.scope.stopped
        return frozenset({Outcome.INCOMPLETE if skipped else Outcome.PASSED})
    if data.export_differs:
        found.add(Outcome.EXPORT_DIFFERS)
    if not data.efficiency.covered:
        found.add(Outcome.NOTHING_JUDGED)
    if not data.scope.complete and (data.scope.stopped or not accepted):
        found.add(Outcome.INCOMPLETE)
    if not accepted:
        found.add(Outcome.of_state(verdict.state))
    return frozenset(found - {Outcome.PASSED} or {Outcome.PASSED})


def _update_baseline(
    session: Session, part: ProblemSet, choice: ModelChoice, data: ReportData
) -> tuple[str, bool]:
    """Returns the message on the baseline, and whether it was written: only if it was asked for."""
    if not session.options.update_baseline:
        return "", False
    path, by = baseline_file(choice, part, data.run.device, session.options), data.ranked_by
    try:
        baseline = make_baseline(
            _out_of_sample(data),
            data.final,
            previous=data.baseline,
            margins=data.margins,
            ranked_by=by.identity or f"{by.kind}: {by.name} ({by.detail})",
            model=choice.name,
            model_kind=by.kind,
            target=session.measured_on,
            arch=session.target.arch,
            device=data.run.device,
            problem_set=part.name,
            problem_set_sha256=part.sha256,
            kernel_set=session.options.set_name,
            created=data.run.created,
            harness_version=__version__,
        )
    except GateError as error:
        return f"baseline not updated: {error}", False
    save_baseline(baseline, path)
    return f"baseline written: {path}", True


def _out_of_sample(data: ReportData) -> pd.DataFrame:
    """Returns the selection without in-sample efficiencies, which a baseline must not demand."""
    if data.training.counted:
        return data.selection
    seen = data.selection["in_sample"]
    return data.selection.assign(coverage=data.selection["coverage"].where(~seen, "in-sample"))


def _training(session: Session, choice: ModelChoice, own: pd.DataFrame, ids: set[str]) -> Training:
    """Returns the training problems of the models under test. Out-of-fold predictions are never in-sample."""
    if not choice.folders:
        return Training(known=choice.picker.known)
    from tile_oracle.training.trained_on import overlap

    found = overlap(set(choice.folders.values()), own, ids)
    counted = Outcome.IN_SAMPLE in session.options.allow
    return Training(found.problems, found.same_measurements, found.known, counted)


def _candidates(
    session: Session, choice: ModelChoice, part: ProblemSet, lacking: frozenset[str]
) -> Candidates:
    """Returns how the pool compares with the recorded kernels and the model's training kernels. lacking:
    names of kernels that are not built."""
    plan, kinds = session.plan, {problem.kind for problem in part.problems}
    whole = {kernel.name for problem in part.problems for kernel in plan.kernels(problem)}
    pool = whole - lacking
    trained = None
    listed = session.recorded_kernels()
    recorded = (
        None if listed is None else {kernel.name for kernel in listed if kernel.kind in kinds} - lacking
    )
    if choice.folders:
        from tile_oracle.model.store import kernels_trained_on

        trained = frozenset().union(*map(kernels_trained_on, set(choice.folders.values())))
    return Candidates(
        ranked=len(pool),
        recorded=None if recorded is None else len(recorded),
        recorded_ranked=len(pool & (recorded or set())),
        trained=len(trained) if trained else None,
        trained_ranked=len(pool & (trained or set())),
        not_built=len(whole & lacking),
    )


def _run_info(
    session: Session, part: ProblemSet, own: pd.DataFrame, folder: Path, device: str, choice: ModelChoice
) -> RunInfo:
    options, has_model = session.options, choice.name != NONE
    assert session.run is not None
    command = session.command
    environment = {
        "device": device,
        "driver": _most_common(own, "driver"),
        "toolchain": _most_common(own, "toolchain"),
        "flags": _most_common(own, "flags"),
        "Python": platform.python_version(),
        "machine": platform.machine(),
        **device_conditions(own),
        **session.conditions(),
    }
    return RunInfo(
        name=session.run.name,
        problem_set=part.name,
        problem_set_sha256=part.sha256,
        kernel_set=options.set_name,
        target=session.measured_on,
        arch=session.target.arch,
        device=device,
        replayed=", ".join(map(str, session.sources)),
        harness_version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        environment={name: value for name, value in environment.items() if value},
        options=options.recorded(),
        folder=str(folder),
        baseline_file=str(baseline_place(choice, part, device, options, session.target))
        if device and has_model
        else "",
        accepting=command.resumed("--update-baseline") if options.command else "",
        resuming=command.resumed() if options.command else "",
        out_of_fold=command.resumed("--model=out-of-fold") if options.command else "",
    )


def device_conditions(records: pd.DataFrame) -> dict[str, str]:
    """Minimum and maximum of clocks, temperature and power during the measurements, and how many measurements
    were throttled and why; empty if nothing was read."""
    found: dict[str, str] = {}
    for column, name, unit in (
        ("clock_mhz", "clock", "MHz"),
        ("memory_clock_mhz", "memory clock", "MHz"),
        ("temperature_c", "temperature", "°C"),
        ("power_w", "power", "W"),
    ):
        values = records[column].dropna().astype("float64")
        if len(values):
            found[name] = f"{values.min():.0f} to {values.max():.0f} {unit}"
    known = records["throttled"].dropna()
    throttled = known[known != ""]
    if len(throttled):
        reasons = sorted({reason for reasons in throttled.unique() for reason in reasons.split(", ")})
        found[THROTTLED] = f"{len(throttled):,} of {len(known):,} measurements ({', '.join(reasons)})"
    return found


def _most_common(records: pd.DataFrame, column: str) -> str:
    values = records[column].dropna()
    values = values[values != ""]
    return str(values.mode().iloc[0]) if len(values) else ""
