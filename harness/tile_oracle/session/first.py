"""--first N: the N kernels that pickers rank highest are compiled and measured before all others, on every
problem, and judged at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from tile_oracle.errors import ModelError
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.ranking import Ranking
from tile_oracle.judge.selection import select, summarise
from tile_oracle.kernel import Kernel
from tile_oracle.measure.kernel_order import KernelOrder
from tile_oracle.pages.words import count, percent
from tile_oracle.problem import Problem
from tile_oracle.problem_set import ProblemSet
from tile_oracle.record.final import final_measurements
from tile_oracle.session.models import AUTO, ROOFLINE, choose_model
from tile_oracle.session.session import Session
from tile_oracle.terminal.progress_line import clock

if TYPE_CHECKING:
    import pandas as pd

_SHUFFLED = "a fixed shuffle, since no model ranks them"


@dataclass(frozen=True)
class First:
    """most: asked of each problem. kernels: problem id -> their names. by: whose order it is, in words.
    judged: of each problem set, the rankings of the first picker; None where it has none yet."""

    most: int
    kernels: Mapping[str, frozenset[str]]
    by: str
    judged: tuple[pd.DataFrame | None, ...]

    def has(self, pair: tuple[Problem, Kernel] | None) -> bool:
        """Returns whether a pair is among the first; None is not."""
        return pair is not None and pair[1].name in self.kernels.get(pair[0].id, frozenset())


def choose_first(session: Session, most: int) -> First:
    """Returns the first `most` kernels of each problem: of the orders of the pickers under test, in turn;
    where these rank nothing before there are measurements, of the best founded model or the roofline, else
    shuffled. Raises ModelError."""
    plan, kernels, judged, named = session.plan, dict[str, frozenset[str]](), [], dict[str, None]()
    for choices, part in zip(session.pickers, plan.sets, strict=True):
        tables = [choice.picker.rank(part.problems, plan.kernels)[0] for choice in choices]
        judged.append(tables[0])
        orders = [_orders(table) for table in tables]
        names = [choice.name for choice, table in zip(choices, tables, strict=True) if table is not None]
        if not names:
            name, order = _other_order(session, part)
            orders, names = [order], [name]
        named |= dict.fromkeys(names)
        for problem in part.problems:
            asked = plan.asked(problem)
            able = {one.name for one in asked if session.target.refusal(one, problem) is None}
            ranked = chain.from_iterable(zip_longest(*(order.get(problem.id, ()) for order in orders)))
            shuffled = (one.name for one in KernelOrder().ordered(asked))
            best = dict.fromkeys(name for name in chain(ranked, shuffled) if name in able)
            kernels[problem.id] = frozenset(list(best)[:most])
    return First(most, kernels, " and ".join(named), tuple(judged))


def _orders(table: pd.DataFrame | None) -> dict[str, Sequence[str]]:
    return {} if table is None else {one: names for one, names, _ in Ranking.of(table).of_problems()}


def _other_order(session: Session, part: ProblemSet) -> tuple[str, dict[str, Sequence[str]]]:
    """Whose order it is, and the order, of sessions whose pickers rank nothing in advance."""
    for name in (AUTO, ROOFLINE):
        try:
            choice = choose_model(replace(session.options, model=name), part, session.target, session.plan)
            rank = choice.picker.rank
            table = rank(part.problems, session.plan.kernels)[0] if choice.folders else None
        except ModelError:
            continue
        if table is not None:
            return choice.name, _orders(table)
    return _SHUFFLED, {}


def first_verdict(session: Session, first: First) -> Iterator[str]:
    """Yields the verdict on the first kernels, a line for each problem set. Raises RecordError."""
    assert session.run is not None
    final = final_measurements(session.records(session.run))
    oracles = find_oracles(final)
    for part, rankings in zip(session.plan.sets, first.judged, strict=True):
        head = (
            f"{part.name}: the first {first.most} kernels of each problem, by {first.by}, after "
            f"{clock(session.elapsed_s)}"
        )
        found = summarise(select(part.problems, final, oracles, rankings))
        if found.mean_percent is None or found.p10_percent is None:
            have = int(oracles["problem"].isin([problem.id for problem in part.problems]).sum())
            yield f"{head}: {count(have, 'problem')} with an oracle so far; no pick to judge yet"
            continue
        yield (
            f"{head}: mean efficiency at most {percent(found.mean_percent)}, P10 "
            f"{percent(found.p10_percent)}, on {count(found.covered, 'problem')}; the rest of the pool may "
            "be faster"
        )
