"""Pickers without a folder: named picks, and models trained on the judged records themselves."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from tile_oracle.errors import KernelError, ModelError, ProblemError, first_line
from tile_oracle.files.table_file import csv_text
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.picker import (
    COLUMNS,
    HELD,
    NO_MODEL,
    OUT_OF_FOLD,
    PICKER,
    PICKS,
    VENDOR,
    Origin,
    Picker,
    Pool,
)
from tile_oracle.judge.ranking import Ranking
from tile_oracle.judge.selection import fixed_kernels, select
from tile_oracle.kernel import Kernel, kernel_of_kind
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.record.dataset_file import digest_of
from tile_oracle.record.final import problem_table
from tile_oracle.record.schema import op_of
from tile_oracle.terminal.counts import count

# ---- Rankings from a published file of picks, for models that are not available ------------------

_NAMING = 3
"""Problem columns that a file must have, because without them rows would match problems by chance."""
_KERNEL_NAMES = ("kernel_name", "kernel")
_NOT_DIMENSIONS = ("problem_idx", "predicted_tflops", "rank", *_KERNEL_NAMES)


def read_picks(path: Path | str, problems: Sequence[Problem]) -> tuple[pd.DataFrame, str]:
    """Reads a CSV file of picks as rankings of these problems (problem, kernel, predicted_tflops), and a note
    on repeated rows, as in files that list a problem several times.

    The file names problems by dimensions, which may include Ho and Wo in place of the paddings, or, without
    dimensions, by ids (`problem`). Each row is joined to the only problem with all of its dimensions; rows of
    other problems are left out. Without `predicted_tflops` the first row of a problem is its first choice. A
    column `rank` orders equal predictions. Of a repeated pair the first row counts. Raises ModelError for a
    file that cannot be read, a row that matches several problems, or an id of none.
    """
    from tile_oracle.foreign.formats import MODEL, refusal  # every reader of foreign files

    path = Path(path)
    try:
        table = pd.read_csv(io.StringIO(csv_text(path)))
    except (OSError, ValueError, pd.errors.ParserError) as error:
        raise ModelError(
            f"cannot read picks from {path}: {str(error).splitlines()[0]}{refusal(path, MODEL)}"
        ) from None
    kernel = next((name for name in _KERNEL_NAMES if name in table), None)
    if kernel is None or not {"predicted_tflops", "problem"} & set(table):
        raise ModelError(
            f"{path} is not a file of picks: it needs kernel_name, and predicted_tflops or problem (ids)"
            + refusal(path, MODEL)
        )
    known = problem_table(problems)
    operation = operation_named(op_of(problem.op for problem in problems))
    distinct = {problem.key: problem for problem in problems}.values()
    for name in operation.derived_columns:
        known[name] = [getattr(problem, name) for problem in distinct]
    shared = [name for name in table if name in known and name not in _NOT_DIMENSIONS]
    needed = operation.required[:_NAMING]
    if "problem" in table and not set(needed) <= set(shared):
        shared = ["problem"]
        _require_ids(path, table["problem"], known["problem"])
    elif not set(needed) <= set(shared):
        raise ModelError(
            f"{path} does not name its problems: it lacks {', '.join(needed[:-1])} or {needed[-1]}"
        )
    ambiguous = known[known.duplicated(shared, keep=False)]
    try:
        ordered = table if "predicted_tflops" in table else table.assign(predicted_tflops=-table.index.array)
        joined = ordered.merge(known[list(dict.fromkeys([*shared, "problem"]))], on=shared, how="inner")
        predicted = joined["predicted_tflops"].to_numpy(dtype=np.float64)
        if "rank" in joined:
            predicted = predicted - joined["rank"].to_numpy(dtype=np.float64) * 1e-9
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"{path}: a column holds an invalid number: {first_line(error)}") from None
    if joined["problem"].isin(ambiguous["problem"]).any():
        raise ModelError(f"{path}: its columns {', '.join(shared)} fit more than one of the problems")
    try:
        kinds = {problem.id: problem.kind for problem in problems}
        of_kind = list(zip(joined["problem"].map(kinds), joined[kernel].astype(str), strict=True))
        names = {pair: kernel_of_kind(*pair).name for pair in set(of_kind)}
    except KernelError as error:
        raise ModelError(f"{path}: {error}") from None
    rows = pd.DataFrame(
        {
            "problem": joined["problem"],
            "kernel": pd.Series([names[pair] for pair in of_kind], index=joined.index, dtype=object),
            "predicted_tflops": predicted,
        }
    )
    again = rows.duplicated(["problem", "kernel"])
    note = f"{count(int(again.sum()), 'repeated pick')} left out" if again.any() else ""
    return rows[~again].reset_index(drop=True), note


def _require_ids(path: Path, named: pd.Series[str], known: pd.Series[str]) -> None:
    """Raises ModelError, with its line, for a text that is the id of no problem, of this set or others."""
    for place, text in named[~named.isin(known)].items():
        try:
            problem_from_id(str(text))
        except ProblemError as error:
            raise ModelError(f"{path}:{int(str(place)) + 2}: {error}") from None


@dataclass(frozen=True)
class Listed(Picker):
    """Rankings that are known (COLUMNS). why_none: the origin's detail where they name none of the problems.
    with_others: the candidates that they do not name come last, for the problems that they name."""

    table: pd.DataFrame
    origin: Origin
    why_none: str = ""
    with_others: bool = False

    def rank(
        self, problems: Sequence[Problem], pool: Pool, records: pd.DataFrame | None = None
    ) -> tuple[pd.DataFrame | None, Origin]:
        """As Picker.rank."""
        table = self.table[self.table["problem"].isin([problem.id for problem in problems])]
        if table.empty:
            return None, Origin(NO_MODEL, detail=self.why_none)
        origin = replace(self.origin, lacking=_lacking(table, problems, pool))
        if self.with_others:
            named = set(zip(table["problem"], table["kernel"], strict=True))
            known, last = set(table["problem"]), float(table["predicted_tflops"].min()) - 1.0
            pairs = ((one.id, kernel.name) for one in problems if one.id in known for kernel in pool(one))
            others = _table([(*pair, last) for pair in pairs if pair not in named])
            table = pd.concat([table, others], ignore_index=True)
        return table, origin


def _lacking(table: pd.DataFrame, problems: Sequence[Problem], pool: Pool) -> dict[str, str]:
    """Problem id -> the first choice, where it is no candidate."""
    first = {problem: kernels[0] for problem, kernels, _ in Ranking.of(table).of_problems()}
    return {
        problem.id: first[problem.id]
        for problem in problems
        if problem.id in first and all(kernel.name != first[problem.id] for kernel in pool(problem))
    }


def file_of_picks(path: Path, problems: Sequence[Problem]) -> Listed:
    """Returns a CSV file of picks (`read_picks`). Raises ModelError."""
    table, note = read_picks(path, problems)
    identity = f"{path.name} sha256:{digest_of(path)}"
    origin = Origin(PICKS, path.name, note, order_only=True, identity=identity)
    return Listed(path.stem, table, origin, f"{path.name} has picks for none of these problems", known=False)


def held_picks(picks: Mapping[str, str], name: str) -> Listed:
    """Returns the picks of a baseline, by problem id."""
    rows = [(problem, kernel, 1.0) for problem, kernel in picks.items()]
    origin, why = Origin(HELD, name, order_only=True), "no pick of the baseline"
    return Listed(name, _table(rows), origin, why, with_others=True)


def choice_of_libraries(rankings: Mapping[str, Sequence[Kernel]], name: str) -> Listed:
    """Returns the libraries' own rankings, by problem id, their first choice first."""
    rows = [
        (problem, kernel.name, -float(place))
        for problem, kernels in rankings.items()
        for place, kernel in enumerate(kernels)
    ]
    libraries = dict.fromkeys(kernel.source for ranked in rankings.values() for kernel in ranked)
    why = "no library's ranking is known: measure with --kernels, or replay such a run's folder"
    return Listed(name, _table(rows), Origin(VENDOR, " and ".join(libraries), order_only=True), why)


def no_picker(name: str, why: str) -> Listed:
    """Ranks nothing."""
    return Listed(name, _table([]), Origin(), why)


def _table(rows: Sequence[tuple[str, str, float]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"predicted_tflops": "float64"})


@dataclass(frozen=True)
class BestSingle(Picker):
    """The kernel that is best on average over the problems of a kind, chosen with hindsight from the
    records."""

    def rank(
        self, problems: Sequence[Problem], pool: Pool, records: pd.DataFrame | None = None
    ) -> tuple[pd.DataFrame | None, Origin]:
        """As Picker.rank."""
        from tile_oracle.record.final import final_measurements

        if records is None:
            return None, Origin(NO_MODEL, detail="nothing is measured yet")
        final = final_measurements(records)
        selection = select(problems, final, find_oracles(final), None)
        if not selection["oracle_tflops"].notna().any():
            return None, Origin(NO_MODEL, detail="no problem has an ok kernel")
        fixed = fixed_kernels(final, selection)["kernel"]
        detail = "of each kind of problem, chosen with hindsight"
        origin = Origin(PICKER, "the best single kernel", detail, order_only=True)
        return _table([(problem, kernel, 1.0) for problem, kernel in fixed.items()]), origin


@dataclass(frozen=True)
class OutOfFold(Picker):
    """Each problem of the records is ranked by a model that was trained on the others: trees, or nearest
    neighbours where they are asked for or trees cannot be trained (an operation without a feature schema)."""

    arch: str
    neighbours: bool = False

    def rank(
        self, problems: Sequence[Problem], pool: Pool, records: pd.DataFrame | None = None
    ) -> tuple[pd.DataFrame | None, Origin]:
        """As Picker.rank."""
        kernels = list({kernel.name: kernel for problem in problems for kernel in pool(problem)}.values())
        if records is None:
            return None, Origin(NO_MODEL, detail="nothing is measured yet")
        if not kernels:
            return None, Origin(
                NO_MODEL, detail="a model ranks the kernels of a kernel set, and there is none"
            )
        ways = (self._neighbours,) if self.neighbours else (self._trained, self._neighbours)
        reason = ""
        for way in ways:
            try:
                return way(kernels, records)
            except ModelError as error:
                reason = reason or str(error)
        return None, Origin(NO_MODEL, detail=reason)

    def _neighbours(self, kernels: Sequence[Kernel], records: pd.DataFrame) -> tuple[pd.DataFrame, Origin]:
        from tile_oracle.record.dataset import with_texts
        from tile_oracle.training.neighbours import neighbour_predictions

        table = neighbour_predictions(with_texts(records), kernels)
        folds = f"{table['fold'].nunique()} folds, grouped by problem"
        return table, Origin(OUT_OF_FOLD, "nearest neighbours", folds)

    def _trained(self, kernels: Sequence[Kernel], records: pd.DataFrame) -> tuple[pd.DataFrame, Origin]:
        from tile_oracle.evaluation.folder_model import without_refused
        from tile_oracle.record.dataset import with_texts
        from tile_oracle.training.cross_validation import OUT_OF_FOLD_RECIPE, out_of_fold
        from tile_oracle.training.recipe import recipe_named

        table = out_of_fold(with_texts(records), self.arch, kernels)
        folds = f"{table.loc[table['fold'] >= 0, 'fold'].nunique()} folds, grouped by problem"
        scores = recipe_named(OUT_OF_FOLD_RECIPE).orders_only
        origin = Origin(OUT_OF_FOLD, "LightGBM trees", folds, order_only=scores)
        return without_refused(table, records, self.arch), origin
