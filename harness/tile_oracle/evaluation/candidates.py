"""The candidates for a problem, shared by the gate and `tile-oracle evaluate`."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tile_oracle.arch import load_arch
from tile_oracle.evaluation.evaluate import rank_all
from tile_oracle.features.code_table import CodeTable
from tile_oracle.judge.pair_numbers import pair_numbers
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.kernel.named import is_named
from tile_oracle.model.predictor import Predictor
from tile_oracle.problem import problem_from_id
from tile_oracle.record.final import problems_of
from tile_oracle.record.not_built import not_built
from tile_oracle.training.neighbours import CONSTRAINT


def rank_recorded(predictor: Predictor, records: pd.DataFrame) -> pd.DataFrame:
    """Predictions (problem, kernel, predicted_tflops) for all recorded problems and all recorded kernels that
    have features, as in a session that replays these records."""
    predictor = predictor.knowing(CodeTable.of(records))
    lacking = not_built(records)
    names = sorted(str(name) for name in records["kernel"].unique())
    ranked = [name for name in names if name not in lacking and (predictor.ranks_named or not is_named(name))]
    kernels = [parse_kernel_name(name) for name in ranked]
    return without_refused(rank_all(predictor, problems_of(records), kernels), records, predictor.spec.arch)


def without_refused(rankings: pd.DataFrame, records: pd.DataFrame, arch: str) -> pd.DataFrame:
    """The rankings without the kernels that the architecture's rules refuse for the problem, because a
    dispatcher checks the rules first (as tile_oracle.registry does). A kernel of a Triton file or a library
    is a candidate where it was measured, and its declaration does not exclude the problem. Pairs that were
    measured as ok are kept in any case."""
    rankings = _without_excluded(rankings, records)
    ok = (records["status"] == "ok").to_numpy(dtype=bool)
    ranked, recorded = pair_numbers(rankings, records)
    doubtful = rankings[~np.isin(ranked, recorded[ok])]
    judge, refused = load_arch(arch), []
    for problem_id, of_problem in doubtful.groupby("problem", sort=False):
        problem = problem_from_id(str(problem_id))
        for row, name in of_problem["kernel"].items():
            if judge.problem_refusal(parse_kernel_name(str(name)), problem) is not None:
                refused.append(row)
    return rankings.drop(index=refused).reset_index(drop=True) if refused else rankings


def _without_excluded(rankings: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
    """The rankings without pairs of NamedKernels that were not measured or that a declaration excludes."""
    of_files = [one for one in rankings["kernel"].unique() if is_named(one)]
    if not of_files:
        return rankings
    named = rankings["kernel"].isin(of_files)
    excluded = (records["status"] == "unsupported") & records["detail"].fillna("").str.startswith(CONSTRAINT)
    ranked, recorded = pair_numbers(rankings, records)
    kept = ~named | np.isin(ranked, recorded[(~excluded).to_numpy(dtype=bool)])
    return rankings[kept].reset_index(drop=True)
