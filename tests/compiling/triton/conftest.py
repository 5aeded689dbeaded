"""Files of Triton kernels, as users write them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

HEAD = """\
import triton
import triton.language as tl
from tile_oracle.triton import gemm
"""

COPY = """
@gemm(grid=lambda meta: (triton.cdiv(meta["M"], meta["BLOCK"]),), dtypes=["bf16"], layouts=["rcr"])
@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 64}, num_warps=4),
        triton.Config({"BLOCK": 128, "waves_per_eu": 2}, num_warps=8, num_stages=2),
    ],
    key=["M"],
)
@triton.jit
def copy(a_ptr, c_ptr, M, N, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(c_ptr + rows * N, tl.load(a_ptr + rows, mask=rows < M), mask=rows < M)
"""
"""It copies a few values: it compiles fast, and computes no product."""


@pytest.fixture
def copy_file(tmp_path: Path) -> Path:
    """A file with one function and two configurations, one of them for AMD's GPUs alone."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed (pip install 'tile-oracle[triton]')")
    path = tmp_path / "copying.py"
    path.write_text(HEAD + COPY)
    return path
