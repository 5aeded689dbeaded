"""Pools of GEMM kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pools import gemm_pool, kernel_pool
from tile_oracle.arch import load_arch
from tile_oracle.errors import RuleError
from tile_oracle.operation import Kind
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS, GemmProblem
from tile_oracle.pool import explain_pool_of_kind, load_rule_set, pool_of_kind
from tile_oracle.pool.kernel_filter import KernelFilter

KINDS = [("gfx950", dtype, layout) for dtype in ("bf16", "fp16", "fp8") for layout in GEMM_LAYOUTS]
KINDS += [("cpu", dtype, layout) for dtype in ("bf16", "fp16", "fp32") for layout in ("rcr", "rrr", "crr")]


@pytest.mark.parametrize(("arch", "dtype", "layout"), KINDS)
def test_a_pool_holds_allowed_kernels_of_its_kind_sorted_and_once(arch: str, dtype: str, layout: str) -> None:
    pool = gemm_pool(dtype, layout, arch)
    assert len(set(pool)) == len(pool)
    assert len({kernel.name for kernel in pool}) == len(pool)
    kind = Kind.of("gemm", dtype=dtype, layout=layout)
    assert all(isinstance(k, GemmKernel) and k.kind == kind for k in pool)
    assert all(load_arch(arch).refusal(kernel) is None for kernel in pool)
    assert [k.tile for k in pool] == sorted(k.tile for k in pool)
    assert pool == pool_of_kind(kind, arch)
    assert pool == pool_of_kind(GemmProblem(dtype, layout, 5, 6, 7).kind, arch)


@pytest.mark.parametrize(("arch", "dtype", "layout"), [k for k in KINDS if k[1] in ("bf16", "fp16")])
def test_each_smaller_set_is_a_subset_of_the_larger(arch: str, dtype: str, layout: str) -> None:
    tiny, tests, full = (set(gemm_pool(dtype, layout, arch, s)) for s in ("tiny", "full-tests", "full"))
    assert tiny < tests < full
    assert set(gemm_pool(dtype, layout, arch)) < full
    assert len(tiny) == 6


@pytest.mark.parametrize("layout", GEMM_LAYOUTS)
def test_every_problem_has_kernels_that_can_compute_it(layout: str) -> None:
    arch = load_arch("gfx950")
    pool = gemm_pool("bf16", layout, arch)
    for sizes in ((1, 1, 1), (1, 4096, 4096), (127, 1, 131), (64, 64, 1), (4096, 4096, 4096)):
        problem = GemmProblem("bf16", layout, *sizes)
        able = [kernel for kernel in pool if arch.problem_refusal(kernel, problem) is None]
        assert len(able) >= len(pool) // 2


def test_b_is_shuffled_only_for_rcr_with_its_own_warp_tiles() -> None:
    for layout in GEMM_LAYOUTS:
        shuffled = [k for k in gemm_pool("bf16", layout, "gfx950") if k.pipeline == "preshufflev2"]
        assert bool(shuffled) == (layout == "rcr")
    assert {k.warp_tile for k in gemm_pool("bf16", "rcr", "gfx950") if k.pipeline == "preshufflev2"} == {
        (16, 16, 64),
        (32, 32, 32),
    }


def test_what_is_refused_is_counted_with_its_reason() -> None:
    explained = explain_pool_of_kind(Kind.of("gemm", dtype="fp8", layout="rcr"), "cpu")
    assert explained.accepted == ()
    assert list(explained.reasons) == ["dtype: cpu has kernels for bf16, fp16, fp32, not for fp8"]
    refused = explain_pool_of_kind(Kind.of("gemm", dtype="bf16", layout="rcr"), "gfx950").rules
    assert set(refused) == {"scheduler", "LDS"}


def test_a_filter_narrows_a_pool_and_knows_the_fields_of_each_operation() -> None:
    kind = Kind.of("gemm", dtype="bf16", layout="rcr")
    kept = pool_of_kind(kind, "gfx950", where=KernelFilter("persistent and tile_m == 128 and warp_n == 2"))
    assert kept
    assert all(
        k.persistent and k.tile_m == 128 and k.waves[1] == 2 for k in kept if isinstance(k, GemmKernel)
    )
    with pytest.raises(RuleError, match="gemm kernels have no split_image; fields: dtype, layout"):
        pool_of_kind(kind, "gfx950", where=KernelFilter("tile_m > 1 and split_image"))
    with pytest.raises(RuleError, match="grouped_conv kernels have no layout; fields: direction"):
        kernel_pool("forward", "bf16", 2, "gfx950", where=KernelFilter("layout == 'rcr'"))
    with pytest.raises(RuleError, match="'rcc'"):
        KernelFilter("layout == 'rcc'")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bf17", "rcr", "gfx950"), "dtype 'bf17' is not one of bf16, fp16, fp8, fp32"),
        (("bf16", "rcc", "gfx950"), "layout 'rcc' is not one of rcr, rrr, crr, ccr"),
        (("bf16", "rcr", "gfx1100"), "kernel set 'default' has no rules for gfx1100, only for gfx908.*GEMMs"),
        (("fp8", "rcr", "gfx942", "tiny"), "kernel set 'tiny' has no rules for gemm fp8 rcr on gfx942"),
    ],
)
def test_a_kind_without_rules_is_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        gemm_pool(*arguments)


BLOCK = {
    "arch": ["cpu"],
    "tiles": [{"tile": "64x64x64", "waves": "1x1x1", "warp_tile": "8x32x1"}],
    "pipeline": ["mem"],
}


def test_a_users_rule_set_may_have_only_gemm(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"gemm": [BLOCK]}))
    (kernel,) = gemm_pool("bf16", "rcr", "cpu", str(path))
    assert kernel.tile == (64, 64, 64)
    assert load_rule_set(str(path)).archs("grouped_conv") == ()
    with pytest.raises(RuleError, match="has no rules for cpu, only for other operations"):
        kernel_pool("forward", "bf16", 2, "cpu", str(path))


@pytest.mark.parametrize(
    ("gemm", "message"),
    [
        ([BLOCK | {"direction": ["forward"]}], "direction"),
        ([BLOCK | {"layout": ["rcc"]}], "rcc"),
        ([BLOCK | {"persistent": []}], "empty list makes no kernels"),
        ([BLOCK | {"persistent": ["yes"]}], "yes"),
    ],
)
def test_unusable_rules_are_refused_in_one_line(gemm: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"gemm": gemm}))
    with pytest.raises(RuleError, match=message) as caught:
        gemm_pool("bf16", "rcr", "cpu", str(path))
    assert "\n" not in str(caught.value)
