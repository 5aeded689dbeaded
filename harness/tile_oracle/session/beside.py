"""What stands beside the judged model: a library's own choice, the roofline, and exports of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tile_oracle.errors import HarnessError
from tile_oracle.judge.selection import first_choice_efficiency
from tile_oracle.problem_set import ProblemSet
from tile_oracle.report.data import Beside, ReportData
from tile_oracle.session.models import ROOFLINE, VENDOR, ModelChoice, model_of
from tile_oracle.session.plan import Plan

if TYPE_CHECKING:
    import pandas as pd


def beside(
    choice: ModelChoice, plan: Plan, part: ProblemSet, own: pd.DataFrame, arch: str, data: ReportData
) -> tuple[Beside, ...]:
    """The figures of the other ways to choose that are known for this plan, without the judged one.

    own: the records of these problems. A library without a ranking of its own, and operations and
    architectures without a roofline, have none. Raises HarnessError.
    """
    found = []
    for other in (ModelChoice(VENDOR) if plan.rankings else None, _roofline(plan, part, arch)):
        if other is None or other.name == choice.name:
            continue
        model = model_of(other, plan, part, arch, records=own)
        rankings, ranked_by = model.rank(part.problems, plan.kernels)
        if rankings is None:
            continue
        name = f"{ranked_by.name}'s own choice" if other.name == VENDOR else "the roofline"
        efficiency = 100.0 * first_choice_efficiency(rankings, data.final, data.selection)
        if len(efficiency):
            found.append(
                Beside(name, len(efficiency), float(efficiency.mean()), float(efficiency.quantile(0.1)))
            )
    return tuple(found)


def exports_differ(choice: ModelChoice, part: ProblemSet) -> str:
    """How an export beside the judged model folder picks otherwise on these problems, "" if none does.
    One that cannot be read, compiled or asked counts as differing."""
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
                f"{one.of} does not pick as {folder.name}: {one.picks:,} of {one.problems:,} picks differ, "
                f"{one.scores:,} scores; {next(iter(one.firsts.values()), 'nothing was compared')}"
                for one in judged
                if not one.passed
            ]
    return "; ".join(found)


def _roofline(plan: Plan, part: ProblemSet, arch: str) -> ModelChoice | None:
    from tile_oracle.model.roofline_folder import roofline_folder

    kinds = dict.fromkeys(problem.kind for problem in part.problems if plan.kernels(problem))
    try:
        return ModelChoice(ROOFLINE, {kind: roofline_folder(kind, arch) for kind in kinds}) if kinds else None
    except HarnessError:  # no roofline for the operation, the data type or the architecture
        return None
