"""Generates the translation unit of a kernel for each architecture, and reads the headers it includes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from tile_oracle.arch import known_archs
from tile_oracle.compiling.isa import GPU_MACHINES, GPU_TARGETS
from tile_oracle.errors import BuildError, KernelError
from tile_oracle.files.data_files import data_folder
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.kernel import Kernel, tiled
from tile_oracle.operation import operation_named

ABI_VERSION = 1
"""TILE_ORACLE_ABI_VERSION of kernels/cpu/abi.h, the ABI that workers call."""

GPU_PIPELINES = ("basic_v1", "basic_async_v1", "mem", "compv3", "compv4", "compv5", "compv6", "comp_async")
"""The pipelines that kernels/gpu implements, where the names are in capitals."""

DEVICE_WORK = "device_work"
"""Name, in prebuilt folders, of the harness's own GPU code (comparison, reference, operand filling)."""

_HEADER_SUFFIXES = frozenset((".h", ".hpp", ".hh", ".inc", ".inl", ".cuh"))
_OLDER_GFX9 = ("instructions_gfx90a.hpp", "instructions_gfx950.hpp")
_INSTRUCTIONS: Mapping[str, tuple[str, ...]] = {
    "gfx950": ("instructions_gfx950.hpp",),
    "gfx942": _OLDER_GFX9,
    "gfx90a": _OLDER_GFX9,
    "sm_90": ("instructions_sm90.hpp",),
}
"""Architecture -> the headers of kernels/gpu with its instructions; the first includes the others. Kernels of
other architectures do not include them."""

_CHOSEN_BY_DEVICE_HPP = ("instructions_gfx950.hpp", "instructions_sm90.hpp")

_HASH_ELSEWHERE: Mapping[str, str] = {
    "instructions_gfx950.hpp": "d73d3e40b3c830af712a1d661f7cb5622b6d93ce593d52c3fea3a55935db361d",
    "instructions_sm90.hpp": "4537adca57ef03dba8e46e14942b823dfda9aa87d1a5cdebdab9798b23941b65",
}
"""Fixed hashes that replace these headers in the digests of other architectures, so that binaries from the
time when a digest covered all architectures' headers keep their keys. Never change them. Newer headers need
none: the digests of other architectures omit them."""

_MOST_HEADERS = 2000
_MOST_HEADER_BYTES = 64 << 20


@dataclass(frozen=True)
class Headers:
    """A snapshot of an include folder.

    Kernels are compiled from this snapshot and not from the folder, so an edit during a session cannot be
    cached under the old hash.
    """

    folder: Path
    files: tuple[tuple[str, bytes], ...]
    """(path relative to the folder, content), sorted by path."""
    elsewhere: tuple[tuple[str, str], ...] = ()
    """(name, fixed hash) of headers that only other architectures include. They are not written."""

    @cached_property
    def digest(self) -> str:
        """sha256 over names and contents, hexadecimal."""
        total = hashlib.sha256()
        hashes = [(name, hashlib.sha256(content).hexdigest()) for name, content in self.files]
        for name, content_hash in sorted((*hashes, *self.elsewhere)):
            total.update(f"{name}\0{content_hash}\n".encode())
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
    """Reads all headers of a folder and its subfolders, without hidden files.

    Raises BuildError when the folder cannot be read or is not a folder of kernel headers.
    """
    files: list[tuple[str, bytes]] = []
    total_bytes = 0
    with disk_errors_as(BuildError, f"the kernel headers in {folder} cannot be read"):
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
    if not files:
        raise BuildError(f"{folder} holds no header (*.hpp, *.h): it is not a folder of kernel headers")
    return Headers(folder, tuple(sorted(files)))


def headers_for(arch: str) -> Headers:
    """Returns the headers that ship for an architecture. Raises BuildError for an unknown architecture."""
    _generator(arch)
    headers = read_headers(data_folder("kernels") / ("gpu" if arch in GPU_MACHINES else arch))
    return _without_other_architectures(headers, arch) if arch in GPU_MACHINES else headers


def _without_other_architectures(headers: Headers, arch: str) -> Headers:
    """Returns the headers of kernels/gpu without the instructions of other architectures."""
    others = {name for names in _INSTRUCTIONS.values() for name in names} - set(_INSTRUCTIONS[arch])
    return replace(
        headers,
        files=tuple((name, content) for name, content in headers.files if name not in others),
        elsewhere=tuple((name, _HASH_ELSEWHERE[name]) for name in sorted(others & _HASH_ELSEWHERE.keys())),
    )


def source_for(kernel: Kernel, arch: str) -> str:
    """Returns the text of the kernel's translation unit.

    Raises BuildError for an unknown architecture, and KernelError for a kernel that has no code for it.
    """
    return _generator(arch)(kernel, arch)


def source_suffix(arch: str) -> str:
    """File name suffix of a translation unit."""
    if arch not in GPU_MACHINES:
        _generator(arch)
    return {"amdgcn": ".hip", "nvptx": ".cu"}.get(GPU_MACHINES.get(arch, ""), ".cpp")


def _cpu_source(kernel: Kernel, arch: str) -> str:
    source = operation_named(kernel.op).cpu_source
    if source is None:
        raise KernelError(f"{kernel.op} kernels have no code for {arch}")
    return source(kernel)


def gpu_code_refusal(kernel: Kernel, arch: str) -> str | None:
    """Returns why kernels/gpu has no code for a kernel, even if the architecture allows it; None if it
    has."""
    made_by = operation_named(kernel.op).for_gpus
    if made_by is None:
        return f"{kernel.op} kernels have no code for {arch}"
    pipeline = tiled(kernel).pipeline
    if pipeline not in GPU_PIPELINES:
        return f"pipeline {pipeline!r} has no code for GPUs: there is {', '.join(GPU_PIPELINES)}"
    dtypes = made_by.GPU_DTYPES[GPU_MACHINES[arch]]
    if kernel.dtype not in dtypes:
        why = " (its matrix unit has tf32, which is not fp32)" if kernel.dtype == "fp32" else ""
        return f"dtype {kernel.dtype!r} has no code for {arch}{why}: there is {', '.join(dtypes)}"
    return made_by.code_refusal(kernel, arch)


def _gpu_source(kernel: Kernel, arch: str) -> str:
    refusal, made_by = gpu_code_refusal(kernel, arch), operation_named(kernel.op).for_gpus
    if refusal is not None or made_by is None:
        raise KernelError(refusal)
    made = tiled(kernel)
    macros: dict[str, object] = {
        "TO_DTYPE": f"TO_{kernel.dtype.upper()}",
        "TO_PIPELINE": f"TO_{made.pipeline.upper()}",
        "TO_SCHEDULER": f"TO_{made.scheduler.upper()}",
        "TO_EPILOGUE": f"TO_{made.epilogue.upper()}",
    }
    macros |= made_by.macros(kernel, arch)
    for field, values in (("tile", made.tile), ("wave", made.waves), ("warp_tile", made.warp_tile)):
        macros |= {f"TO_{field}_{axis}".upper(): value for axis, value in zip("mnk", values, strict=True)}
    macros |= {f"TO_PAD_{axis}".upper(): int(getattr(kernel, f"pad_{axis}")) for axis in "mnk"}
    lines = [f"#define {name} {value}" for name, value in macros.items()]
    return "\n".join([*_chosen_instructions(arch), *lines, f'#include "{made_by.HEADER}.hpp"', ""])


def _chosen_instructions(arch: str) -> tuple[str, ...]:
    """Returns the lines that choose the header of instructions; none if device.hpp chooses it by itself. An
    emulation defines its own first."""
    chosen = _INSTRUCTIONS[arch][0]
    if chosen in _CHOSEN_BY_DEVICE_HPP:
        return ()
    return ("#ifndef TO_INSTRUCTIONS", f'#define TO_INSTRUCTIONS "{chosen}"', "#endif")


def device_work_source(arch: str) -> str:
    """Returns the text of the harness's own device code. Raises BuildError for an architecture without
    any."""
    if arch not in GPU_MACHINES:
        raise BuildError(f"{arch} needs no device work")
    return '#include "device_work.hpp"\n'


_WITHOUT_CODE = " (its records, problems, models and replays work)"


def _generator(arch: str) -> Callable[[Kernel, str], str]:
    if arch in ("cpu", *GPU_TARGETS):
        return _cpu_source if arch == "cpu" else _gpu_source
    why = f": kernels/gpu lacks its matrix instructions{_WITHOUT_CODE}" if arch in known_archs() else ""
    if arch in GPU_MACHINES:
        why += f"; your kernels in Triton: tile-oracle pool list --kernels FILE.py --arch {arch} --facts"
    raise BuildError(
        f"nothing builds kernels for {arch!r}{why}; known are {', '.join(('cpu', *GPU_TARGETS))}"
    )
