"""The choice of a vendor library as the judged model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem
from tile_oracle.problem_set import ProblemSet
from tile_oracle.session.plan import Plan
from tile_oracle.vendor.libraries import LIBRARIES, library_of
from tile_oracle.vendor.offers import Offers, load_offers, offers_file

if TYPE_CHECKING:
    import pandas as pd

    from tile_oracle.report.data import RankedBy

Rankings = dict[str, tuple[Kernel, ...]]


def rankings_of(offers: Iterable[Offers], problems: Iterable[Problem]) -> Rankings:
    """Problem id -> the ranking of the first library that ranks it, its first choice first."""
    libraries = tuple(offers)
    found: Rankings = {}
    for problem in problems:
        for one in libraries:
            if problem.id not in found and (ranked := one.ranking(problem)):
                found[problem.id] = ranked
    return found


def recorded_offers(paths: Iterable[Path]) -> list[Offers]:
    """The offers in the folders of runs. Raises RecordError for a damaged file."""
    files = [offers_file(path, name) for path in paths if path.is_dir() for name in LIBRARIES]
    return [load_offers(file) for file in files if file.is_file()]


def first_choice(plan: Plan, problem: Problem) -> tuple[Kernel, ...]:
    """The library's first choice as a tuple of one; empty if it has none."""
    return plan.rankings.get(problem.id, ())[:1]


def vendor_rankings(plan: Plan, problems: ProblemSet) -> tuple[pd.DataFrame | None, RankedBy]:
    """The libraries' rankings as scores, for the algorithms that they rank."""
    import pandas as pd

    from tile_oracle.report.data import NO_MODEL, VENDOR, RankedBy

    rows = [
        (problem.id, kernel.name, -float(place))
        for problem in problems.problems
        for place, kernel in enumerate(plan.rankings.get(problem.id, ()))
    ]
    if not rows:
        return None, RankedBy(
            NO_MODEL,
            detail="no library's ranking is known: measure with --kernels, or replay such a run's folder",
        )
    table = pd.DataFrame(rows, columns=["problem", "kernel", "predicted_tflops"])
    libraries = {str(library_of(kernel)): None for ranked in plan.rankings.values() for kernel in ranked}
    return table, RankedBy(VENDOR, " and ".join(libraries), order_only=True)
