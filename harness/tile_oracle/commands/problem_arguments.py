"""Problems on a command line: ids, dimensions, or whole sets."""

from __future__ import annotations

from collections.abc import Sequence

from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.problem_set import is_path, list_problem_sets, load_problem_set, problem_from_dimensions


def problems_of_arguments(words: Sequence[str]) -> list[Problem]:
    """Returns the problems that the words mean, each once. Raises ProblemError and ProblemSetError."""
    found: dict[Problem, None] = {}
    sets = list_problem_sets()
    for word in words:
        if "=" in word:
            found[problem_from_dimensions(word)] = None
        elif word in sets or is_path(word):
            found.update(dict.fromkeys(load_problem_set(word).problems))
        else:
            found[problem_from_id(word)] = None
    return list(found)
