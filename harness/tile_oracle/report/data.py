"""The data behind all reports of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.judge.baseline import Baseline
from tile_oracle.judge.criteria import Criteria
from tile_oracle.judge.noise import Margin, accepted_margins, margins
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.picker import Origin
from tile_oracle.judge.ranking import Ranking
from tile_oracle.judge.scope import part_to_judge
from tile_oracle.judge.selection import COVERED, Efficiency, fixed_kernels, kernel_table, select, summarise
from tile_oracle.judge.slices import classes_of, slice_table
from tile_oracle.judge.verdict import Verdict, judge
from tile_oracle.model.feature_share import PickReason
from tile_oracle.problem import Problem
from tile_oracle.process.arrow_memory import give_back
from tile_oracle.record.final import final_measurements
from tile_oracle.record.schema import STATUSES
from tile_oracle.report.lost_time import lost_times, time_weighted_percent
from tile_oracle.report.picker_figures import PickerFigures, picker_figures
from tile_oracle.report.sources import sources_by_problem

THROTTLED, TIME_WENT = "throttled", "where the time went"
"""The keys of RunInfo.environment for the number of throttled measurements (absent without any), and for the
shares of the session's time."""


@dataclass(frozen=True)
class Scope:
    """How many of the requested pairs were measured. stopped: why the session ended early ("the budget of 10m
    is spent", "interrupted"), "" if it did not. deselected: pairs left out by -k and the like. unrecorded:
    pairs that the replayed records do not have."""

    planned: int = 0
    measured: int = 0
    deselected: int = 0
    stopped: str = ""
    unrecorded: int = 0

    @property
    def left(self) -> int:
        return max(self.planned - self.measured - self.unrecorded, 0)

    @property
    def complete(self) -> bool:
        """Whether every pair of the problem set and kernel set was measured; in a replay, every pair
        that was recorded."""
        return not self.left and not self.deselected and not self.stopped


@dataclass(frozen=True)
class Training:
    """The model's training problems, as far as they affect the verdict. in_sample: judged problems that it
    was trained on; same_measurements: how many of them are judged by the measurements it was trained on.
    known: whether its training problems are known. counted: in_sample counts in the verdict (--allow
    in-sample)."""

    in_sample: tuple[str, ...] = ()
    same_measurements: int = 0
    known: bool = True
    counted: bool = False


@dataclass(frozen=True)
class Extrapolating:
    """Picks outside of the model's training range. note: their number, in words, "" for none. picks: problem
    id -> why. travel: in what the compiler, device or driver differs from the model's, in one line, "" if
    nothing known does."""

    note: str = ""
    picks: Mapping[str, str] = field(default_factory=dict)
    travel: str = ""


@dataclass(frozen=True)
class Candidates:
    """The size of the pool, in kernels. ranked: the candidates. recorded: those of the
    replayed records, trained: those that the model was trained on; None where there is no such thing.
    recorded_ranked, trained_ranked: how many of them were ranked. not_built: those of the kernel set that the
    library's checkout does not build, among which no model chooses."""

    ranked: int = 0
    recorded: int | None = None
    recorded_ranked: int = 0
    trained: int | None = None
    trained_ranked: int = 0
    not_built: int = 0


@dataclass(frozen=True)
class RunInfo:
    """What was run, for the reports and the baseline. environment: device, driver, toolchain, versions.
    options: the options, as given. replayed: the replayed files, "" for a run that measured. accepting: the
    command that accepts this run as the baseline, resuming: that measures what is left, out_of_fold: that
    judges by models of other problems; "" if unknown."""

    name: str
    problem_set: str = ""
    problem_set_sha256: str = ""
    kernel_set: str = ""
    target: str = ""
    arch: str = ""
    device: str = ""
    harness_version: str = ""
    created: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    baseline_file: str = ""
    replayed: str = ""
    accepting: str = ""
    resuming: str = ""
    out_of_fold: str = ""


@dataclass(frozen=True, eq=False)
class ReportData:
    """The tables and metrics of one run. The functions named here document the columns.

    final: as `settled` makes it. oracles: of find_oracles. selection: judge.selection.select. kernels:
    judge.selection.kernel_table. slices: slice_table. rankings: as given, or None. statuses: pairs by
    status. fixed_mean_percent: mean efficiency of one kernel for all (judge.selection.fixed_kernels).
    repeatability_percent: mean efficiency of the sweep's own winners, measured again, None where none
    were: no model can be shown to beat it. margins: how well each pick's
    efficiency is known (tile_oracle.judge.noise).
    """

    run: RunInfo
    ranked_by: Origin
    scope: Scope
    criteria: Criteria
    baseline: Baseline | None
    final: pd.DataFrame
    oracles: pd.DataFrame
    selection: pd.DataFrame
    kernels: pd.DataFrame
    slices: pd.DataFrame
    rankings: pd.DataFrame | None
    statuses: Mapping[str, int]
    efficiency: Efficiency
    fixed_mean_percent: float | None
    repeatability_percent: float | None
    margins: Mapping[str, Margin]
    verdict: Verdict
    training: Training = field(default_factory=Training)
    candidates: Candidates = field(default_factory=Candidates)
    extrapolating: Extrapolating = field(default_factory=Extrapolating)
    reasons: Mapping[str, PickReason] = field(default_factory=dict)
    """Problem id -> why the model prefers the pick to the oracle; of the problems with the most lost time."""
    others: tuple[ReportData, ...] = ()
    """The reports of the further pickers that are judged, in order (--models); not kept in files."""
    changes: tuple[str, ...] = ()
    """What the judged picker changes against each of `others`, in Markdown (comparison.wording)."""
    beside: tuple[PickerFigures, ...] = ()
    """The figures of the other pickers: those of `others`, then those that are shown without being asked for,
    a library's own choice and the roofline."""
    alone: tuple[str, ...] = ()
    """Problems with one candidate: 100 % by construction, and left out of the verdict."""
    export_differs: str = ""
    """How an export beside the model folder picks otherwise on these problems."""

    @cached_property
    def by_source(self) -> pd.DataFrame:
        """Which source of kernels is fastest on which problem (report.sources.sources_by_problem)."""
        return sources_by_problem(self.final, self.selection)

    @cached_property
    def lost(self) -> pd.DataFrame:
        """The time that each pick loses (report.lost_time.lost_times)."""
        return lost_times(self.selection)

    @property
    def time_weighted_percent(self) -> float | None:
        """Total time of the oracles / total time of the picks, in percent; picks that failed have no time."""
        return time_weighted_percent(self.lost)

    @cached_property
    def pickers(self) -> tuple[PickerFigures, ...]:
        """All pickers side by side, the judged one first; none where there is neither a model nor another."""
        if self.rankings is None and not self.beside:
            return ()
        verdict, name = self.verdict if self.others else None, self.ranked_by.name or "no model"
        return picker_figures(name, self.ranked_by, self.selection, verdict), *self.beside

    @cached_property
    def ranking_order(self) -> Ranking | None:
        """The rankings in order; None without a model."""
        return None if self.rankings is None else Ranking.of(self.rankings)

    def efficiency_where(self, in_sample: bool) -> Efficiency:
        """Returns the metrics over the problems that the model was trained on, or over the others."""
        return summarise(self.selection[self.selection["in_sample"] == in_sample])

    @property
    def in_sample(self) -> int:
        """Covered problems that the model was trained on."""
        return int((self.covered["in_sample"]).sum())

    @cached_property
    def covered(self) -> pd.DataFrame:
        """The problems with an efficiency, worst first."""
        covered = self.selection[self.selection["coverage"] == COVERED]
        return covered.sort_values(["efficiency", "problem"], ignore_index=True)

    @property
    def not_covered(self) -> Mapping[str, tuple[str, ...]]:
        """Reason -> ids of the problems without an efficiency."""
        rest = self.selection[self.selection["coverage"] != COVERED]
        return {str(reason): tuple(group["problem"]) for reason, group in rest.groupby("coverage")}

    @property
    def failures(self) -> int:
        """Pairs with a kernel's own failure."""
        return len(self.verdict.new_failures) + len(self.verdict.known_failures)


_REPORTED = {
    *("round", "op", "problem", "kernel", "status", "detail", "latency_ms", "latency_min_ms", "spread"),
    *("samples", "precision", "tflops", "implementation", "vgprs", "agprs", "waves_per_cu", "lds_bytes"),
    *("spills", "workgroups_per_cu", "loop_matrix_instructions", "binary_bytes", "check", "check_points"),
    "at_least_ms",
}


def settled(records: pd.DataFrame) -> pd.DataFrame:
    """record.final.final_measurements, without the columns that neither reports nor settling read.
    Raises RecordError."""
    final = final_measurements(records, _REPORTED)
    give_back()
    return final


def analyse(
    records: pd.DataFrame,
    problems: Iterable[Problem],
    rankings: pd.DataFrame | None,
    *,
    run: RunInfo,
    ranked_by: Origin | None = None,
    scope: Scope | None = None,
    baseline: Baseline | None = None,
    criteria: Criteria | None = None,
    training: Training | None = None,
    candidates: Candidates | None = None,
    settled_by: str = "",
    final: pd.DataFrame | None = None,
) -> ReportData:
    """Records and rankings -> oracles -> picks -> verdict: all that the reports need.

    records: tile_oracle.record.schema rows; those of problems that are not in `problems` are ignored.
    rankings: `problem`, `kernel`, `predicted_tflops`; None without a model. settled_by: the command that
    would settle what the verdict leaves open. final: settled(records), if it is known. Raises RecordError,
    ModelError.
    """
    problems = tuple(problems)
    scope, criteria = scope or Scope(), criteria or Criteria()
    ranked_by, training = ranked_by or Origin(), training or Training()
    everything = settled(records) if final is None else final
    asked = everything["problem"].isin([problem.id for problem in problems])
    final = everything if asked.all() else everything[asked].reset_index(drop=True)
    oracles = find_oracles(final)
    selection = _selection(problems, final, oracles, rankings, ranked_by, training)
    give_back()
    part = part_to_judge(selection, baseline, () if training.counted else training.in_sample)
    noise = margins(records, final, selection)
    accepted = part.baseline.picks if part.baseline is not None else {}
    give_back()
    verdict = judge(
        part.selection,
        final,
        part.baseline,
        criteria,
        complete=scope.complete and not part.nothing_left,
        margins=noise,
        accepted_now=accepted_margins(records, final, selection, accepted),
        settled_by=settled_by,
    )
    counts: Mapping[Any, int] = final["status"].value_counts().to_dict()
    return ReportData(
        run=run,
        ranked_by=ranked_by,
        scope=scope,
        criteria=criteria,
        baseline=baseline,
        final=final,
        oracles=oracles,
        selection=selection,
        kernels=kernel_table(final, selection),
        slices=slice_table(selection, classes_of(problems)),
        rankings=rankings,
        statuses={status: int(counts.get(status, 0)) for status in STATUSES},
        efficiency=summarise(selection),
        fixed_mean_percent=_mean_percent(fixed_kernels(final, selection)["ratio"]),
        repeatability_percent=_mean_percent(_sweep_winners(selection)),
        margins=noise,
        verdict=part.settled(verdict),
        training=training,
        candidates=candidates or Candidates(),
        alone=part.alone,
    )


def _selection(
    problems: Sequence[Problem],
    final: pd.DataFrame,
    oracles: pd.DataFrame,
    rankings: pd.DataFrame | None,
    ranked_by: Origin,
    training: Training,
) -> pd.DataFrame:
    """Returns the picks with a column `in_sample`; scores that only order kernels are left out."""
    selection = select(problems, final, oracles, rankings)
    if ranked_by.order_only:
        selection = selection.assign(pick_predicted_tflops=np.nan, oracle_predicted_tflops=np.nan)
    selection["in_sample"] = selection["problem"].isin(list(training.in_sample))
    return selection


def _sweep_winners(selection: pd.DataFrame) -> pd.Series:
    """Returns the efficiency of the sweep's winner, for problems whose oracle was measured again."""
    again = selection["oracle_remeasured"].fillna(False).astype(bool)
    return selection.loc[again, "sweep_winner_efficiency"]


def _mean_percent(efficiencies: pd.Series) -> float | None:
    return float(100.0 * efficiencies.mean()) if efficiencies.notna().any() else None
