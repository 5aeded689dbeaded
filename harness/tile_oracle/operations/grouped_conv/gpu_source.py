"""Translation units of convolutions on GPUs (see `tile_oracle.operation.descriptor`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tile_oracle.arch import load_arch
from tile_oracle.compiling.isa import GPU_MACHINES
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel

HEADER = "grouped_conv"

GPU_DTYPES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"amdgcn": ("bf16", "fp16", "fp32"), "nvptx": ("bf16", "fp16")}
)

_ROW_BYTES, _ROW_BYTES_OF_ONE_IMAGE = 24, 16
"""PixelRow of kernels/gpu/operands.hpp: a pointer (split_image: an offset) and three positions."""


def code_refusal(kernel: GroupedConvKernel, arch: str) -> str | None:
    """Refuses specializations, and kernels whose tiles (or the result that cshuffle exchanges) do not fit in
    LDS beside the table of rows of forward and bwd_data."""
    if kernel.specialization != "Default":
        return f"specialization {kernel.specialization}: kernels/gpu only has code for all filters"
    if GPU_MACHINES[arch] != "amdgcn":
        return None
    rules = load_arch(arch)
    row_bytes = _ROW_BYTES_OF_ONE_IMAGE if kernel.split_image else _ROW_BYTES
    table = 0 if kernel.direction == "bwd_weight" else kernel.tile_m * row_bytes
    exchanged = 0
    if kernel.epilogue == "cshuffle":
        stored = rules.element_bytes["fp32" if kernel.two_stage else kernel.dtype]
        exchanged = int(kernel.tile_m * kernel.tile_n * stored)
    # The exchange reuses the memory of the tiles, the table does not.
    for needed, what in ((rules.lds_bytes(kernel), "tiles"), (exchanged, "the exchange of cshuffle")):
        if needed + table > rules.lds_limit_bytes:
            return (
                f"LDS: {needed:,} bytes for {what} and {table:,} for the table of rows exceed the "
                f"{rules.lds_limit_bytes:,} of {arch}"
            )
    return None


def macros(kernel: GroupedConvKernel, arch: str) -> dict[str, object]:
    """Direction, rank, options and vector widths of the kernel."""
    return {
        "TO_DIRECTION": f"TO_{kernel.direction.upper()}",
        "TO_NDIM": kernel.ndim,
        "TO_DSB": int(kernel.double_smem_buffer),
        "TO_SPLIT_IMAGE": int(kernel.split_image),
        "TO_GROUPS_TO_MERGE": kernel.num_groups_to_merge,
        "TO_EXPLICIT_GEMM": int(kernel.explicit_gemm),
        "TO_TWO_STAGE": int(kernel.two_stage),
        **{f"TO_VECTOR_{axis}".upper(): getattr(kernel, f"vector_{axis}") for axis in "abc"},
    }
