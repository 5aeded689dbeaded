"""A picker of another maker: asked, timed, and mapped to the pool by one rule that is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.errors import ModelError
from tile_oracle.judge.picker import NO_MODEL, PICKER
from tile_oracle.kernel import Kernel, NamedKernel
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.pickers.installed import Chosen
from tile_oracle.pickers.picker import EXACT, NEAREST, Configuration, distance, nearest
from tile_oracle.problem import Problem

PROBLEMS = [GemmProblem("bf16", "rcr", m, 1024, 512) for m in (16, 64, 256, 1024)]


def kernel(tile: tuple[int, int, int], **values: int) -> NamedKernel:
    named = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True)) | values
    return NamedKernel(PROBLEMS[0].kind, "triton", "tiles", tuple(named.items()))


SMALL = kernel((16, 64, 64), num_warps=4)
LARGE = kernel((128, 128, 64), num_warps=4)
LARGE_8 = kernel((128, 128, 64), num_warps=8)
SPLIT = kernel((128, 128, 64), num_warps=8, SPLIT_K=4)
POOL = (SMALL, LARGE, LARGE_8, SPLIT)


def configuration(m: int, n: int, k: int, **values: int) -> Configuration:
    return Configuration({"tile_m": m, "tile_n": n, "tile_k": k, **values})


@dataclass(frozen=True)
class Told:
    """A picker that says what it is told."""

    choose: Callable[[Problem], Sequence[Kernel | Configuration]]
    maps: bool = True
    name: str = "told"
    identity: str = "told 1.0"

    def pick(self, problem: Problem, pool: Sequence[Kernel]) -> Sequence[Kernel | Configuration]:
        return self.choose(problem)


ANSWERS: dict[int, tuple[Kernel | Configuration, ...]] = {
    16: (configuration(16, 64, 64, split_k=1, warps=4), configuration(128, 128, 64, split_k=1, warps=4)),
    64: (configuration(128, 128, 64, split_k=1, warps=16),),
    256: (configuration(128, 256, 64, split_k=1, warps=8),),
    1024: (kernel((512, 512, 64)), SMALL),
}


def test_exact_choices_mapped_ones_and_lacking_ones_are_told_apart() -> None:
    table, origin = Chosen("told", Told(lambda problem: ANSWERS[problem.M]), "sm_90").rank(
        PROBLEMS, lambda problem: POOL
    )
    best = table.groupby("problem")["kernel"].agg(list).to_dict()
    few, some, more, many = (problem.id for problem in PROBLEMS)
    assert best == {few: [SMALL.name, LARGE.name], some: [LARGE_8.name], more: [LARGE_8.name]}
    assert origin.kind == PICKER
    assert set(origin.mapped) == {some, more}
    assert origin.same_tile == (some,)
    assert origin.mapped[more] == "tile_m=128 tile_n=256 tile_k=64 split_k=1 warps=8"
    assert origin.lacking == {many: kernel((512, 512, 64)).name}, "the second choice does not stand for it"
    assert (origin.rule, origin.identity) == (NEAREST, "told 1.0")
    assert origin.us_per_pick > 0


def test_a_picker_that_is_not_mapped_lacks_what_is_not_in_the_pool() -> None:
    told = Told(lambda problem: ANSWERS[problem.M], maps=False)
    table, origin = Chosen("told", told, "sm_90").rank(PROBLEMS, lambda problem: POOL)
    assert set(table["problem"]) == {PROBLEMS[0].id}
    assert len(origin.lacking) == 3
    assert not origin.mapped


def test_fallbacks_are_counted_and_silence_is_no_pick() -> None:
    default = replace(configuration(128, 128, 64, split_k=1, warps=4), fallback=True)
    told = Told(lambda problem: (default,) if problem.M > 16 else ())
    table, origin = Chosen("told", told, "sm_90").rank(PROBLEMS, lambda problem: POOL)
    assert origin.fallback == tuple(problem.id for problem in PROBLEMS[1:])
    assert set(table["problem"]) == set(origin.fallback)
    nothing, origin = Chosen("told", Told(lambda problem: ()), "sm_90").rank(PROBLEMS, lambda problem: POOL)
    assert nothing is None
    assert origin.kind == NO_MODEL


def test_a_picker_that_fails_is_named() -> None:
    def fail(problem: Problem) -> Sequence[Kernel]:
        raise ZeroDivisionError("no tiles")

    with pytest.raises(ModelError, match=r"told has failed on gemm-.*: ZeroDivisionError: no tiles"):
        Chosen("told", Told(fail), "sm_90").rank(PROBLEMS, lambda problem: POOL)


tiles = st.sampled_from([16, 32, 64, 128, 256])


@given(st.tuples(tiles, tiles, tiles), st.sampled_from([1, 2, 4]), st.sampled_from([4, 8]))
def test_a_kernel_of_the_pool_is_always_its_own_nearest(
    tile: tuple[int, int, int], split_k: int, warps: int
) -> None:
    own = kernel(tile, num_warps=warps, **({"SPLIT_K": split_k} if split_k > 1 else {}))
    chosen = configuration(*tile, split_k=split_k, warps=warps)
    assert distance(chosen, own) == EXACT
    found = nearest(chosen, (*POOL, own))
    assert found[1] == EXACT
    assert distance(chosen, found[0]) == EXACT


def test_what_a_choice_cannot_mean_is_never_its_kernel() -> None:
    chosen = replace(configuration(128, 128, 64, split_k=1), among=lambda one: one is SMALL)
    found = nearest(chosen, POOL)
    assert found[0] is SMALL
    assert nearest(replace(chosen, among=lambda one: False), POOL) is None
