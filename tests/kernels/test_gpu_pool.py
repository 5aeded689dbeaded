"""What the rules allow on gfx950 compiles for it and keeps within the hardware: no spills, no scratch, LDS.

The set `tiny` by default; TILE_ORACLE_POOL=default looks at every kernel of that set (about ten minutes, and
as long again for GEMMs).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from harness.arch import load_arch
from harness.build.builder import Builder
from harness.build.code_facts import code_facts
from harness.build.source import gpu_code_refusal
from harness.kernel import Kernel
from harness.pool import gemm_pool, kernel_pool
from harness.problem import GEMM_LAYOUTS

RULES = os.environ.get("TILE_ORACLE_POOL", "tiny")
LDS_BYTES = load_arch("gfx950").lds_limit_bytes
MOST_VGPRS = 512


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    with Builder("gfx950", build_dir=tmp_path_factory.mktemp("pool")) as builder:
        yield builder


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("direction", ["forward", "bwd_data", "bwd_weight"])
def test_every_kernel_fits(direction: str, ndim: int, builder: Builder) -> None:
    assert what_does_not_fit(kernel_pool(direction, "bf16", ndim, "gfx950", RULES), builder) == []


@pytest.mark.parametrize("layout", GEMM_LAYOUTS)
def test_every_gemm_fits(layout: str, builder: Builder) -> None:
    kernels = gemm_pool("bf16", layout, "gfx950", RULES)
    coded = [kernel for kernel in kernels if gpu_code_refusal(kernel, "gfx950") is None]
    assert len(coded) >= len(kernels) * 0.8
    bad = what_does_not_fit(coded, builder)
    # What needs more registers than there are is refused when it is compiled.
    assert [text for text in bad if "a lane has no registers" not in text] == []
    assert len(bad) < len(coded) * 0.2


def what_does_not_fit(kernels: Sequence[Kernel], builder: Builder) -> list[str]:
    """The kernels with what is wrong with them."""
    for kernel in kernels:
        builder.submit(kernel)
    bad: list[str] = []
    for kernel in kernels:
        built = builder.need(kernel)
        if built.binary is None:
            bad.append(f"{kernel.name}: {built.log}")
            continue
        facts = code_facts(Path(built.binary.path), "gfx950")
        assert facts.vgprs is not None
        assert facts.lds_bytes is not None
        if facts.spills or facts.scratch_bytes or facts.lds_bytes > LDS_BYTES or facts.vgprs > MOST_VGPRS:
            bad.append(f"{kernel.name}: {facts}")
    return bad
