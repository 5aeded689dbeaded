"""Upstream's names and calls of batched products and of products with an epilogue, as far as fused_gemm is
what they do.

    gemm_batched_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_32x32x16
    gemm_fp16_rcr_compv3_..._32x32x16_multid_MultiDAdd_d1

Composable Kernel's dispatcher writes the second, with the operation of the epilogue and the number of
matrices D. Kernels keep their configuration under the source ck: fused_gemm_fp16_rcr_residual_ck.gemm...
"""

from __future__ import annotations

import re

from tile_oracle.errors import KernelError, ProblemError
from tile_oracle.kernel import NamedKernel, parse_kernel_name
from tile_oracle.operation.flat import shortened
from tile_oracle.operations.fused_gemm.problem import FusedGemmProblem
from tile_oracle.operations.gemm.problem import GemmProblem

NAME = re.compile(r"\b(?:gemm_batched|batched_gemm)_\w+|\bgemm_\w+?_multid_\w+")
"""Pattern of such a name in running text."""
_PARTS = re.compile(
    r"(?P<batched>gemm_batched_|batched_gemm_)?(?:gemm_)?(?P<dtype>[a-z0-9]+)_(?P<layout>[rc]{3})_(?P<rest>\w+?)"
    r"(?:_multid_(?P<done>\w+)_d(?P<count>\d+))?"
)
_EPILOGUES = {(None, None): "none", ("MultiDAdd", "1"): "residual", ("FastGelu", "0"): "gelu_tanh"}
"""What is done with the sums, and the number of matrices D -> epilogue."""


def fused_kernel(name: str) -> NamedKernel | None:
    """Returns the kernel of fused_gemm of a name; None for other names. Raises KernelError for one that does
    what fused_gemm cannot say."""
    if NAME.fullmatch(name) is None:
        return None
    parts = _PARTS.fullmatch(name)
    if parts is None:
        raise KernelError(f"{shortened(name)} states no data type and layout of A, B and C")
    epilogue = _EPILOGUES.get((parts["done"], parts["count"]))
    if epilogue is None:
        done = f"{parts['done']} with {parts['count']} matrices D"
        raise KernelError(f"{shortened(name)}: fused_gemm has no epilogue that is {done}")
    plain = parse_kernel_name(f"gemm_{parts['dtype']}_{parts['layout']}_{parts['rest']}")
    try:
        kind = FusedGemmProblem(parts["dtype"], parts["layout"], epilogue, 1, 1, 1).kind
    except ProblemError as error:
        raise KernelError(f"{shortened(name)} is no kernel of fused_gemm: {error}") from None
    values = {name: value for name, value in plain.as_row().items() if name not in ("dtype", "layout")}
    return NamedKernel(kind, "ck", "batched_gemm" if parts["batched"] else "gemm", tuple(values.items()))


def batch_of(one: GemmProblem, count: str) -> tuple[GemmProblem | FusedGemmProblem | None, str]:
    """Returns a batch of a product, which of one is the product, and why there is none."""
    if count in ("", "1"):
        return one, ""
    if not (count.isdigit() and count.isascii()):
        return None, f"a batch: batch_count = {count[:60]!r} is no number of products"
    try:
        return FusedGemmProblem(one.dtype, one.layout, "none", one.M, one.N, one.K, int(count)), ""
    except ProblemError as error:
        return None, f"a batch: {error}"[:300]
