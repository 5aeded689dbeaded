"""Test ids of pairs: making and parsing them."""

from __future__ import annotations

import re
from functools import lru_cache

from tile_oracle.kernel import Kernel
from tile_oracle.kernel.named import SHORT_NAMES
from tile_oracle.operation import operations
from tile_oracle.problem import Problem


@lru_cache(maxsize=1)
def _pair_in_id() -> re.Pattern[str]:
    known = tuple(operations())
    problems = "|".join(one.id_pattern for one in known)
    kernels = "|".join((SHORT_NAMES, *(one.short_names for one in known)))
    return re.compile(rf"[\[-](?P<problem>{problems})(?:-(?P<kernel>{kernels}))?[\]-]")


def pair_id(problem: Problem, kernel: Kernel) -> str:
    """Returns the text in brackets after a test's name: forward-bf16-n1-...-64x64x64_compv3_intrawave."""
    return f"{problem.id}-{kernel.short_name}"


def pair_of(nodeid: str) -> tuple[str | None, str | None]:
    """Returns the problem's id and the kernel's short name in a test's id; None for a missing part."""
    head, _, tail = nodeid.rpartition("-")
    if tail in _KERNEL_ENDS and (known := _PROBLEM_HEADS.get(head)) is not None:
        return known, tail[:-1]
    match = _pair_in_id().search(nodeid)
    if match is None:
        return None, None
    problem, kernel = match["problem"], match["kernel"]
    if kernel is not None and nodeid.endswith(f"{problem}-{kernel}]"):
        _PROBLEM_HEADS[head] = problem
        _KERNEL_ENDS.add(tail)
    return problem, kernel


# A session parses hundreds of thousands of ids with few problems and few kernels; the pattern takes 17 us.
_PROBLEM_HEADS: dict[str, str] = {}
"""The text before "-KERNEL]" -> the problem that it ends with."""
_KERNEL_ENDS: set[str] = set()
"""Each "KERNEL]" found after a problem."""
