"""What stands beside the judged picks: other pickers (those of --models, a library's own choice, the
roofline), exports, and why the model picked what it picked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.errors import HarnessError
from tile_oracle.judge.picker import VENDOR as OF_LIBRARY
from tile_oracle.judge.picker import Picker
from tile_oracle.judge.selection import COVERED, select
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.feature_share import PickReason
from tile_oracle.pickers.of_records import choice_of_libraries
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.problem_set import ProblemSet
from tile_oracle.process.cores import usable_cores
from tile_oracle.report.data import ReportData
from tile_oracle.report.picker_figures import PickerFigures, picker_figures
from tile_oracle.session.models import VENDOR, ModelChoice, roofline
from tile_oracle.session.plan import Plan

if TYPE_CHECKING:
    import pandas as pd


def beside(
    choices: Sequence[ModelChoice],
    plan: Plan,
    part: ProblemSet,
    own: pd.DataFrame,
    arch: str,
    data: ReportData,
) -> tuple[PickerFigures, ...]:
    """Returns the figures of the further pickers that are judged (data.others), and of those that need no
    asking.

    choices: what is judged. own: the records of these problems. A library without a ranking of its own, and
    operations and architectures without a roofline, have none. Raises HarnessError.
    """
    found = [
        picker_figures(choice.name, one.ranked_by, one.selection, one.verdict, data.selection)
        for choice, one in zip(choices[1:], data.others, strict=True)
    ]
    for other in _unasked(plan, part, arch):
        if other.name in [choice.name for choice in choices]:
            continue
        rankings, origin = other.rank(part.problems, plan.kernels, own)
        selection = select(part.problems, data.final, data.oracles, rankings)
        if (selection["coverage"] == COVERED).any():
            name = f"{origin.name}'s own choice" if origin.kind == OF_LIBRARY else other.name
            found.append(picker_figures(name, origin, selection, judged=data.selection))
    return tuple(found)


def exports_differ(choice: ModelChoice, part: ProblemSet) -> str:
    """Returns how an export beside the judged model folder picks otherwise on these problems, "" if none
    does. One that cannot be read, compiled or asked counts as differing."""
    from tile_oracle.selector.export import file_stem
    from tile_oracle.selector.parity import exports_beside, own_export

    found = []
    for folder in dict.fromkeys(choice.folders.values()):
        for place in exports_beside(folder):
            problems = [p for p in part.problems if (place / f"{file_stem(p.kind)}.selector").is_file()]
            try:
                judged = own_export(folder, place, problems) if problems else []
            except HarnessError as error:
                found.append(f"{place} could not be compared with {folder.name}: {error}")
                continue
            found += [
                f"{one.of} differs from {folder.name}: {one.picks:,} of {one.problems:,} picks differ, "
                f"{one.scores:,} scores; {next(iter(one.firsts.values()), 'nothing was compared')}"
                for one in judged
                if not one.passed
            ]
    return "; ".join(found)


def _unasked(plan: Plan, part: ProblemSet, arch: str) -> Iterator[Picker]:
    if plan.rankings:
        yield choice_of_libraries(plan.rankings, VENDOR)
    kinds = dict.fromkeys(problem.kind for problem in part.problems if plan.kernels(problem))
    with suppress(HarnessError):  # no roofline for the operation, the data type or the architecture
        if kinds:
            yield roofline(kinds, arch)


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
