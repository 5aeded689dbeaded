"""The files that `tile-oracle new` writes: name -> text, with NAME and CLASS to be replaced."""

from __future__ import annotations

from collections.abc import Mapping

KERNELS: Mapping[str, str] = {
    "NAME.py": '''\
"""Kernels in Triton for tile-oracle. Edit, add, and check again; on a GPU leave --target out:

    pytest --problem-set NAME.csv --kernels NAME.py --target interpret --allow not-timed
"""

import triton
import triton.language as tl

from tile_oracle.triton import gemm

# Each configuration becomes a kernel. Its names are constexpr arguments of the function, or Triton's options.
CONFIGS = [
    {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 4},
    {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4},
]


# What the function computes: C = A B. softmax, rms_norm, attention and grouped_conv are there, too.
@gemm(
    dtypes=["bf16", "fp16"],
    layouts=["rcr"],
    grid=lambda meta: (triton.cdiv(meta["M"], meta["BLOCK_M"]), triton.cdiv(meta["N"], meta["BLOCK_N"])),
    configs=CONFIGS,
)
@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        in_a, in_b = (m < M) & (k[None, :] < K), (n < N) & (k[:, None] < K)
        a = tl.load(a_ptr + m * stride_am + k[None, :] * stride_ak, mask=in_a, other=0.0)
        b = tl.load(b_ptr + k[:, None] * stride_bk + n * stride_bn, mask=in_b, other=0.0)
        sums = tl.dot(a, b, sums)
    to = c_ptr + m * stride_cm + n * stride_cn
    tl.store(to, sums.to(c_ptr.dtype.element_ty), mask=(m < M) & (n < N))
''',
    "NAME.csv": """\
op,dtype,layout,M,N,K
gemm,bf16,rcr,33,70,100
gemm,fp16,rcr,64,64,128
""",
}
"""`tile-oracle new kernels`."""

OPERATION: Mapping[str, str] = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "NAME"
version = "1.0"
dependencies = ["tile-oracle"]

# How tile-oracle finds the operation.
[project.entry-points."tile_oracle.operations"]
NAME = "NAME_operation.descriptor:OPERATION"

[tool.setuptools]
packages = ["NAME_operation"]
package-data = { NAME_operation = ["rules/*.json"] }
""",
    "NAME_operation/__init__.py": "",
    "NAME_operation/descriptor.py": '''\
"""The operation NAME: what tile-oracle asks about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.operations.rowwise import RowKernel, RowProblem, row_operation, unit


@dataclass(frozen=True)
class CLASSProblem(RowProblem):
    """The fields are the columns of problem sets and of records: no name that all records have."""

    tokens: int
    NAME_width: int

    op: ClassVar[str] = "NAME"
    flops_per_element: ClassVar[int] = 3
    weighted: ClassVar[bool] = False  # True: a second operand with one weight for each column


@dataclass(frozen=True)
class CLASSKernel(RowKernel):
    """A kernel for each data type and number of `lanes`, the elements that are reduced side by side."""

    op: ClassVar[str] = "NAME"


# Computes one row in fp32; load and store convert. Here: y = x / sum of |x|.
OF_ROW = """
static void of_row(const Element *x, const Element *w, Element *y, int64_t columns) {
  float sum[LANES] = {};
  for (int64_t c = 0; c < columns; ++c) sum[c % LANES] += __builtin_fabsf(load(x[c]));
  for (int i = 1; i < LANES; ++i) sum[0] += sum[i];
  for (int64_t c = 0; c < columns; ++c) y[c] = store(load(x[c]) / sum[0]);
}
"""


def cpu_source(kernel: CLASSKernel) -> str:
    return unit(kernel, OF_ROW)


OPERATION = row_operation(
    CLASSProblem,
    CLASSKernel,
    plural="NAME problems",
    package=__package__,
    cpu_source=cpu_source,
)
''',
    "NAME_operation/on_device.py": '''\
"""What is right, for worker processes: the definition in fp64, and how far fp32 may be off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tile_oracle.operations.rowwise.on_device import UNIT, Exact, Reference, RowsInWorker, error_of_sum


def definition(operands: Sequence[Exact]) -> Reference:
    (matrix,) = operands  # and the weights, if the problem is weighted
    value = matrix / np.abs(matrix).sum(axis=1, keepdims=True)
    # Relative: of a sum of that many terms, and of a quotient.
    return Reference(value, np.full(value.shape, error_of_sum(matrix.shape[1]) + 2 * UNIT))


WORKER = RowsInWorker(definition)
''',
    "NAME_operation/rules/tiny.json": '{"NAME": [{"arch": ["cpu"], "lanes": [1, 16]}]}\n',
    "NAME_operation/rules/default.json": '{"NAME": [{"arch": ["cpu"], "lanes": [1, 4, 16, 32]}]}\n',
    "NAME.csv": "op,dtype,tokens,NAME_width\nNAME,fp32,4,100\nNAME,bf16,33,1000\n",
    "test_NAME.py": '''\
"""The kernels of NAME are right: pytest measures each on the problem set, in a process of its own."""

import subprocess
import sys
from pathlib import Path


def test_every_kernel_is_right(tmp_path):
    problems = Path(__file__).with_name("NAME.csv")
    options = ["--target", "cpu", "--model", "none", "--kernel-budget", "1ms", "--report-dir", str(tmp_path)]
    session = [sys.executable, "-m", "pytest", "--problem-set", str(problems), *options]
    done = subprocess.run(session, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
''',
}
"""`tile-oracle new operation`."""
