"""Suggests the most informative pairs to measure next within a budget.

An ensemble of models, each fitted to a bootstrap sample of the problems, gives the uncertainty of every
pair's time. The models are physical time models for convolutions and ln(time) trees for GEMM, which pick best
there. A pair is worth measuring if the ensemble disagrees on its time and it may be the fastest of its
problem; the exact time of a slow kernel does not matter.

If a model exists, `suggest_picks` uses it: its mistakes are among the unmeasured pairs that it would pick.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.arch import Arch, load_arch
from tile_oracle.errors import ModelError
from tile_oracle.exploration.adapting_pairs import PICKS, covering_problems
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.feature_table import Array
from tile_oracle.features.groups import group_codes
from tile_oracle.features.hardware import hardware_features
from tile_oracle.kernel import Kernel
from tile_oracle.kernel.named import is_named
from tile_oracle.model.aliases import Aliases, find_aliases, merge
from tile_oracle.model.physics import explain_aliases, fit_physical, nearness
from tile_oracle.model.predictor import Predictor
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem
from tile_oracle.record.final import records_op
from tile_oracle.training.fit import Effort, Report, fit
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.training_rows import IMPORTANCE, training_rows

ENSEMBLE = 12
_NEAR = 0.15
_TOGETHER = 2
_TRACE = 1e-3
_TREES = 150
_PROBLEMS_A_LINE = 200
_ALL_MEASURED = "every pair of these problems and kernels is measured: there is nothing to suggest"


def suggest(
    records: pd.DataFrame,
    arch: str,
    problems: Sequence[Problem],
    kernels: Sequence[Kernel],
    budget: int,
    seed: int = 0,
) -> pd.DataFrame:
    """The `budget` pairs to measure next, most useful first.

    Candidates are all pairs that the architecture supports and that are not in the records. Columns: problem,
    kernel, `disagreement` (standard deviation of ln(time) over the ensemble), `expected_regret` (mean loss,
    as a fraction of the time, of not taking this kernel where ensemble members prefer it to the current
    pick), and `value`, the sort key. Only one of several aliases is suggested for a problem. Raises
    ModelError for a budget below 1, or without a candidate or a measured problem.
    """
    _check_budget(budget)
    rows = training_rows(records).table
    op = records_op(rows)
    if any(problem.op != op for problem in problems):
        raise ModelError(f"the records are of {op}: suggestions are for problems of the same operation")
    # A physical model says which of several names describes a kernel; it knows no kernels without fields.
    named = any(map(is_named, rows["kernel"].unique()))
    aliases = Aliases() if named else explain_aliases(rows, find_aliases(rows), hardware_features(arch))
    table = candidate_pairs(problems, kernels, load_arch(arch))
    log_times = ensemble_log_times(rows, aliases, table, arch, seed)
    mean, spread = log_times.mean(axis=0), log_times.std(axis=0)
    codes = pd.factorize(table["problem"])[0]
    best = pd.Series(mean).groupby(codes).transform("min").to_numpy()
    pick = pd.Series(mean).groupby(codes).transform("idxmin").to_numpy(dtype=np.int64)
    regret = np.maximum(1 - np.exp(log_times - log_times[:, pick]), 0.0).mean(axis=0)
    found = pd.DataFrame(
        {
            "problem": table["problem"],
            "kernel": table["kernel"],
            "disagreement": spread,
            "expected_regret": regret,
            "value": regret + spread * np.exp(-(mean - best) / _NEAR),
        }
    )
    stands = {str(name): aliases.stand_in(str(name))[0] for name in pd.unique(found["kernel"])}
    found["stands"] = found["kernel"].map(stands)
    done = records.assign(stands=records["kernel"].map(lambda name: aliases.stand_in(str(name))[0]))
    measured = pd.MultiIndex.from_frame(done[["problem", "stands"]].astype(str))
    found = found[~pd.MultiIndex.from_frame(found[["problem", "stands"]].astype(str)).isin(measured)]
    found = found.sort_values(["value", "problem", "kernel"], ascending=[False, True, True])
    found = found.drop_duplicates(["problem", "stands"]).drop(columns="stands")
    if found.empty:
        raise ModelError(_ALL_MEASURED)
    place = found.groupby("problem").cumcount()
    found = found.assign(again=place // _TOGETHER).sort_values(
        ["again", "value", "problem", "kernel"], ascending=[True, False, True, True]
    )
    return found.drop(columns="again").head(budget).reset_index(drop=True)


def suggest_picks(
    records: pd.DataFrame,
    predictor: Predictor,
    problems: Sequence[Problem],
    kernels: Sequence[Kernel],
    budget: int,
    report: Report | None = None,
) -> pd.DataFrame:
    """The first `budget` unmeasured pairs in a model's order.

    The first unmeasured pair of every problem, then the second of every problem, and so on. Columns: problem,
    kernel, and `rank`, from 1, among all of the problem's kernels, measured or not. report: called with
    progress messages. Raises ModelError for a budget below 1, for problems of another kind than the model's,
    and if every pair is measured.
    """
    _check_budget(budget)
    table = _unmeasured_picks(records, predictor, problems, kernels, budget, report)
    table = table.sort_values(["place", "number"])[["problem", "kernel", "rank"]]
    return table.head(budget).reset_index(drop=True)


def suggest_adapting(
    records: pd.DataFrame,
    predictor: Predictor,
    problems: Sequence[Problem],
    kernels: Sequence[Kernel],
    budget: int,
    report: Report | None = None,
) -> pd.DataFrame:
    """The `budget` pairs that teach most about a model's kernels elsewhere (exploration.adapting_pairs).

    The first unmeasured pairs of some problems in the model's order. Columns and errors: as of
    `suggest_picks`.
    """
    _check_budget(budget)
    table = _unmeasured_picks(records, predictor, problems, kernels, PICKS, report)
    picks = [group["kernel"].tolist() for _, group in table.groupby("number")]
    numbers = table["number"].unique()
    chosen = [numbers[one] for one in covering_problems(picks, budget)]
    order = {number: place for place, number in enumerate(chosen)}
    table = table[table["number"].isin(chosen)].assign(order=table["number"].map(order))
    table = table.sort_values(["order", "place"])[["problem", "kernel", "rank"]]
    return table.head(budget).reset_index(drop=True)


def _unmeasured_picks(
    records: pd.DataFrame,
    predictor: Predictor,
    problems: Sequence[Problem],
    kernels: Sequence[Kernel],
    most: int,
    report: Report | None,
) -> pd.DataFrame:
    """The first `most` unmeasured pairs of each problem in a model's order. Columns: problem, kernel, `rank`
    among all of the problem's kernels, `place` among the unmeasured ones, `number` of the problem. Raises
    ModelError if there is none."""
    effort = Effort(report=report)
    measured = records.groupby(records["problem"].astype(str))["kernel"].agg(set)
    arch = load_arch(predictor.spec.arch)
    frames = []
    for number, problem in enumerate(problems):
        names = [kernel.name for kernel, _ in predictor.rank(problem, arch.able(kernels, problem))]
        found = pd.DataFrame({"kernel": names, "rank": range(1, len(names) + 1)})
        found = found[~found["kernel"].isin(measured.get(problem.id, set()))].head(most)
        place = range(len(found))
        frames.append(found.assign(problem=problem.id, place=place, number=number))
        if (number + 1) % _PROBLEMS_A_LINE == 0 or number + 1 == len(problems):
            effort.say(f"{number + 1} of {len(problems)} problems ranked")
    table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    if table.empty:
        raise ModelError(_ALL_MEASURED)
    return table


def _check_budget(budget: int) -> None:
    if budget < 1:
        raise ModelError(f"a budget of {budget} pairs leaves nothing to suggest: it must be at least 1")


def ensemble_log_times(
    rows: pd.DataFrame, aliases: Aliases, table: pd.DataFrame, arch: str, seed: int = 0
) -> Array:
    """Predicted ln(time in ms) of a table's pairs by each member of the ensemble, (members, pairs).

    rows: a training table, from which each member's problems are drawn with replacement. A problem that was
    not drawn keeps a small weight, so that every kernel is fitted.
    """
    if operation_named(records_op(rows)).for_models.time_terms is None:
        return _tree_log_times(rows, table, arch, seed)
    hardware = hardware_features(arch)
    merged = merge(rows, aliases)
    groups = group_codes(merged)
    near = nearness(np.log(merged["latency_ms"].to_numpy(dtype=np.float64)), groups)
    pairs, _ = aliases.canonical({str(name): table[name] for name in table})
    members = []
    for drawn in _resampled(groups, seed):
        model = fit_physical(merged, near * np.sqrt(drawn), hardware)
        members.append(model.log_time(pairs, hardware))
    return np.asarray(members)


def _tree_log_times(rows: pd.DataFrame, table: pd.DataFrame, arch: str, seed: int) -> Array:
    recipe = recipe_named("log_time").for_rows(rows).with_trees(_TREES)
    pairs = {str(name): table[name] for name in table}
    members = []
    for number, drawn in enumerate(_resampled(group_codes(rows), seed)):
        ranker = fit(recipe, rows.assign(**{IMPORTANCE: drawn}), arch, Effort(seed + number))
        members.append(ranker.members[0].log_time(pairs, hardware_features(arch), 1))
    return np.asarray(members)


def _resampled(groups: npt.NDArray[np.int64], seed: int) -> Iterator[Array]:
    """Yields, for every member of the ensemble, how often each row's problem was drawn, (rows,)."""
    count = int(groups.max()) + 1
    random = np.random.default_rng(seed)
    for _ in range(ENSEMBLE):
        drawn = np.bincount(random.integers(0, count, count), minlength=count)[groups]
        yield np.maximum(drawn, _TRACE)


def candidate_pairs(problems: Sequence[Problem], kernels: Sequence[Kernel], arch: Arch) -> pd.DataFrame:
    """A row for every pair that the architecture's rules allow: the fields of problem and kernel, `problem`
    (id) and `kernel` (name). Raises ModelError if there is none."""
    frames = []
    for kind in sorted({p.kind for p in problems}):
        of_kind = [p for p in problems if p.kind == kind]
        pool = [kernel for kernel in kernels if kernel.matches(of_kind[0])]
        if pool:
            frame = pd.DataFrame(pair_columns(of_kind, pool))
            frame = frame.assign(problem=np.repeat([p.id for p in of_kind], len(pool)))
            able = [arch.problem_refusal(kernel, problem) is None for problem in of_kind for kernel in pool]
            frames.append(frame[able])
    table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    if table.empty:
        raise ModelError("none of these kernels can compute any of these problems, by kind or by size")
    return table
