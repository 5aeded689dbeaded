"""Pools: the candidate kernels of an architecture, generated from rules.

A pool is for one kind of problem (direction, data type and rank; data type and layout for GEMM). Further
requirements of a single problem are in `Arch.problem_refusal`: kernels that do not meet them stay in the pool
and count as unsupported.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import attrgetter

from tile_oracle.arch import Arch, load_arch
from tile_oracle.errors import RuleError
from tile_oracle.files.json_tree import shown
from tile_oracle.kernel import Kernel
from tile_oracle.operation import Kind, operation_named
from tile_oracle.pool.kernel_filter import KernelFilter
from tile_oracle.pool.rule_parts import RuleSet
from tile_oracle.pool.rules import (
    list_of_kernels,
    list_rule_sets,
    load_rule_set,
    rules_of,
    sources_of_list,
)
from tile_oracle.problem import kind_text

__all__ = [
    "PoolExplanation", "Refused", "RuleSet", "explain_pool_of_kind", "list_of_kernels", "list_rule_sets",
    "listed_pool", "load_rule_set", "pool_of_kind", "rules_of", "sources_of_list",
]  # fmt: skip


@dataclass(frozen=True)
class Refused:
    """A kernel that the rules propose and the architecture refuses, with the first reason.

    place: its place in the rule set's file; "" where the blocks do not record it.
    """

    kernel: Kernel
    reason: str
    place: str = ""

    @property
    def rule(self) -> str:
        """The subject of the reason: the word before its colon (`LDS`, `waves`, `scheduler`, ...)."""
        return self.reason.partition(":")[0]


@dataclass(frozen=True)
class PoolExplanation:
    """The outcome of every kernel that a rule set proposes for one kind of problem.

    accepted: the pool. refused: refused by the architecture. filtered_out: allowed, but excluded by the
    filter. All are sorted and unique.
    """

    accepted: tuple[Kernel, ...]
    refused: tuple[Refused, ...]
    filtered_out: tuple[Kernel, ...]

    @cached_property
    def reasons(self) -> dict[str, int]:
        """Reason -> number of kernels refused, most frequent first."""
        return dict(Counter(refused.reason for refused in self.refused).most_common())

    @cached_property
    def rules(self) -> dict[str, int]:
        """Subject of the reason (`Refused.rule`) -> number of kernels refused, most frequent first."""
        return dict(Counter(refused.rule for refused in self.refused).most_common())


def pool_of_kind(
    kind: Kind, arch: str | Arch, rules: str = "default", where: KernelFilter | None = None
) -> tuple[Kernel, ...]:
    """Returns the kernels that `rules` (the name of a set, or a .json file) give on `arch` for a kind of
    problem, sorted and unique.

    Raises RuleError for an unknown architecture or rule set, for a kind of problem that the rules do not
    cover, and for a filter that cannot be applied.
    """
    return explain_pool_of_kind(kind, arch, rules, where).accepted


def listed_pool(kind: Kind, arch: str | Arch, rules: str) -> tuple[Kernel, ...]:
    """Returns the pool of a kind, with the kernels in Triton that a list (.json) names besides. Raises
    RuleError."""
    triton = tuple(kernel for kernel in list_of_kernels(rules).triton if kernel.kind == kind)
    covered = load_rule_set(rules).covers(kind, _loaded(arch).name)
    return (*(pool_of_kind(kind, arch, rules) if covered or not triton else ()), *triton)


def explain_pool_of_kind(
    kind: Kind, arch: str | Arch, rules: str = "default", where: KernelFilter | None = None
) -> PoolExplanation:
    """Returns the pool of a kind and the kernels left out of it, with reasons. Raises RuleError."""
    known = operation_named(kind.op).kind_fields
    for name, value in kind.fields:
        if value not in known[name]:
            raise RuleError(f"{name} {shown(str(value))} is not one of {', '.join(map(str, known[name]))}")
    return _explain(kind, _loaded(arch), load_rule_set(rules), where)


def _loaded(arch: str | Arch) -> Arch:
    return load_arch(arch) if isinstance(arch, str) else arch


@lru_cache(maxsize=256)
def _explain(kind: Kind, arch: Arch, rule_set: RuleSet, where: KernelFilter | None) -> PoolExplanation:
    if where is not None:
        whole = _explain(kind, arch, rule_set, None)
        wanted = {kernel: where.matches(kernel) for kernel in whole.accepted}
        return PoolExplanation(
            accepted=tuple(kernel for kernel, matches in wanted.items() if matches),
            refused=whole.refused,
            filtered_out=tuple(kernel for kernel, matches in wanted.items() if not matches),
        )
    operation, archs = operation_named(kind.op), rule_set.archs(kind.op)
    if arch.name not in archs:
        others = " or ".join(f"--op {name}" for name, blocks in rule_set.blocks.items() if blocks)
        raise RuleError(
            f"kernel set {shown(rule_set.name)} has no rules for {arch.name}, "
            f"only for {', '.join(archs) or f'other operations: {others}'} ({operation.plural})"
        )
    covering = rule_set.covering(kind, arch.name)
    if not covering:
        raise RuleError(
            f"kernel set {shown(rule_set.name)} has no rules for {kind_text(kind)} on {arch.name}"
        )
    judge = arch.unlisted if rule_set.of_library else arch
    reasons: dict[Kernel, str | None] = {}
    places: dict[Kernel, str] = {}
    for block in covering:
        for kernel in block.kernels(kind, arch):
            if kernel not in reasons:
                reasons[kernel] = judge.refusal(kernel)
                places[kernel] = getattr(block, "place", "")
    # Sort by fields, so that numbers are ordered numerically.
    ordered = sorted(reasons, key=attrgetter(*operation.kernel_fields))
    return PoolExplanation(
        accepted=tuple(kernel for kernel in ordered if reasons[kernel] is None),
        refused=tuple(
            Refused(kernel, reason, places[kernel])
            for kernel in ordered
            if (reason := reasons[kernel]) is not None
        ),
        filtered_out=(),
    )
