"""Out-of-fold predictions: of a training table, and of a run that is ranked by its own records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.groups import fold_codes, group_codes, group_folds
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.selection import Efficiency, select, summarise
from tile_oracle.kernel import Kernel, kernel_from_row
from tile_oracle.model.ranker import Ranker, constant_groups
from tile_oracle.operation import operation_named
from tile_oracle.problem import problem_from_row
from tile_oracle.record.final import problems_of, records_op
from tile_oracle.training.fit import Effort, fit
from tile_oracle.training.recipe import Recipe, recipe_named
from tile_oracle.training.training_rows import (
    is_auxiliary,
    not_of_shapes,
    own_rows,
    pair_columns_of,
    training_rows,
    with_auxiliary,
)

OUT_OF_FOLD_RECIPE = "lambdarank"
"""The recipe that ranks a run by its own records: it needs no physical model of the target. Cross-validated
by problem it is better than `log_time` on records of gfx950, of a CPU and of GEMMs (docs/heuristic.md)."""


@dataclass(frozen=True)
class CrossValidation:
    """Out-of-fold predictions: each row is predicted by a model that was trained without its group.

    `table`: problem, kernel, predicted_tflops, fold; one row per predicted pair.
    """

    table: pd.DataFrame
    grouping: str
    n_splits: int


def cross_validate(
    recipe: Recipe,
    rows: pd.DataFrame,
    arch: str,
    n_splits: int = 5,
    grouping: str = "problem",
    pool: Sequence[Kernel] | None = None,
    effort: Effort | None = None,
) -> CrossValidation:
    """Returns every problem of the rows, predicted by a model trained on the other folds and on the auxiliary
    rows without held-out shapes. Auxiliary rows are not predicted.

    With a pool every problem is predicted for every kernel of the pool that matches it, measured or
    not; without one, for the kernels that it has rows of. There are at most as many folds as groups.
    Raises ModelError if there is only one group.
    """
    effort = effort or Effort()
    rows, auxiliary = own_rows(rows), rows[is_auxiliary(rows)]
    groups = fold_codes(rows, grouping)
    count = len(np.unique(groups))
    if count < 2:
        plural = "problems" if grouping == "problem" else "families"
        raise ModelError(
            f"cross-validation needs at least two {plural} per data type: the measurements are of one"
        )
    n_splits = min(n_splits, count)
    folds = group_folds(groups, n_splits, effort.seed)
    parts = []
    for fold in range(n_splits):
        held = folds == fold
        effort.say(
            f"fold {fold + 1} of {n_splits}: {int((~held).sum())} training rows, {int(held.sum())} held out"
        )
        train_rows = rows[~held]
        if len(auxiliary):
            train_rows = with_auxiliary(train_rows, not_of_shapes(auxiliary, rows[held], grouping))
        ranker = fit(recipe, train_rows, arch, replace(effort, report=None))
        parts.append(predicted_pairs(ranker, rows[held], pool, effort.threads).assign(fold=fold))
    return CrossValidation(pd.concat(parts, ignore_index=True), grouping, n_splits)


def predicted_pairs(
    ranker: Ranker, rows: pd.DataFrame, pool: Sequence[Kernel] | None, threads: int
) -> pd.DataFrame:
    """Predictions (problem, kernel, predicted_tflops) for the problems of a training table: for every kernel
    of the pool that matches, measured or not, or without a pool for the pairs of the table. Raises ModelError
    where no kernel matches."""
    if pool is None:
        predicted = ranker.tflops(rows, group_codes(rows), threads)
        return pd.DataFrame(
            {
                "problem": rows["problem"].to_numpy(),
                "kernel": rows["kernel"].to_numpy(),
                "predicted_tflops": predicted,
            }
        )
    frames = []
    one_each = rows.drop_duplicates("problem")
    names = pair_columns_of(records_op(rows))
    problems = [problem_from_row(row) for row in one_each[list(names)].to_dict("records")]
    for kind in sorted({p.kind for p in problems}):
        of_kind = [p for p in problems if p.kind == kind]
        kernels = [kernel for kernel in pool if kernel.matches(of_kind[0])]
        if kernels:
            groups = constant_groups(len(of_kind), len(kernels))
            frames.append(
                pd.DataFrame(
                    {
                        "problem": np.repeat([p.id for p in of_kind], len(kernels)),
                        "kernel": [k.name for k in kernels] * len(of_kind),
                        "predicted_tflops": ranker.tflops(pair_columns(of_kind, kernels), groups, threads),
                    }
                )
            )
    if not frames:
        raise ModelError(
            "no kernel of the pool matches the direction, dtype and rank of any measured problem"
        )
    return pd.concat(frames, ignore_index=True)


def out_of_fold(records: pd.DataFrame, arch: str, pool: Sequence[Kernel] | None = None) -> pd.DataFrame:
    """Predictions for a run by a model cross-validated on the run's own records.

    The columns are problem, kernel, predicted_tflops and fold; the pool is the kernels of the records
    unless one is given. Each direction and data type (the operation's `models_by`) has models of its own; one
    with fewer than two problems that are ok is left out. Problems without any ok row get predictions too,
    from a model of all the others (fold -1). Raises ModelError when nothing can be cross-validated.
    """
    kind_columns = list(operation_named(records_op(records)).models_by)
    effort = Effort()
    usable = training_rows(records)
    chosen = recipe_named(OUT_OF_FOLD_RECIPE).for_rows(usable.table)
    candidates = list(pool) if pool is not None else _kernels_of(records)
    tables, reason = [], None
    for kind, rows in usable.table.groupby(kind_columns, sort=True):
        try:
            validation = cross_validate(chosen, rows, arch, pool=candidates, effort=effort)
        except ModelError as error:
            reason = reason or error
            continue
        tables.append(validation.table)
        of_kind = (records[kind_columns] == list(kind)).all(axis=1)
        unmeasured = records[of_kind & ~records["problem"].isin(rows["problem"])].drop_duplicates("problem")
        if len(unmeasured):
            ranker = fit(chosen, rows, arch, effort)
            tables.append(predicted_pairs(ranker, unmeasured, candidates, effort.threads).assign(fold=-1))
    if not tables:
        raise reason or ModelError("no measurements to cross-validate on")
    return pd.concat(tables, ignore_index=True)


def _kernels_of(records: pd.DataFrame) -> list[Kernel]:
    one_each = records.drop_duplicates("kernel").sort_values("kernel")
    op = records_op(records)
    return [kernel_from_row(row, op) for row in one_each[list(pair_columns_of(op))].to_dict("records")]


# ---- Out-of-fold predictions -> efficiency and regression metrics --------------------------------


@dataclass(frozen=True)
class Check:
    """The result of cross-validation by one grouping. r2 and rmse_log are of ln(TFLOPS), None if the
    predictions only order kernels."""

    grouping: str
    n_splits: int
    efficiency: Efficiency
    r2: float | None
    rmse_log: float | None

    def as_json(self) -> dict[str, object]:
        return {
            "grouping": self.grouping,
            "n_splits": self.n_splits,
            "r2_log_tflops": self.r2,
            "rmse_log_tflops": self.rmse_log,
            **asdict(self.efficiency),
        }


def settled(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns a training table as settled measurements (tile_oracle.record.final), all of them ok."""
    return rows.assign(
        op=records_op(rows), status="ok", detail="", remeasured=False, sweep_tflops=rows["tflops"]
    )


def selection_of(rows: pd.DataFrame, predictions: pd.DataFrame) -> pd.DataFrame:
    """Returns the predictions' pick for each problem of a training table (tile_oracle.judge.selection)."""
    final = settled(rows)
    return select(problems_of(final), final, find_oracles(final), predictions)


def check(
    rows: pd.DataFrame, predictions: pd.DataFrame, grouping: str, n_splits: int, *, scores: bool = False
) -> Check:
    """Metrics of out-of-fold predictions (problem, kernel, predicted_tflops). scores: predictions are not
    TFLOPS, so regression metrics do not apply (`Recipe.orders_only`)."""
    efficiency = summarise(selection_of(rows, predictions))
    if scores:
        return Check(grouping, n_splits, efficiency, None, None)
    joined = rows[["problem", "kernel", "tflops"]].merge(predictions, on=["problem", "kernel"])
    truth = np.log(joined["tflops"].to_numpy(dtype=np.float64))
    error = np.log(np.maximum(joined["predicted_tflops"].to_numpy(dtype=np.float64), 1e-12)) - truth
    spread = float(((truth - truth.mean()) ** 2).sum())
    r2 = 1.0 - float((error**2).sum()) / spread if spread > 0 else 0.0
    return Check(grouping, n_splits, efficiency, r2, float(np.sqrt((error**2).mean())))


def metrics_json(checks: tuple[Check, ...], note: str) -> Mapping[str, object]:
    """cv_metrics_{target}.json: one object per grouping, or why there is none."""
    if not checks:
        return {"note": note}
    return {f"by_{one.grouping}": one.as_json() for one in checks}
