"""Whether an architecture can compute with fp8 and fp4 operands."""

from __future__ import annotations

from tile_oracle.arch.table import load_arch
from tile_oracle.operation import Kind

_SUM_BITS = 24
"""Of fp32, in which the check of the operation gemm lets products of fp8 add up."""


def fp8_refusal(kind: Kind, arch: str) -> str | None:
    """Returns why products of a kind cannot be checked on the architecture, or None. Formats are OCP's."""
    dtype = kind.dtype
    if not dtype.startswith(("fp8", "fp4")):
        return None
    found = load_arch(arch)
    why = f"dtype {dtype!r} has no code for {arch}: "
    if kind.words.get("scale") == "mx" and not found.mx_formats:
        return f"{dtype} with MX scales has no code for {arch}: its matrix unit does not multiply MX formats"
    if found.fp8_format == "fnuz":
        return (
            f"{why}operands are OCP's e4m3 or e5m2, and its matrix unit reads e4m3 as fnuz, in which the "
            "same bits are different numbers"
        )
    if not found.fp8_format:
        return f"{why}kernels/arch_specs.json states no fp8 format of its matrix unit"
    if dtype == "fp8" and found.fp8_sum_bits < _SUM_BITS:
        return (
            f"{why}its matrix unit multiplies fp8 and adds up in {found.fp8_sum_bits} bits, but gemm's check "
            f"demands {_SUM_BITS}; the operation scaled_gemm has a check and kernels for it"
        )
    return None
