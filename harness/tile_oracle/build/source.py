"""Kernel -> translation unit, one generator an architecture, and the headers that it includes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from tile_oracle.arch import load_arch
from tile_oracle.build.isa import GPU_MACHINES
from tile_oracle.data_files import data_folder
from tile_oracle.errors import BuildError, KernelError
from tile_oracle.kernel import GemmKernel, GroupedConvKernel, Kernel
from tile_oracle.operation import operation_named
from tile_oracle.problem.gemm import RESULT_DTYPES

ABI_VERSION = 1
"""TILE_ORACLE_ABI_VERSION of kernels/cpu/abi.h: what a worker knows how to call."""

GPU_PIPELINES = ("basic_v1", "basic_async_v1", "mem", "compv3", "compv4", "compv5", "compv6", "comp_async")
"""What kernels/gpu has code for; there a name is the same in capitals."""

GPU_DTYPES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"amdgcn": ("bf16", "fp16", "fp32"), "nvptx": ("bf16", "fp16")}
)
"""Machine of `tile_oracle.build.isa` -> what kernels/gpu multiplies there."""

DEVICE_WORK = "device_work"
"""What goes beside a GPU's kernels: the harness's own work on the device, named so in folders of binaries."""

GPU_GEMM_DTYPES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {**GPU_DTYPES, "amdgcn": (*GPU_DTYPES["amdgcn"], "fp8")}
)
"""The same of GEMMs."""

_ASYNCHRONOUS = ("basic_async_v1", "comp_async")
"""Whose tiles pass no registers."""

_LOAD_BYTES, _REGISTER_BYTES = 16, 4
_FULL_WORKGROUP = 256
"""Work-items that fill the registers of a compute unit with 512 each."""

_MOST_HELD, _MOST_HELD_WITH_LITTLE_ELSE = 256, 320
"""Registers of a lane for sums and tiles under way in a full workgroup. Little else: no operand is turned on
its way to LDS, no fragments wait for a whole cluster, offsets are of one tile."""

_MOST_LOADS = 23
"""For a tile, by a work-item, whose addresses take registers, too."""

_ROW_BYTES, _ROW_BYTES_OF_ONE_IMAGE = 24, 16
"""PixelRow of kernels/gpu/operands.hpp: a pointer (split_image: an offset) and three positions."""

_STORE_BYTES = 16
"""What one store moves at most."""

_HEADER_SUFFIXES = frozenset((".h", ".hpp", ".hh", ".inc", ".inl", ".cuh"))
_MOST_HEADERS = 2000
_MOST_HEADER_BYTES = 64 << 20


@dataclass(frozen=True)
class Headers:
    """The content of an include folder, as it was when it was read.

    Binaries are made from this content, not from the folder: an edit while a session builds cannot
    end up under the hash of the text before it.
    """

    folder: Path
    files: tuple[tuple[str, bytes], ...]
    """(path relative to the folder, content), sorted by path."""

    @cached_property
    def digest(self) -> str:
        """sha256 over names and contents, hexadecimal."""
        total = hashlib.sha256()
        for name, content in self.files:
            total.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
        return total.hexdigest()

    def write(self, folder: Path) -> None:
        """Writes all files below `folder`, which must not exist."""
        folder.mkdir()
        for name, content in self.files:
            path = folder / name
            if path.parent != folder:
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def read_headers(folder: Path) -> Headers:
    """All headers of a folder and its subfolders; hidden files are left out.

    Raises BuildError when the folder cannot be read or is no folder of kernel headers.
    """
    files: list[tuple[str, bytes]] = []
    total_bytes = 0
    try:
        if not folder.is_dir():
            raise BuildError(f"the kernel headers' folder {folder} is missing: install tile-oracle again")
        for path in sorted(folder.rglob("*")):
            relative = path.relative_to(folder)
            hidden = any(part.startswith(".") for part in relative.parts)
            if path.suffix not in _HEADER_SUFFIXES or hidden or not path.is_file():
                continue
            files.append((relative.as_posix(), path.read_bytes()))
            total_bytes += len(files[-1][1])
            if len(files) > _MOST_HEADERS or total_bytes > _MOST_HEADER_BYTES:
                raise BuildError(f"{folder} holds too many headers to be a folder of kernel headers")
    except OSError as error:
        raise BuildError(f"the kernel headers in {folder} cannot be read: {error.strerror}") from None
    if not files:
        raise BuildError(f"{folder} holds no header (*.hpp, *.h): it is no folder of kernel headers")
    return Headers(folder, tuple(sorted(files)))


def headers_for(arch: str) -> Headers:
    """The headers that ship for an architecture. Raises BuildError for one that has none."""
    _generator(arch)
    return read_headers(data_folder("kernels") / ("gpu" if arch in GPU_MACHINES else arch))


def source_for(kernel: Kernel, arch: str) -> str:
    """The text of the kernel's translation unit.

    Raises BuildError for an architecture that nothing is generated for, KernelError for a kernel that
    has no code there.
    """
    return _generator(arch)(kernel, arch)


def source_suffix(arch: str) -> str:
    """The ending of a translation unit's file name."""
    _generator(arch)
    return {"amdgcn": ".hip", "nvptx": ".cu"}.get(GPU_MACHINES.get(arch, ""), ".cpp")


def _cpu_source(kernel: Kernel, arch: str) -> str:
    source = operation_named(kernel.op).cpu_source
    if source is None:
        raise KernelError(f"{kernel.op} kernels have no code for {arch}")
    return source(kernel)


def gpu_code_refusal(kernel: Kernel, arch: str) -> str | None:
    """Why kernels/gpu has no code for a kernel that its architecture may well allow, or None."""
    if kernel.pipeline not in GPU_PIPELINES:
        return f"pipeline {kernel.pipeline!r} has no code for GPUs: there is {', '.join(GPU_PIPELINES)}"
    dtypes = (GPU_GEMM_DTYPES if isinstance(kernel, GemmKernel) else GPU_DTYPES)[GPU_MACHINES[arch]]
    if kernel.dtype not in dtypes:
        why = " (its matrix unit has tf32, which is not fp32)" if kernel.dtype == "fp32" else ""
        return f"dtype {kernel.dtype!r} has no code for {arch}{why}: there is {', '.join(dtypes)}"
    if isinstance(kernel, GemmKernel) and kernel.dtype == "fp8" and kernel.layout != "rcr":
        return f"layout {kernel.layout!r} of fp8 has no code for GPUs: there is rcr"
    if isinstance(kernel, GemmKernel):
        return _too_many_registers(kernel, arch)
    return _too_much_lds(kernel, arch) if GPU_MACHINES[arch] == "amdgcn" else None


def _too_much_lds(kernel: GroupedConvKernel, arch: str) -> str | None:
    """Whether tiles and the table of rows that forward and bwd_data keep beside them fit into LDS."""
    rules = load_arch(arch)
    tiles = rules.lds_bytes(kernel)
    row_bytes = _ROW_BYTES_OF_ONE_IMAGE if kernel.split_image else _ROW_BYTES
    table = 0 if kernel.direction == "bwd_weight" else kernel.tile_m * row_bytes
    if tiles + table <= rules.lds_limit_bytes:
        return None
    return (
        f"LDS: {tiles:,} bytes for tiles and {table:,} for the table of rows are more than the "
        f"{rules.lds_limit_bytes:,} of {arch}"
    )


def _too_many_registers(kernel: GemmKernel, arch: str) -> str | None:
    """Whether what a lane holds of the sums and of tiles under way is more than compiles without spills."""
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
    under_way = tiles * loads * _LOAD_BYTES // _REGISTER_BYTES
    most = _MOST_HELD // max(1, threads // _FULL_WORKGROUP)
    little_else = kernel.layout == "rcr" and kernel.scheduler == "intrawave" and kernel.pipeline != "compv4"
    if kernel.dtype == "fp32" or (sums > most // 2 and (kernel.persistent or kernel.dtype == "fp8")):
        little_else = False
    if little_else and threads == _FULL_WORKGROUP:
        most = _MOST_HELD_WITH_LITTLE_ELSE
    if sums + under_way > most:
        return (
            f"registers: {sums} for sums and {under_way} for tiles under way are more than the {most} that "
            f"{kernel.pipeline} has for them in a workgroup of {threads}"
        )
    if loads > _MOST_LOADS and not little_else:
        return f"loads: {loads} of each work-item for a tile are too many, {_MOST_LOADS} is the most"
    return None


def _gpu_source(kernel: Kernel, arch: str) -> str:
    refusal = gpu_code_refusal(kernel, arch)
    if refusal is not None:
        raise KernelError(refusal)
    macros: dict[str, object] = {
        "TO_DTYPE": f"TO_{kernel.dtype.upper()}",
        "TO_PIPELINE": f"TO_{kernel.pipeline.upper()}",
        "TO_SCHEDULER": f"TO_{kernel.scheduler.upper()}",
        "TO_EPILOGUE": f"TO_{kernel.epilogue.upper()}",
    }
    macros |= _gemm_macros(kernel, arch) if isinstance(kernel, GemmKernel) else _conv_macros(kernel)
    for field, values in (("tile", kernel.tile), ("wave", kernel.waves), ("warp_tile", kernel.warp_tile)):
        macros |= {f"TO_{field}_{axis}".upper(): value for axis, value in zip("mnk", values, strict=True)}
    macros |= {f"TO_PAD_{axis}".upper(): int(getattr(kernel, f"pad_{axis}")) for axis in "mnk"}
    header = "gemm" if isinstance(kernel, GemmKernel) else "grouped_conv"
    lines = [f"#define {name} {value}" for name, value in macros.items()]
    return "\n".join([*lines, f'#include "{header}.hpp"', ""])


def lds_buffers(kernel: Kernel, arch: str) -> int:
    """How many buffers a kernel's tiles have in LDS: one, or two in turn."""
    if isinstance(kernel, GemmKernel):
        return 1 + load_arch(arch).double_smem_buffer_required(kernel.pipeline)
    return 1 + kernel.double_smem_buffer


def _gemm_macros(kernel: GemmKernel, arch: str) -> dict[str, object]:
    """Vectors are as wide as the tile allows; there are two buffers where the pipeline needs them."""
    rules = load_arch(arch)
    a, b, _ = rules.widest_vectors(kernel.dtype, kernel.tile, kernel.waves)
    vectors = (a, b, int(_STORE_BYTES / rules.element_bytes[RESULT_DTYPES[kernel.dtype]]))
    return {
        "TO_LAYOUT": f"TO_{kernel.layout.upper()}",
        "TO_PERSISTENT": int(kernel.persistent),
        "TO_DSB": lds_buffers(kernel, arch) - 1,
        **{f"TO_VECTOR_{axis}": width for axis, width in zip("ABC", vectors, strict=True)},
    }


def _conv_macros(kernel: GroupedConvKernel) -> dict[str, object]:
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


def device_work_source(arch: str) -> str:
    """The text of the harness's own device code. Raises BuildError for an architecture without any."""
    if arch not in GPU_MACHINES:
        raise BuildError(f"{arch} needs no device work")
    return '#include "device_work.hpp"\n'


_GENERATORS: Mapping[str, Callable[[Kernel, str], str]] = MappingProxyType(
    {"cpu": _cpu_source} | dict.fromkeys(GPU_MACHINES, _gpu_source)
)


def _generator(arch: str) -> Callable[[Kernel, str], str]:
    try:
        return _GENERATORS[arch]
    except KeyError:
        raise BuildError(f"nothing builds kernels for {arch!r}: known are {', '.join(_GENERATORS)}") from None
