"""Translation units of GEMMs on GPUs (see `tile_oracle.operation.descriptor`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tile_oracle.arch import load_arch
from tile_oracle.arch.table import fp8_refusal
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.operations.gemm.problem import RESULT_DTYPES

HEADER = "gemm"

GPU_DTYPES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"amdgcn": ("bf16", "fp16", "fp32", "fp8"), "nvptx": ("bf16", "fp16")}
)

_ASYNCHRONOUS = ("basic_async_v1", "comp_async")
"""Pipelines whose tiles are copied to LDS without passing through registers."""

_LOAD_BYTES, _REGISTER_BYTES = 16, 4
_FULL_WORKGROUP = 256
"""Work-items that fill the registers of a compute unit when each has 512."""

_MOST_HELD, _MOST_HELD_WITH_LITTLE_ELSE = 256, 320
"""Registers per lane for accumulators and prefetched tiles in a full workgroup. The second value is for
kernels that hold little else: no operand is transposed on its way to LDS, no fragments wait for a whole
cluster, and offsets are those of one tile."""

_MOST_LOADS = 23
"""Most loads of a work-item for a tile, whose addresses also take registers."""

_STORE_BYTES = 16
"""Most bytes of one store."""


def code_refusal(kernel: GemmKernel, arch: str) -> str | None:
    """Refuses fp8 with a layout other than rcr or a format other than OCP's, and kernels that need too many
    registers or too much LDS."""
    if kernel.dtype == "fp8" and kernel.layout != "rcr":
        return f"layout {kernel.layout!r} of fp8 has no code for GPUs: there is rcr"
    if (why := fp8_refusal(kernel.kind, arch)) is not None:
        return why
    return _too_many_registers(kernel, arch) or _too_much_lds(kernel, arch)


def _too_much_lds(kernel: GemmKernel, arch: str) -> str | None:
    """Returns why the result that cshuffle exchanges does not fit in LDS, or None. It reuses the memory of
    the tiles, whose size the architecture's own rules check."""
    rules = load_arch(arch)
    result_bytes = rules.element_bytes[RESULT_DTYPES[kernel.dtype]]
    needed = int(kernel.tile_m * kernel.tile_n * result_bytes) if kernel.epilogue == "cshuffle" else 0
    if needed <= rules.lds_limit_bytes:
        return None
    return (
        f"LDS: {needed:,} bytes for the exchange of cshuffle exceed the {rules.lds_limit_bytes:,} of {arch}"
    )


def _too_many_registers(kernel: GemmKernel, arch: str) -> str | None:
    """Returns why accumulators and prefetched tiles of a lane would spill registers, or None."""
    rules = load_arch(arch)
    threads = rules.workgroup_threads(kernel)
    sums = kernel.tile_m * kernel.tile_n // threads
    tile_bytes = int((kernel.tile_m + kernel.tile_n) * kernel.tile_k * rules.element_bytes[kernel.dtype])
    loads = tile_bytes // (threads * _LOAD_BYTES)
    tiles = 1
    if kernel.pipeline in _ASYNCHRONOUS:
        tiles = 0
    elif kernel.pipeline == "mem":
        tiles = 2 if threads >= 512 or loads >= 8 else 4 if loads <= 4 else 3
    prefetched = tiles * loads * _LOAD_BYTES // _REGISTER_BYTES
    most = _MOST_HELD // max(1, threads // _FULL_WORKGROUP)
    little_else = kernel.layout == "rcr" and kernel.scheduler == "intrawave" and kernel.pipeline != "compv4"
    if kernel.dtype == "fp32" or (sums > most // 2 and (kernel.persistent or kernel.dtype == "fp8")):
        little_else = False
    if little_else and threads == _FULL_WORKGROUP:
        most = _MOST_HELD_WITH_LITTLE_ELSE
    if sums + prefetched > most:
        return (
            f"registers: {sums} for accumulators and {prefetched} for prefetched tiles exceed the "
            f"{most} that {kernel.pipeline} has for them in a workgroup of {threads}"
        )
    if loads > _MOST_LOADS and not little_else:
        return f"loads: {loads} per work-item and tile are too many, at most {_MOST_LOADS}"
    return None


def macros(kernel: GemmKernel, arch: str) -> dict[str, object]:
    """Vectors are as wide as the tile allows. Tiles are double-buffered if the pipeline requires it."""
    rules = load_arch(arch)
    a, b, _ = rules.widest_vectors(kernel.dtype, kernel.tile, kernel.waves)
    vectors = (a, b, int(_STORE_BYTES / rules.element_bytes[RESULT_DTYPES[kernel.dtype]]))
    return {
        "TO_LAYOUT": f"TO_{kernel.layout.upper()}",
        "TO_PERSISTENT": int(kernel.persistent),
        "TO_DSB": int(rules.double_buffered(kernel)),
        **{f"TO_VECTOR_{axis}": width for axis, width in zip("ABC", vectors, strict=True)},
    }
