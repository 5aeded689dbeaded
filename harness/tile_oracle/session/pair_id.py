"""The ids of tests that are about a pair, and the pair inside such an id."""

from __future__ import annotations

import re

from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem

_CONVOLUTION = r"(?:forward|bwd_data|bwd_weight)-[a-z0-9]+-n[0-9]+-[a-z0-9-]*?f[0-9x]+(?:-[spd][0-9x]+)*"
_GEMM = r"gemm-[a-z0-9]+-[rc]{3}-m[0-9]+-n[0-9]+-k[0-9]+(?:-s[0-9]+)?"
_SIZES = r"[0-9]+x[0-9]+x[0-9]+"
_PAIR_IN_ID = re.compile(
    rf"[\[-](?P<problem>{_CONVOLUTION}|{_GEMM})"
    rf"(?:-(?P<kernel>{_SIZES}_[a-z0-9_]+|[a-z0-9_]+(?:_True|_False){{4}}(?:_{_SIZES}){{3}}))?[\]-]"
)


def pair_id(problem: Problem, kernel: Kernel) -> str:
    """What stands in brackets behind a test's name: forward-bf16-n1-...-64x64x64_compv3_intrawave."""
    return f"{problem.id}-{kernel.short_name}"


def pair_of(nodeid: str) -> tuple[str | None, str | None]:
    """The problem's id and the kernel's short name inside a test's id; None for what is not there."""
    head, _, tail = nodeid.rpartition("-")
    if tail in _KERNEL_ENDS and (known := _PROBLEM_HEADS.get(head)) is not None:
        return known, tail[:-1]
    match = _PAIR_IN_ID.search(nodeid)
    if match is None:
        return None, None
    problem, kernel = match["problem"], match["kernel"]
    if kernel is not None and nodeid.endswith(f"{problem}-{kernel}]"):
        _PROBLEM_HEADS[head] = problem
        _KERNEL_ENDS.add(tail)
    return problem, kernel


# A session asks for hundreds of thousands of ids, of few problems and few kernels; the pattern takes 17 us.
_PROBLEM_HEADS: dict[str, str] = {}
"""What stands before "-KERNEL]" -> the problem that it ends with."""
_KERNEL_ENDS: set[str] = set()
"""Each "KERNEL]" that was found behind a problem."""
