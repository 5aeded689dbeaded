"""Errors injected into real assembly, one at a time, which the verifier of waits must find."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_WAIT = re.compile(r"^\s+s_waitcnt (.*)$")
_COUNT = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")


def _places(lines: list[str], pattern: str) -> list[int]:
    return [at for at, line in enumerate(lines) if re.search(pattern, line)]


def drop(pattern: str, which: int) -> Callable[[list[str]], list[str]]:
    """Removes one of the matching lines."""

    def mutate(lines: list[str]) -> list[str]:
        at = _places(lines, pattern)[which]
        return [*lines[:at], *lines[at + 1 :]]

    return mutate


def loosen(pattern: str, which: int) -> Callable[[list[str]], list[str]]:
    """Lets one of the matching waits allow one more outstanding instruction on each counter."""

    def mutate(lines: list[str]) -> list[str]:
        at = _places(lines, pattern)[which]
        more = _COUNT.sub(lambda match: f"{match[1]}({int(match[2]) + 1})", lines[at])
        return [*lines[:at], more, *lines[at + 1 :]]

    return mutate


def later(pattern: str, which: int, by: int = 1) -> Callable[[list[str]], list[str]]:
    """Moves one of the matching lines some instructions down."""

    def mutate(lines: list[str]) -> list[str]:
        at = _places(lines, pattern)[which]
        left = [*lines[:at], *lines[at + 1 :]]
        end, passed = at, 0
        while passed < by:
            passed += left[end].startswith("\t") and not left[end].lstrip().startswith((";", "."))
            end += 1
        return [*left[:end], lines[at], *left[end:]]

    return mutate


def change(pattern: str, which: int, old: str, new: str) -> Callable[[list[str]], list[str]]:
    """Replaces a text in one of the matching lines."""

    def mutate(lines: list[str]) -> list[str]:
        at = _places(lines, pattern)[which]
        changed = re.sub(old, new, lines[at], count=1)
        assert changed != lines[at]
        return [*lines[:at], changed, *lines[at + 1 :]]

    return mutate


def copies_behind_barrier(lines: list[str]) -> list[str]:
    """Moves the wait for copies to LDS behind the barrier, but not the one for other accesses to LDS."""
    at = _places(lines, r"s_waitcnt vmcnt\(0\) lgkmcnt\(0\)")[0]
    assert lines[at + 1] == "\ts_barrier"
    moved = ["\ts_waitcnt lgkmcnt(0)", lines[at + 1], "\ts_waitcnt vmcnt(0)"]
    return [*lines[:at], *moved, *lines[at + 2 :]]


@dataclass(frozen=True)
class Mutant:
    """One mistake in one of the kernels, by a short name."""

    kernel: str
    what: str
    mutate: Callable[[list[str]], list[str]]


_VM, _LGKM = r"s_waitcnt .*vmcnt", r"s_waitcnt .*lgkmcnt"
_BARRIER, _NOP = r"^\ts_barrier", r"^\ts_nop"

MUTANTS = (
    Mutant("gemm", "first wait for a vector load dropped", drop(_VM, 0)),
    Mutant("gemm", "fifth wait for a vector load dropped", drop(_VM, 4)),
    Mutant("gemm", "last wait for a vector load dropped", drop(_VM, -1)),
    Mutant("gemm", "second wait for a vector load loosened", loosen(_VM, 1)),
    Mutant("gemm", "eighth wait for a vector load loosened", loosen(_VM, 7)),
    Mutant("gemm", "third wait for a vector load moved behind its use", later(_VM, 2)),
    Mutant("gemm", "wait for the arguments dropped", drop(_LGKM, 0)),
    Mutant("gemm", "wait before the loop's first barrier dropped", drop(_LGKM, 3)),
    Mutant("gemm", "a wait for fragments loosened", loosen(_LGKM, 5)),
    Mutant("gemm", "a wait for fragments moved behind its use", later(_LGKM, 6)),
    Mutant("gemm", "barrier that publishes a tile dropped", drop(_BARRIER, 0)),
    Mutant("gemm", "barrier that frees the buffer dropped", drop(_BARRIER, 1)),
    Mutant("gemm", "barrier of the epilogue dropped", drop(_BARRIER, 3)),
    Mutant(
        "gemm",
        "a product of a fragment that is not there yet",
        change(r"ds_read_b128", 1, r"v\[\d+:\d+\]", "v[2:5]"),
    ),
    Mutant("gemm", "LDS allocated too small", change("group_segment_fixed_size", 0, r"\d+$", "16384")),
    Mutant(
        "async",
        "wait for copies to LDS dropped",
        change(r"s_waitcnt vmcnt\(0\) lgkmcnt\(0\)", 0, r"vmcnt\(0\) ", ""),
    ),
    Mutant("async", "a wait for an exchanged address dropped", drop(_LGKM, 12)),
    Mutant("async", "a wait for an exchanged address loosened", loosen(_LGKM, 12)),
    Mutant("async", "wait state behind m0 dropped", drop(r"^\ts_nop 0$", 3)),
    Mutant("async", "barrier behind copies to LDS dropped", drop(_BARRIER, 1)),
    Mutant("async", "wait for copies moved behind the barrier", copies_behind_barrier),
    Mutant("two_buffers", "a wait before a barrier dropped", drop(_LGKM, -3)),
    Mutant("two_buffers", "the loop's only barrier dropped", drop(_BARRIER, 0)),
    Mutant("two_buffers", "a wait for a vector load loosened", loosen(_VM, 6)),
    Mutant("two_buffers", "wait states behind matrix instructions dropped", drop(_NOP, -1)),
)
