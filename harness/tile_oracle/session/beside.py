"""The pickers beside the judged one: those of --models, a library's own choice, the roofline; and exports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tile_oracle.errors import HarnessError
from tile_oracle.judge.picker import VENDOR as OF_LIBRARY
from tile_oracle.judge.picker import Picker
from tile_oracle.judge.selection import COVERED, select
from tile_oracle.pickers.of_records import choice_of_libraries
from tile_oracle.problem_set import ProblemSet
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
