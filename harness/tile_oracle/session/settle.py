"""Measuring suspects again at the end of a session, before a loss is reported.

A suspect is a problem that an undecided criterion of any picker depends on, or whose own loss may be above or
below the limit for one problem. Its pick, the baseline's pick, its oracle and the other leaders are timed
again, interleaved, in rounds 2, 3, ... of the run's records. Every round has its own worker process with
newly allocated inputs, so that effects that are constant within one process count as noise. After
MOST_ROUNDS, only problems whose own loss is still undecided are measured, as long as the budget lasts. A run
that becomes a baseline is measured until its picks are certain enough, because its noise enters every later
verdict.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from tile_oracle.judge.criteria import INTERVAL
from tile_oracle.judge.noise import Margin
from tile_oracle.judge.selection import UNDECIDED
from tile_oracle.measure.measurement import Measurement
from tile_oracle.pages.words import count
from tile_oracle.problem import Problem
from tile_oracle.record.dataset import load_records
from tile_oracle.record.schema import ROUND_FINAL
from tile_oracle.record.twins import is_measured, measured_kernels
from tile_oracle.report.data import ReportData
from tile_oracle.session.conclusion import analyse_set
from tile_oracle.session.live import LiveSession
from tile_oracle.session.models import NONE
from tile_oracle.terminal.progress_line import clock

_LEAST_BUDGET_S = 60.0
_SHARE_OF_SESSION = 0.10
MOST_ROUNDS = 10
MOST_ROUNDS_UNSETTLED = 60
_ROUNDS_BETWEEN = 0.25
"""Rounds before the records are analysed again, as a fraction of a problem's rounds so far."""
_ROUNDS_OF_A_BASELINE = 4
_TARGET_POINTS = 0.1
"""Relative to the standard error of a baseline's mean."""
_SHARE_OF_LARGEST = 0.25
_LEADERS_WITHIN = 1.10
_MOST_LEADERS = 6
_MOST_NOISY = 4


def settle(session: LiveSession, selected: Mapping[str, int]) -> tuple[Mapping[str, ReportData], str]:
    """Measures suspects again until every criterion is decided or the time is spent. Returns the report on
    all records, by problem set, and a sentence, "" if nothing was measured again.

    selected: number of requested pairs by problem id. Raises HarnessError.
    """
    run, budget = session.run, _budget_s(session)
    if run is None or budget <= 0 or not run.has_files:
        return {}, ""
    if session.options.model == NONE:  # nothing is judged
        return {}, ""
    ends = math.inf
    analysed: dict[str, ReportData] = {}
    by_id = {problem.id: problem for problem in session.plan.problems}
    rounds: dict[str, int] = {}
    in_turn: dict[str, set[str]] = {}
    began = time.monotonic()
    while True:
        records = load_records(run.folder, compact=True)
        todo: dict[str, tuple[list[Measurement], int]] = {}
        for choices, part in zip(session.pickers, session.plan.sets, strict=True):
            data = analyse_set(session, records, choices, part, "", selected, analysed.get(part.name))
            analysed[part.name] = data
            for one in (data, *data.others):
                for name in _suspects(session, one):
                    timed = _leaders(session, by_id[name], one, in_turn.setdefault(name, set()))
                    more = rounds_ahead(rounds.get(name, 0), unsettled=name in one.verdict.unsettled)
                    if len(timed) > 1 and more:  # the leaders of one picker stay for the next
                        todo[name] = timed, max(more, todo.get(name, (timed, 0))[1])
        if ends == math.inf:  # the first analysis is always needed and not part of the budget
            ends = time.monotonic() + budget
        if not todo or time.monotonic() >= ends:
            break
        session.show(partial(_shown, len(todo), ends))
        latest = records.groupby("problem", observed=True)["round"].max().to_dict()
        jobs = [
            (by_id[name], todo[name][0], max(int(latest.get(name, 0)), ROUND_FINAL) + 1 + turn)
            for name, turn in _in_turn(todo)
        ]
        for problem in session.driver().remeasure_all(jobs, ends):
            rounds[problem.id] = rounds.get(problem.id, 0) + 1
    if not rounds:
        return analysed, ""
    most, seconds = max(rounds.values()), time.monotonic() - began
    return (
        analysed,
        f"{count(len(rounds), 'problem')} measured again in turn, up to {count(most, 'time')}, "
        f"in {seconds:.0f} s",
    )


def _shown(problems: int, ends: float, columns: int) -> str:
    """The live line while suspects are measured again."""
    left = clock(max(0.0, ends - time.monotonic()))
    return f"measuring {problems} problem{'s' if problems > 1 else ''} again, for at most {left}"[:columns]


def rounds_ahead(done: int, *, unsettled: bool) -> int:
    """Further rounds of a suspect before the records are analysed again; 0: it has had enough. done: its
    rounds so far. unsettled: whether its own loss may be above or below the limit."""
    most = MOST_ROUNDS_UNSETTLED if unsettled else MOST_ROUNDS
    return max(0, min(max(1, int(_ROUNDS_BETWEEN * done)), most - done))


def _in_turn(todo: Mapping[str, tuple[list[Measurement], int]]) -> list[tuple[str, int]]:
    """(problem, number of the round): the first round of every problem, then the second ones."""
    turns = [(turn, name) for name, (_, more) in todo.items() for turn in range(more)]
    return [(name, turn) for turn, name in sorted(turns, key=lambda one: one[0])]


def _budget_s(session: LiveSession) -> float:
    """Returns the seconds for measuring again; 0 or less: do not."""
    budget = session.options.settle_budget_s
    if budget is None:
        budget = max(_LEAST_BUDGET_S, _SHARE_OF_SESSION * session.elapsed_s)
    left = session.left_s
    return budget if left is None else min(budget, left)


def _suspects(session: LiveSession, data: ReportData) -> Sequence[str]:
    """Problem ids, most urgent first."""
    undecided = data.selection["coverage"] == UNDECIDED
    noisy: list[str] = data.selection.loc[undecided, "problem"].astype(str).tolist()
    if session.options.update_baseline or (data.baseline is None and session.options.repick):
        return [*noisy, *uncertain_picks(data.margins)]
    if data.baseline is None or data.criteria.rule != INTERVAL:
        return noisy
    return [*dict.fromkeys([*noisy, *data.verdict.suspects])]


def uncertain_picks(margins: Mapping[str, Margin]) -> list[str]:
    """Returns the problems to measure again for a baseline: of those whose margin is less certain than it
    needs, the ones whose error is at least a quarter of the largest, so that the budget is spent where it
    helps most. Least certain first."""
    target = _TARGET_POINTS * math.sqrt(max(len(margins), 1))
    errors = {}
    for name, margin in margins.items():
        # At two standard errors: at one, a noisy pick that is slightly ahead would look certain.
        lowest = min(1.0, math.exp(margin.log_ratio - 2.0 * margin.sigma))
        error = 50.0 * max(margin.efficiency - lowest, 0.0)
        few = margin.rounds < _ROUNDS_OF_A_BASELINE and error > 0.1 * target
        if few or error > target:
            errors[name] = error
    least = _SHARE_OF_LARGEST * max(errors.values(), default=0.0)
    return sorted(
        (name for name, error in errors.items() if error >= least), key=lambda name: (-errors[name], name)
    )


def _leaders(session: LiveSession, problem: Problem, data: ReportData, before: set[str]) -> list[Measurement]:
    """Returns the kernels to time in turn: the pick, the baseline's pick, the oracle, and those that come
    near.

    before: the leaders of earlier rounds, which stay, because kernels are compared within rounds; new ones
    are added to them. Of twins the measured one is timed.
    """
    row = data.selection.set_index("problem").loc[problem.id]
    kernels = {kernel.name: kernel for kernel in session.plan.kernels(problem)}
    final = data.final[(data.final["problem"] == problem.id) & data.final["kernel"].isin(list(kernels))]
    measured = dict(zip(final["kernel"], measured_kernels(final), strict=True))
    final = final[is_measured(final)]
    timed = final[final["status"].isin(["ok", "noisy"]) & final["latency_ms"].notna()]
    best = row["oracle_latency_ms"]
    accepted = data.baseline.picks.get(problem.id) if data.baseline is not None else None
    wanted = (row["pick_kernel"], row["oracle_kernel"], accepted.pick if accepted else None)
    named = [measured.get(name, name) for name in wanted if isinstance(name, str)]
    near = timed[timed["latency_ms"] <= _LEADERS_WITHIN * best] if pd.notna(best) else timed
    by_speed = near.sort_values(["latency_ms", "kernel"])
    named += by_speed.loc[by_speed["status"] == "ok", "kernel"].tolist()[:_MOST_LEADERS]
    named += by_speed.loc[by_speed["status"] == "noisy", "kernel"].tolist()[:_MOST_NOISY]
    chosen = timed.set_index("kernel")
    fastest_two = timed.sort_values(["latency_ms", "kernel"])["kernel"].tolist()[:2]
    found = []
    for name in dict.fromkeys([*named, *fastest_two, *sorted(before)]):
        if name in chosen.index:
            before.add(name)
            one = chosen.loc[name]
            found.append(
                Measurement(
                    problem,
                    kernels[name],
                    str(one["status"]),
                    latency_ms=float(one["latency_ms"]),
                    check=str(one["check"] or "none"),
                    check_points=0 if np.isnan(one["check_points"]) else int(one["check_points"]),
                )
            )
    return found
