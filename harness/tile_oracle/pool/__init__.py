"""Pools: the kernels that are candidates on an architecture, made from rules.

A pool is for one kind of problem (direction, data type, rank; of GEMM data type, layout). What one
problem asks of a kernel beyond that is `Arch.problem_refusal`: such kernels stay in the pool, and are
counted as unsupported.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from operator import attrgetter

from tile_oracle.arch import CONTIGUOUS_CHANNELS, Arch, Triple, load_arch
from tile_oracle.errors import KernelError, RuleError
from tile_oracle.json_tree import shown
from tile_oracle.kernel import GemmKernel, GroupedConvKernel, Kernel
from tile_oracle.kernel_filter import KernelFilter
from tile_oracle.pool.gemm_rules import GemmRuleBlock
from tile_oracle.pool.rule_parts import TileRule
from tile_oracle.pool.rules import RuleBlock, RuleSet, VectorRule, list_rule_sets, load_rule_set, rules_of
from tile_oracle.problem import DIRECTIONS, DTYPES, GEMM_DTYPES, GEMM_LAYOUTS, Kind, Problem, kind_text

__all__ = [
    "PoolExplanation",
    "Refused",
    "RuleSet",
    "explain_gemm_pool",
    "explain_pool",
    "explain_pool_of_kind",
    "gemm_pool",
    "kernel_pool",
    "list_rule_sets",
    "load_rule_set",
    "pool_for_problem",
    "pool_of_kind",
    "rules_of",
]


@dataclass(frozen=True)
class Refused:
    """A kernel that the rules propose and the architecture does not allow, with its first reason."""

    kernel: Kernel
    reason: str

    @property
    def rule(self) -> str:
        """What the reason is about: the word before its colon (`LDS`, `waves`, `scheduler`, ...)."""
        return self.reason.partition(":")[0]


@dataclass(frozen=True)
class PoolExplanation:
    """What became of every kernel that a rule set proposes for one kind of problem.

    accepted: the pool; refused: by the architecture; filtered_out: allowed, but not wanted by the
    filter. All sorted and without repetition.
    """

    accepted: tuple[Kernel, ...]
    refused: tuple[Refused, ...]
    filtered_out: tuple[Kernel, ...]

    @cached_property
    def reasons(self) -> dict[str, int]:
        """Reason -> how many kernels it refuses; the most frequent first."""
        return dict(Counter(refused.reason for refused in self.refused).most_common())

    @cached_property
    def rules(self) -> dict[str, int]:
        """What reasons are about (`Refused.rule`) -> how many kernels; the most frequent first."""
        return dict(Counter(refused.rule for refused in self.refused).most_common())


def kernel_pool(
    direction: str,
    dtype: str,
    ndim: int,
    arch: str | Arch,
    rules: str = "default",
    where: KernelFilter | None = None,
) -> tuple[Kernel, ...]:
    """The kernels that `rules` (a set's name, or a .json file) make on `arch`, sorted and unique.

    Raises RuleError for an unknown architecture or rule set, for a kind of problem that the rules
    say nothing about, and for a filter that cannot be applied.
    """
    return explain_pool(direction, dtype, ndim, arch, rules, where).accepted


def pool_for_problem(
    problem: Problem, arch: str | Arch, rules: str = "default", where: KernelFilter | None = None
) -> tuple[Kernel, ...]:
    """The pool of the problem's kind; kernels that refuse this very problem are still in it."""
    return pool_of_kind(problem.kind, arch, rules, where)


def pool_of_kind(
    kind: Kind, arch: str | Arch, rules: str = "default", where: KernelFilter | None = None
) -> tuple[Kernel, ...]:
    """The pool of a kind of problem, of whatever operation. Raises RuleError as `kernel_pool` does."""
    return explain_pool_of_kind(kind, arch, rules, where).accepted


def explain_pool_of_kind(
    kind: Kind, arch: str | Arch, rules: str = "default", where: KernelFilter | None = None
) -> PoolExplanation:
    """The same with all that is not in the pool, and why. Raises RuleError as `kernel_pool` does."""
    first, dtype, last = kind
    if isinstance(last, int):
        return explain_pool(first, dtype, last, arch, rules, where)
    return explain_gemm_pool(dtype, last, arch, rules, where)


def gemm_pool(
    dtype: str,
    layout: str,
    arch: str | Arch,
    rules: str = "default",
    where: KernelFilter | None = None,
) -> tuple[Kernel, ...]:
    """The GEMM kernels that `rules` make on `arch`. Raises RuleError as `kernel_pool` does."""
    return explain_gemm_pool(dtype, layout, arch, rules, where).accepted


def explain_pool(
    direction: str,
    dtype: str,
    ndim: int,
    arch: str | Arch,
    rules: str = "default",
    where: KernelFilter | None = None,
) -> PoolExplanation:
    """The same with all that is not in the pool, and why. Raises RuleError as `kernel_pool` does."""
    for name, value, known in (
        ("direction", direction, DIRECTIONS),
        ("dtype", dtype, DTYPES),
        ("ndim", ndim, (2, 3)),
    ):
        if value not in known:
            raise RuleError(f"{name} {shown(str(value))} is not one of {', '.join(map(str, known))}")
    return _explain((direction, dtype, ndim), _loaded(arch), load_rule_set(rules), where)


def explain_gemm_pool(
    dtype: str,
    layout: str,
    arch: str | Arch,
    rules: str = "default",
    where: KernelFilter | None = None,
) -> PoolExplanation:
    """`explain_pool` for GEMM. Raises RuleError as `kernel_pool` does."""
    for name, value, known in (("dtype", dtype, GEMM_DTYPES), ("layout", layout, GEMM_LAYOUTS)):
        if value not in known:
            raise RuleError(f"{name} {shown(str(value))} is not one of {', '.join(known)}")
    return _explain((GemmKernel.op, dtype, layout), _loaded(arch), load_rule_set(rules), where)


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
    archs = rule_set.archs if isinstance(kind[2], int) else rule_set.gemm_archs
    if arch.name not in archs:
        for_op = "" if isinstance(kind[2], int) else "GEMM "
        raise RuleError(
            f"kernel set {shown(rule_set.name)} has no {for_op}rules for {arch.name}, "
            f"only for {', '.join(archs) or 'other operations'}"
        )
    proposed = _proposed(kind, arch, rule_set)
    if proposed is None:
        raise RuleError(
            f"kernel set {shown(rule_set.name)} has no rules for {kind_text(kind)} on {arch.name}"
        )
    reasons: dict[Kernel, str | None] = {}
    for kernel in proposed:
        if kernel not in reasons:
            reasons[kernel] = arch.refusal(kernel)
    ordered = sorted(reasons, key=_ORDER_OF_CONVOLUTIONS if isinstance(kind[2], int) else _ORDER_OF_GEMMS)
    return PoolExplanation(
        accepted=tuple(kernel for kernel in ordered if reasons[kernel] is None),
        refused=tuple(
            Refused(kernel, reason) for kernel in ordered if (reason := reasons[kernel]) is not None
        ),
        filtered_out=(),
    )


def _proposed(kind: Kind, arch: Arch, rule_set: RuleSet) -> Iterator[Kernel] | None:
    """The kernels of all blocks that cover the kind; None where no block does."""
    first, dtype, last = kind
    if isinstance(last, int):
        blocks = [block for block in rule_set.blocks if block.covers(first, dtype, last, arch.name)]
        parts: list[Iterator[Kernel]] = [_candidates(block, first, dtype, last, arch) for block in blocks]
    else:
        gemm = [block for block in rule_set.gemm if block.covers(dtype, last, arch.name)]
        parts = [_gemm_candidates(block, dtype, last, arch) for block in gemm]
    return itertools.chain.from_iterable(parts) if parts else None


_ORDER_OF_CONVOLUTIONS = attrgetter(*(field.name for field in fields(GroupedConvKernel)))
_ORDER_OF_GEMMS = attrgetter(*(field.name for field in fields(GemmKernel)))
"""The order of a pool: numbers as numbers, tile before pipeline."""


def _candidates(block: RuleBlock, direction: str, dtype: str, ndim: int, arch: Arch) -> Iterator[Kernel]:
    """Every combination of the block's lists; what a rule leaves open is computed for the architecture."""
    others = [
        (pipeline, scheduler, epilogue, double, split, merge, explicit, two_stage, *padding)
        for pipeline in block.pipeline
        for scheduler, epilogue, double, split, merge, explicit, two_stage, padding in itertools.product(
            block.scheduler,
            block.epilogue,
            block.double_smem_buffer or (arch.double_smem_buffer_required(pipeline),),
            block.split_image,
            block.num_groups_to_merge,
            block.explicit_gemm,
            block.two_stage,
            block.padding,
        )
    ]
    for rule in block.tiles:
        for tile, waves, warp_tile in _tilings(rule, block.tile_k, arch.warp_tiles.get(dtype, ())):
            widths = dict.fromkeys(
                _vector_widths(vectors, direction, dtype, tile, waves, arch) for vectors in block.vectors
            )
            for vectors, other in itertools.product(widths, others):
                try:
                    yield GroupedConvKernel(
                        direction, dtype, ndim, *tile, *waves, *warp_tile, *vectors, *other
                    )
                except KernelError as error:
                    raise RuleError(f"{block.place}: {error}") from None


def _gemm_candidates(block: GemmRuleBlock, dtype: str, layout: str, arch: Arch) -> Iterator[Kernel]:
    """Every combination of the block's lists; the K of a warp tile is computed for the pipeline."""
    for pipeline in block.pipeline:
        others = list(itertools.product(block.scheduler, block.epilogue, block.padding, block.persistent))
        shuffled = pipeline.startswith("preshuffle")
        listed = (arch.preshuffle_warp_tiles if shuffled else arch.warp_tiles).get(dtype, ())
        for rule in block.tiles:
            for tile, waves, warp_tile in _tilings(rule, block.tile_k, listed):
                for scheduler, epilogue, padding, persistent in others:
                    try:
                        yield GemmKernel(
                            *(dtype, layout, *tile, *waves, *warp_tile),
                            *(pipeline, scheduler, epilogue, *padding, persistent),
                        )
                    except KernelError as error:
                        raise RuleError(f"{block.place}: {error}") from None


def _tilings(
    rule: TileRule, tile_ks: Sequence[int], listed: Sequence[Triple]
) -> Iterator[tuple[Triple, Triple, Triple]]:
    """Tile, waves and warp tile of each tiling that a tile rule stands for."""
    tile_m, tile_n, fixed_k = rule.tile
    for tile_k in tile_ks if fixed_k is None else (fixed_k,):
        for waves in rule.waves:
            for warp_m, warp_n, warp_k in rule.warp_tiles:
                if warp_k is None:
                    warp_k = _deepest(listed, warp_m, warp_n, tile_k, waves[2])
                yield (tile_m, tile_n, tile_k), waves, (warp_m, warp_n, warp_k)


def _deepest(listed: Sequence[Triple], warp_m: int, warp_n: int, tile_k: int, wave_k: int) -> int:
    """The K of a warp tile given its m and n: the deepest that is listed and divides the tile.

    A matrix instruction does a fixed number of multiplications, so its depth follows from m x n and
    the data type; the list has the native depth and the multiples that chain instructions, and the
    deepest one needs the fewest address computations. Where none fits, the shallowest (or, with none
    listed, the tile's own depth) stands for the refusal that the architecture then gives.
    """
    depths = sorted(k for m, n, k in listed if (m, n) == (warp_m, warp_n))
    fitting = [k for k in depths if tile_k % (wave_k * k) == 0]
    return fitting[-1] if fitting else depths[0] if depths else tile_k


def _vector_widths(
    rule: VectorRule, direction: str, dtype: str, tile: Triple, waves: Triple, arch: Arch
) -> Triple:
    if rule.widths is not None:
        return rule.widths
    widest = arch.widest_vectors(dtype, tile, waves)
    if arch.kernels.fixed_vectors is not None:
        return widest
    multiples = {"C": rule.input_multiple, "K": rule.output_multiple}
    a, b, c = (
        min(width, multiples[channel] or width)
        for width, (channel, _) in zip(widest, CONTIGUOUS_CHANNELS[direction], strict=True)
    )
    return (a, b, c)
