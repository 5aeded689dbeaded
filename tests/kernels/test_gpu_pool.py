"""What the rules allow on gfx950 compiles for it and keeps within the hardware: no spills, no scratch, LDS.

The set `tiny` by default; TILE_ORACLE_POOL=default looks at every kernel of that set (about ten minutes).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.arch import load_arch
from harness.build.builder import Builder
from harness.build.code_facts import code_facts
from harness.pool import kernel_pool

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
    kernels = kernel_pool(direction, "bf16", ndim, "gfx950", RULES)
    for kernel in kernels:
        builder.submit(kernel)
    bad: list[str] = []
    for kernel in kernels:
        built = builder.need(kernel)
        if built.binary is None:
            bad.append(f"{kernel.name}: {built.log[-300:]}")
            continue
        facts = code_facts(Path(built.binary.path), "gfx950")
        assert facts.vgprs is not None
        assert facts.lds_bytes is not None
        if facts.spills or facts.scratch_bytes or facts.lds_bytes > LDS_BYTES or facts.vgprs > MOST_VGPRS:
            bad.append(f"{kernel.name}: {facts}")
    assert bad == []
