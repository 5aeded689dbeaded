"""Why the model under test picked what it picked, for the problems that a report shows first."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.errors import HarnessError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.feature_share import PickReason
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.process.cores import usable_cores
from tile_oracle.session.models import ModelChoice

if TYPE_CHECKING:
    import pandas as pd

    from tile_oracle.report.data import ReportData

_log = logging.getLogger(__name__)

MOST_LOST, MOST_INEFFICIENT = 12, 10
"""Problems that are explained: those that lose the most time, and those of the least efficiency."""

_THREADS = 4
"""At most: the rows are few, and OpenMP's threads spin while they wait for work."""


def reasons_of_picks(choice: ModelChoice, records: pd.DataFrame, data: ReportData) -> dict[str, PickReason]:
    """Problem id -> why the model preferred its pick to the oracle, for the problems that lose the most time
    or have the least efficiency.

    Only for trained model folders. A model that cannot be explained gives nothing: no verdict depends on it.
    """
    if not choice.folders:
        return {}
    rows = to_explain(data)
    by_folder: dict[Path, list[tuple[Problem, str, str]]] = {}
    for name, pick, oracle in zip(rows["problem"], rows["pick_kernel"], rows["oracle_kernel"], strict=True):
        problem = problem_from_id(str(name))
        folder = choice.folders.get(problem.kind)
        if folder is not None:
            by_folder.setdefault(folder, []).append((problem, str(pick), str(oracle)))
    found: dict[str, PickReason] = {}
    for folder, triples in by_folder.items():
        try:
            found |= _explained(folder, triples, records)
        except (HarnessError, KeyError, ValueError) as error:
            _log.debug("the picks of %s are not explained: %s", folder, error)
    return found


def to_explain(data: ReportData) -> pd.DataFrame:
    """Returns the problems whose picks are explained, as rows of the selection: those that the report shows
    first."""
    import pandas as pd

    from tile_oracle.report.drill_down import in_order

    rows = in_order(data)
    rows = rows[(rows["efficiency"] < 1.0) & rows["oracle_kernel"].notna() & rows["pick_kernel"].notna()]
    least = rows.sort_values(["efficiency", "problem"]).head(MOST_INEFFICIENT)
    return pd.concat([rows.head(MOST_LOST), least]).drop_duplicates("problem")


def _explained(
    folder: Path, triples: Sequence[tuple[Problem, str, str]], records: pd.DataFrame
) -> dict[str, PickReason]:
    from tile_oracle.features.code_table import CodeTable
    from tile_oracle.model.pick_reasons import pick_reasons
    from tile_oracle.model.predictor import Predictor

    problems = [problem for problem, _, _ in triples]
    named = {name for _, *names in triples for name in names}
    code = CodeTable.of(records[records["kernel"].isin(named)])
    ranker = Predictor.load(folder).ranker.of_binaries(code)
    picks = _columns(problems, [pick for _, pick, _ in triples])
    others = _columns(problems, [oracle for _, _, oracle in triples])
    reasons = pick_reasons(ranker, picks, others, min(_THREADS, usable_cores()))
    return {problem.id: reason for problem, reason in zip(problems, reasons, strict=True)}


def _columns(problems: Sequence[Problem], kernels: Sequence[str]) -> dict[str, Any]:
    """Returns the columns of pairs, as for a ranker. Raises KernelError."""
    import numpy as np

    from tile_oracle.features.columns import field_columns

    of_kernels = field_columns([parse_kernel_name(name) for name in kernels])
    return {**of_kernels, "kernel": np.array(kernels, dtype=object), **field_columns(problems)}
