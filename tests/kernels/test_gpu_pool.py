"""Every kernel that the rules allow on gfx950 compiles and fits the hardware: no spills, no scratch, LDS.

A part of the set `tiny`; `make pool` checks every convolution of the set `default` in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pools import gemm_pool, kernel_pool
from tile_oracle.arch import load_arch
from tile_oracle.commands.kernel_code import find_facts, find_offenders
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.source import gpu_code_refusal
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    with Builder("gfx950", build_dir=tmp_path_factory.mktemp("pool")) as builder:
        yield builder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "dtype", "ndim"),
    [("forward", "bf16", 2), ("bwd_data", "bf16", 3), ("bwd_weight", "fp32", 3)],
)
def test_every_kernel_fits(direction: str, dtype: str, ndim: int, builder: Builder) -> None:
    found = find_facts(builder, kernel_pool(direction, dtype, ndim, "gfx950", "tiny"))
    assert len(found) == 8
    assert find_offenders(found, load_arch("gfx950")) == []
    assert all(one.facts.vgprs and one.facts.waves_per_cu for one in found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "layout"), [*(("bf16", layout) for layout in GEMM_LAYOUTS), ("fp32", "crr")]
)
def test_every_gemm_fits(dtype: str, layout: str, builder: Builder) -> None:
    kernels = gemm_pool(dtype, layout, "gfx950", "tiny")
    coded = [kernel for kernel in kernels if gpu_code_refusal(kernel, "gfx950") is None]
    assert len(coded) >= len(kernels) * 0.8
    bad = find_offenders(find_facts(builder, coded), load_arch("gfx950"))
    # Kernels that need too many registers are refused when they are compiled.
    assert [text for _, text in bad if "a lane has no registers" not in text] == []
    assert len(bad) < len(coded) * 0.2
