"""Compiles kernels/gpu for this machine's processor; emulator.cpp runs and checks the kernels.

`EmulatedGpu` compiles kernels for either architecture; `EmulatedKernel.run` computes a problem with one, with
the same launch plan as on a GPU, and returns what went wrong, or None.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import mmap
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from tests.integer_operands import integer_operands
from tile_oracle.compiling.source import source_for
from tile_oracle.compiling.toolchain import compiler_environment, find_toolchain
from tile_oracle.device.gpu_abi import LaunchInfo, gpu_args, plan_launch, read_launch_info
from tile_oracle.device.reference import exact_output
from tile_oracle.device.runtime.driver import Arguments, Geometry
from tile_oracle.files.data_files import data_folder
from tile_oracle.kernel import Kernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import STORAGE, Array, encode

HERE = Path(__file__).parent
HEADERS = data_folder("kernels") / "gpu"

_INSTRUCTIONS = {
    "gfx950": "emulated_gfx950.hpp",
    "gfx942": "emulated_gfx90a.hpp",
    "gfx90a": "emulated_gfx90a.hpp",
    "sm_90": "emulated_sm90.hpp",
}
_FLAGS = (
    *("-std=c++20", "-fPIC", "-ffreestanding", "-fno-exceptions", "-fno-rtti", "-fno-stack-protector"),
    *("-fvisibility=hidden", "-fno-math-errno", "-Wno-psabi"),
)
_WATCHED = (
    *("-O1", "-fsanitize=thread", "-mllvm", "-tsan-instrument-func-entry-exit=0"),
    # A store must not replace an earlier load, which may be the access that is out of bounds.
    *("-mllvm", "-tsan-instrument-read-before-write=1"),
    "-ftrap-function=emu_trap",
)
READS, WRITES, _WRITES_ONCE = 1, 2, 4
_INFO_BYTES = 36
_MAP_NORESERVE = 0x4000  # of Linux; the module mmap does not have it before Python 3.13
LAUNCHERS = "TO_LAUNCHER(to_conv)\n#if TO_TWO_STAGE\nTO_LAUNCHER(to_finish)\n#endif\n"


class _Range(ctypes.Structure):
    _fields_ = (
        ("first", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("written", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("rights", ctypes.c_int),
    )


class _Launch(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("entry", "module", "args", "ranges")),
        ("range_count", ctypes.c_int),
        ("grid", ctypes.c_int * 3),
        ("threads", ctypes.c_int),
        ("dynamic_lds_bytes", ctypes.c_int),
        ("message", ctypes.c_char * 512),
    )


@dataclass(frozen=True)
class Buffer:
    """Memory of the emulated device, 64-byte aligned. written: a byte for every two, once a kernel writes."""

    name: str
    data: Array
    written: Array | None

    @property
    def address(self) -> int:
        return int(self.data.ctypes.data)


def buffer(name: str, size_bytes: int, fill: int = 0xFF, once: bool = False) -> Buffer:
    """Filled with a byte. once: nothing may be written twice, which is checked."""
    room = np.full(size_bytes + 64, fill, np.uint8)
    start = -room.ctypes.data % 64
    return Buffer(
        name, room[start : start + size_bytes], np.zeros(size_bytes // 2 + 1, np.uint8) if once else None
    )


class EmulatedGpu:
    """Compiles kernels into `folder`; equal sources are compiled once.

    `vector_classes`: with the vectors that nvcc gets (kernels/gpu/types.hpp) instead of clang's; sm_90 only.
    """

    _emulator: ClassVar[ctypes.CDLL | None] = None
    """One per process: kernels find its functions by name, and the first loaded library provides them."""

    def __init__(self, folder: Path, vector_classes: bool = False) -> None:
        self._folder = folder
        self._defines = "#define TO_VECTOR_CLASSES 1\n" if vector_classes else ""

    def kernel(
        self, kernel: Kernel, arch: str, changes: Mapping[str, tuple[str, str]] | None = None
    ) -> EmulatedKernel:
        """`changes`: header of kernels/gpu -> (text, its replacement): a mistake to be found.

        Raises subprocess.CalledProcessError with the compiler's message on stderr.
        """
        library = self.library(source_for(kernel, arch) + LAUNCHERS, arch, changes)
        return EmulatedKernel(self.module(library))

    def module(self, library: Path) -> EmulatedModule:
        """Loads a library that was built here."""
        return EmulatedModule(library, self._run())

    def library(
        self,
        source: str,
        arch: str,
        changes: Mapping[str, tuple[str, str]] | None = None,
        include: Path | None = None,
    ) -> Path:
        """Compiles any source with the headers of kernels/gpu. Kernels to be launched need TO_LAUNCHER(name).

        include: a folder of headers that replace those of the same names.
        """
        folders = (HEADERS,) if include is None else (HEADERS, include)
        headers = {path.name: path.read_text() for folder in folders for path in sorted(folder.iterdir())}
        for name, (text, instead) in (changes or {}).items():
            assert headers[name].count(text) == 1, f"{name} has {headers[name].count(text)} of {text!r}"
            headers[name] = headers[name].replace(text, instead)
        defines = f'#define TO_INSTRUCTIONS "{_INSTRUCTIONS[arch]}"\n'
        return self._library("kernel.cpp", defines + self._defines + source, headers, _WATCHED)

    def runtime(self, *, cuda: bool) -> Path:
        """The emulated device as a library with HIP's functions, or CUDA's: runtime.cpp."""
        emulator = {"emulator.cpp": (HERE / "emulator.cpp").read_text()}
        flags = ("-O3", "-DAS_CUDA") if cuda else ("-O3",)
        return self._library("runtime.cpp", (HERE / "runtime.cpp").read_text(), emulator, flags)

    def _run(self) -> ctypes._NamedFuncPointer:
        if EmulatedGpu._emulator is None:
            text = (HERE / "emulator.cpp").read_text()
            path = self._library("emulator.cpp", text, {}, ("-O3",))
            EmulatedGpu._emulator = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        return EmulatedGpu._emulator.emu_run

    def _library(self, name: str, text: str, headers: Mapping[str, str], flags: tuple[str, ...]) -> Path:
        own = {path.name: path.read_text() for path in sorted(HERE.glob("*.hpp"))}
        parts = "\0".join((name, text, *flags, *headers, *headers.values(), *own, *own.values()))
        key = hashlib.sha256(parts.encode()).hexdigest()[:24]
        made = self._folder / f"{key}.emulated"
        if made.exists():
            return made
        self._folder.mkdir(parents=True, exist_ok=True)
        work = Path(
            tempfile.mkdtemp(prefix=f"{key}.", dir=self._folder)
        )  # others may be building the same library
        toolchain = find_toolchain("ziglang")
        toolchain.prepare(work)
        for include in (own, headers):
            for header, content in include.items():
                place = work / ("emulated" if include is own else "kernels")
                place.mkdir(exist_ok=True)
                (place / header).write_text(content)
        (work / name).write_text(text)
        zig = toolchain.wheel.zig
        target = f"--target={platform.machine()}-unknown-linux-musl"
        compile_ = (zig, "clang", target, "-resource-dir", "resource", "-nostdlibinc", *_FLAGS, *flags)
        for command in (
            (*compile_, "-iquote", "emulated", "-iquote", "kernels", "-c", name, "-o", "object.o"),
            (zig, "ld.lld", "-shared", "-z", "noexecstack", "object.o", "-o", "library.so"),
        ):
            subprocess.run(
                command, cwd=work, env=compiler_environment(work), check=True, capture_output=True, text=True
            )
        (work / "library.so").rename(made)
        shutil.rmtree(work)
        return made


class EmulatedModule:
    """A library in this process, and how its kernels are launched."""

    def __init__(self, library: Path, run: ctypes._NamedFuncPointer) -> None:
        self._library = ctypes.CDLL(str(library))
        self._run = run

    def launch_info(self) -> bytes:
        return bytes((ctypes.c_char * _INFO_BYTES).in_dll(self._library, "to_launch_info"))

    def has(self, kernel: str) -> bool:
        return hasattr(self._library, f"launch_{kernel}")

    def launch(
        self, kernel: str, geometry: Geometry, arguments: Arguments, buffers: Sequence[tuple[Buffer, int]]
    ) -> str | None:
        """Returns what went wrong, or None. buffers: the memory that the kernel may access, with READS and
        WRITES."""
        ranges = (_Range * len(buffers))()
        for entry, (memory, rights) in zip(ranges, buffers, strict=True):
            entry.first, entry.bytes = memory.address, memory.data.nbytes
            entry.name, entry.rights = memory.name.encode(), rights
            if rights & WRITES and memory.written is not None:
                entry.written = memory.written.ctypes.data
                entry.rights |= _WRITES_ONCE
        launch = _Launch(
            ctypes.cast(getattr(self._library, f"launch_{kernel}"), ctypes.c_void_p).value,
            ctypes.addressof(ctypes.c_char.in_dll(self._library, "to_emulated_module")),
            ctypes.addressof(arguments.addresses),
            ctypes.addressof(ranges),
            len(buffers),
            geometry.grid,
            geometry.block[0],
            geometry.lds_bytes,
        )
        return f"{kernel}: {launch.message.decode()}" if self._run(ctypes.byref(launch)) else None


class EmulatedKernel:
    """A kernel in this process."""

    def __init__(self, module: EmulatedModule) -> None:
        self._module = module

    @property
    def info(self) -> LaunchInfo:
        return read_launch_info(self._module.launch_info())

    def run(self, problem: Problem, seed: int = 1, compute_units: int = 4) -> str | None:
        """Computes the problem over small integers; returns what went wrong, or None. Raises Unlaunchable.

        `compute_units`: determines the split_k of two-stage kernels.
        """
        first, second = integer_operands(problem, seed)
        inputs = []
        for name, values in (("in0", first), ("in1", second)):
            encoded = encode(values, problem.dtype)
            inputs.append(buffer(name, encoded.nbytes))
            inputs[-1].data[:] = encoded.reshape(-1).view(np.uint8)
        return self._run_on(
            problem, (inputs[0], inputs[1]), exact_output(problem, first, second), compute_units
        )

    def run_sparse(self, problem: GroupedConvProblem, dense: GroupedConvProblem, seed: int = 1) -> str | None:
        """The same of a problem that reads every stride_w-th pixel of its images: nothing else is in memory.

        `dense`: the problem with these pixels side by side, whose result is the same.
        """
        first, second = integer_operands(dense, seed)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        memory = mmap.mmap(-1, math.prod(problem.input_shape) * 2, flags)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        x = np.frombuffer(memory, np.uint16)
        x.reshape(problem.input_shape)[:, :, :: problem.stride_w] = encode(first, "bf16")
        w = buffer("in1", second.size * 2)
        w.data[:] = encode(second, "bf16").reshape(-1).view(np.uint8)
        inputs = (Buffer("in0", x.view(np.uint8), None), w)
        return self._run_on(problem, inputs, exact_output(dense, first, second), 4)

    def _run_on(
        self, problem: Problem, inputs: tuple[Buffer, Buffer], exact: Array, compute_units: int
    ) -> str | None:
        plan = plan_launch(problem, self.info, compute_units)
        storage = STORAGE[problem.result_dtype]
        out = buffer("out", math.prod(problem.operand_shapes[2]) * storage.itemsize, once=True)
        workspace = buffer("workspace", plan.workspace_bytes, once=True)
        scratch = workspace.address if plan.workspace_bytes else 0
        addresses = (inputs[0].address, inputs[1].address, out.address, scratch)
        args = Arguments(gpu_args(problem, *addresses, plan.split_k))
        result = workspace if plan.finish is not None else out
        reads = [(memory, READS) for memory in inputs]
        said = self._module.launch("to_conv", plan.conv, args, [*reads, (result, WRITES)])
        if said is None and plan.finish is not None:
            said = self._module.launch("to_finish", plan.finish, args, [(workspace, READS), (out, WRITES)])
        if said is not None:
            return said
        expected = encode(exact, problem.result_dtype)
        return difference(out.data.view(storage).reshape(expected.shape), expected)


def difference(got: Array, want: Array) -> str | None:
    """Bit for bit, but zeros of either sign are equal."""
    a, b = (values.view(f"u{values.itemsize}").astype(np.uint64) for values in (got, want))
    sign = np.uint64(1 << (8 * got.itemsize - 1))
    wrong = (a != b) & (((a | b) & ~sign) != 0)
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    unwritten = int((a == 2 * int(sign) - 1).sum())
    return (
        f"{int(wrong.sum()):,} of {got.size:,} values wrong ({unwritten:,} unwritten), first at {at}: "
        f"bits {int(a[at]):#x}, exact {int(b[at]):#x}"
    )
