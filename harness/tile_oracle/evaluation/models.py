"""Models under test without a folder: named picks, and models trained on the judged records themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.judge.model import (
    COLUMNS,
    HELD,
    NO_MODEL,
    OUT_OF_FOLD,
    PICKER,
    PICKS,
    VENDOR,
    Origin,
    Pool,
)
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.ranking import Ranking
from tile_oracle.judge.selection import fixed_kernels, select
from tile_oracle.kernel import Kernel
from tile_oracle.libraries.libraries import is_library_name
from tile_oracle.problem import Problem


@dataclass(frozen=True)
class Listed:
    """Rankings that are known (COLUMNS). with_others: the candidates that they do not name come last, for the
    problems that they name. why_none: the origin's detail where they name none of the problems."""

    table: pd.DataFrame
    origin: Origin
    with_others: bool = True
    why_none: str = ""

    def rank(self, problems: Sequence[Problem], pool: Pool) -> tuple[pd.DataFrame | None, Origin]:
        """As Model.rank."""
        table = self.table[self.table["problem"].isin([problem.id for problem in problems])]
        if table.empty:
            return None, Origin(NO_MODEL, detail=self.why_none)
        origin = replace(self.origin, lacking=_lacking(table, problems, pool))
        if not self.with_others:
            return table, origin
        named = {str(problem): set(kernels) for problem, kernels in table.groupby("problem")["kernel"]}
        last = float(table["predicted_tflops"].min()) - 1.0
        others = [
            (problem.id, kernel.name, last)
            for problem in problems
            if problem.id in named
            for kernel in pool(problem)
            if kernel.name not in named[problem.id]
        ]
        return pd.concat([table, _table(others)], ignore_index=True) if others else table, origin


def _lacking(table: pd.DataFrame, problems: Sequence[Problem], pool: Pool) -> dict[str, str]:
    """Problem id -> the first choice, where it is no candidate."""
    first = {problem: kernels[0] for problem, kernels, _ in Ranking.of(table).of_problems()}
    return {
        problem.id: first[problem.id]
        for problem in problems
        if problem.id in first and all(kernel.name != first[problem.id] for kernel in pool(problem))
    }


def file_of_picks(path: Path, problems: Sequence[Problem]) -> Listed:
    """A CSV file of picks (evaluation.picks_file). Raises ModelError."""
    from tile_oracle.evaluation.picks_file import read_picks_file

    picks = read_picks_file(path, problems)
    origin = Origin(PICKS, path.name, picks.note, order_only=True)
    return Listed(picks.rankings, origin, why_none=f"{path.name} has picks for none of these problems")


def held_picks(picks: Mapping[str, str], name: str) -> Listed:
    """The picks of a baseline, by problem id."""
    rows = [(problem, kernel, 1.0) for problem, kernel in picks.items()]
    return Listed(_table(rows), Origin(HELD, name, order_only=True), why_none="no pick of the baseline")


def choice_of_libraries(rankings: Mapping[str, Sequence[Kernel]]) -> Listed:
    """The libraries' own rankings, by problem id, their first choice first."""
    rows = [
        (problem, kernel.name, -float(place))
        for problem, kernels in rankings.items()
        for place, kernel in enumerate(kernels)
    ]
    libraries = dict.fromkeys(kernel.source for ranked in rankings.values() for kernel in ranked)
    return Listed(
        _table(rows),
        Origin(VENDOR, " and ".join(libraries), order_only=True),
        with_others=False,
        why_none="no library's ranking is known: measure with --kernels, or replay such a run's folder",
    )


def no_model(why: str) -> Listed:
    """Ranks nothing."""
    return Listed(_table([]), Origin(), why_none=why)


def _table(rows: Sequence[tuple[str, str, float]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"predicted_tflops": "float64"})


@dataclass(frozen=True)
class BestSingle:
    """The kernel that is best on average over the problems of a kind, chosen with hindsight from the records,
    which are None before they are measured."""

    records: pd.DataFrame | None

    def rank(self, problems: Sequence[Problem], pool: Pool) -> tuple[pd.DataFrame | None, Origin]:
        """As Model.rank."""
        from tile_oracle.record.final import final_measurements

        if self.records is None:
            return None, Origin(NO_MODEL, detail="nothing is measured yet")
        final = final_measurements(self.records)
        selection = select(problems, final, find_oracles(final), None)
        if not selection["oracle_tflops"].notna().any():
            return None, Origin(NO_MODEL, detail="no problem has an ok kernel")
        fixed = fixed_kernels(final, selection)["kernel"]
        detail = "of each kind of problem, chosen with hindsight"
        origin = Origin(PICKER, "the best single kernel", detail, order_only=True)
        return _table([(problem, kernel, 1.0) for problem, kernel in fixed.items()]), origin


@dataclass(frozen=True)
class OutOfFold:
    """Each problem of the records is ranked by a model that was trained on the others: by nearest neighbours
    where candidates have no fields of their own, or where they are asked for. records: None before they are
    measured."""

    records: pd.DataFrame | None
    arch: str
    neighbours: bool = False

    def rank(self, problems: Sequence[Problem], pool: Pool) -> tuple[pd.DataFrame | None, Origin]:
        """As Model.rank."""
        kernels = list({kernel.name: kernel for problem in problems for kernel in pool(problem)}.values())
        if self.records is None:
            return None, Origin(NO_MODEL, detail="nothing is measured yet")
        if not kernels:
            return None, Origin(
                NO_MODEL, detail="a model ranks the kernels of a kernel set, and there is none"
            )
        named = self.neighbours or any(kernel.source for kernel in kernels)
        try:
            return self._neighbours(kernels) if named else self._trained(kernels)
        except ModelError as error:
            return None, Origin(NO_MODEL, detail=str(error))

    def _neighbours(self, kernels: Sequence[Kernel]) -> tuple[pd.DataFrame, Origin]:
        from tile_oracle.record.dataset import with_texts
        from tile_oracle.training.neighbours import neighbour_predictions

        assert self.records is not None
        table = neighbour_predictions(with_texts(self.records), kernels)
        folds = f"{table['fold'].nunique()} folds, grouped by problem"
        return table, Origin(OUT_OF_FOLD, "a nearest-neighbour model", folds)

    def _trained(self, kernels: Sequence[Kernel]) -> tuple[pd.DataFrame, Origin]:
        from tile_oracle.evaluation.folder_model import without_refused
        from tile_oracle.record.dataset import with_texts
        from tile_oracle.training.cross_validation import OUT_OF_FOLD_RECIPE, out_of_fold
        from tile_oracle.training.recipe import recipe_named

        assert self.records is not None
        of_libraries = [name for name in self.records["kernel"].unique() if is_library_name(str(name))]
        records = with_texts(self.records[~self.records["kernel"].isin(of_libraries)])
        table = out_of_fold(records, self.arch, kernels)
        folds = f"{table.loc[table['fold'] >= 0, 'fold'].nunique()} folds, grouped by problem"
        scores = recipe_named(OUT_OF_FOLD_RECIPE).orders_only
        origin = Origin(OUT_OF_FOLD, "a LightGBM model", folds, order_only=scores)
        return without_refused(table, self.records, self.arch), origin
