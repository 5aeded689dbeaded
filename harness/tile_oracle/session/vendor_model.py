"""The choice of a vendor library as the judged model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tile_oracle.kernel import Kernel
from tile_oracle.libraries.libraries import LIBRARIES
from tile_oracle.libraries.offers import Offers, load_offers, offers_file
from tile_oracle.problem import Problem

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
    """Returns the offers in the folders of runs. Raises RecordError for a damaged file."""
    files = [offers_file(path, name) for path in paths if path.is_dir() for name in LIBRARIES]
    return [load_offers(file) for file in files if file.is_file()]
