"""The CPU kernels against the exact reference, compiled for real and called through the C ABI.

With integer data only the exact result is correct, so these comparisons are bit for bit.
"""

from __future__ import annotations

import ctypes
import faulthandler
import itertools
import math
import mmap
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pytest
import ziglang  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integer_operands import integer_operands
from tests.kernels.emulated_gpu import problems as awkward
from tests.kernels.emulated_gpu.device import difference
from tests.samples import sampled
from tile_oracle.compiling.isa import resolve_isa, this_cpu
from tile_oracle.device.reference import exact_output
from tile_oracle.files.data_files import data_folder
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, DTYPES, GroupedConvProblem
from tile_oracle.problem.number_formats import decode, encode

KERNELS = data_folder("kernels") / "cpu"
UNSUPPORTED = 1
PIPELINES = ("DIRECT", "PACK_B", "PACK_AB", "PACK_AB_DOUBLE")

# tile (m, n, k) and micro-tile (m, n): covers every micro-tile of the architecture table.
TILES = (
    ((16, 16, 16), (1, 16)),
    ((16, 32, 32), (4, 16)),
    ((24, 64, 48), (6, 16)),
    ((64, 64, 64), (8, 32)),
    ((32, 64, 128), (4, 64)),
    ((48, 64, 64), (12, 32)),
    ((24, 64, 64), (6, 64)),
    ((32, 96, 40), (8, 16)),
    ((12, 128, 64), (6, 32)),
    ((16, 64, 16), (4, 32)),
)


@dataclass(frozen=True)
class Config:
    """What one translation unit defines."""

    direction: str
    dtype: str
    ndim: int
    pipeline: str
    tile: tuple[int, int, int]
    micro: tuple[int, int]

    @property
    def name(self) -> str:
        numbers = "x".join(map(str, (*self.tile, *self.micro)))
        return f"{self.direction}-{self.dtype}-{self.ndim}d-{self.pipeline.lower()}-{numbers}"

    @property
    def source(self) -> str:
        defines = {
            "DIRECTION": f"TO_{self.direction.upper()}",
            "DTYPE": f"TO_{self.dtype.upper()}",
            "NDIM": self.ndim,
            "PIPELINE": f"TO_{self.pipeline}",
            **dict(zip(("TILE_M", "TILE_N", "TILE_K"), self.tile, strict=True)),
            **dict(zip(("MICRO_M", "MICRO_N"), self.micro, strict=True)),
        }
        return "".join(f"#define TO_{k} {v}\n" for k, v in defines.items()) + '#include "grouped_conv.hpp"\n'


def _configs() -> list[Config]:
    """2D in every direction, dtype and pipeline; 3D in every direction and pipeline, the dtypes by turns."""
    flat = itertools.product(DIRECTIONS, DTYPES, (2,), PIPELINES)
    turns = itertools.product(DIRECTIONS, PIPELINES)
    deep = ((d, DTYPES[i % len(DTYPES)], 3, pipeline) for i, (d, pipeline) in enumerate(turns))
    return [Config(*kind, *TILES[i % len(TILES)]) for i, kind in enumerate((*flat, *deep))]


CONFIGS = _configs()
MACHINE = platform.machine()

# ---- compiling and calling ------------------------------------------------------------------


COMMON_FLAGS = [
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-ffreestanding",
    "-fno-exceptions",
    "-fno-rtti",
    "-Wall",
    "-Wextra",
    "-Werror",
]
NATIVE = "-mcpu=native" if MACHINE == "aarch64" else "-march=native"


def compile_object(config: Config, folder: Path, *flags: str) -> Path:
    """Compiles with the C++ compiler of the ziglang wheel, warnings being errors."""
    package = Path(ziglang.__file__).parent
    resources = folder / "resources"
    if not resources.exists():
        resources.mkdir()
        (resources / "include").symlink_to(package / "lib" / "include")
    source = folder / f"{config.name}.cpp"
    source.write_text(config.source)
    result = source.with_suffix(".o")
    command: list[str | Path] = [package / "zig", "clang", "-resource-dir", resources, *COMMON_FLAGS, *flags]
    subprocess.run([*command, "-I", KERNELS, "-c", source, "-o", result], check=True)
    return result


def compile_library(config: Config, folder: Path, *flags: str) -> Path:
    compiled = compile_object(config, folder, *flags)
    library = compiled.with_suffix(".so")
    linker = Path(ziglang.__file__).parent / "zig"
    subprocess.run([linker, "ld.lld", "-shared", compiled, "-o", library], check=True)
    return library


_EXTENTS = (
    *("N", "C", "K", "G", "Di", "Hi", "Wi", "Z", "Y", "X", "Do", "Ho", "Wo"),
    *(f"{name}_{axis}" for name in ("stride", "pad", "dilation") for axis in "dhw"),
)


class Args(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("in0", "in1", "out", "workspace")),
        *((name, ctypes.c_int64) for name in _EXTENTS),
    ]


class Memory:
    """A buffer that ends where mapped memory ends (`sealed`), or with NaN before and behind it.

    Sealed, one byte too many read or written is a segmentation fault. Otherwise what is read outside
    shows as NaN in the result, and what is written outside by `check_zones`.
    """

    def __init__(self, size_bytes: int, sealed: bool) -> None:
        page = mmap.PAGESIZE
        whole_bytes = -(-max(size_bytes, 1) // page) * page
        self._map = mmap.mmap(-1, whole_bytes + page)
        everything = np.frombuffer(self._map, np.uint8)
        everything[:] = 0xFF
        first = whole_bytes - size_bytes
        self.content = everything[first:whole_bytes]
        self._zones = [everything[:first]] if sealed else [everything[:first], everything[whole_bytes:]]
        self.address = everything.ctypes.data + first
        if sealed:
            libc = ctypes.CDLL(None, use_errno=True)
            behind = ctypes.c_void_p(everything.ctypes.data + whole_bytes)
            assert libc.mprotect(behind, ctypes.c_size_t(page), 0) == 0

    def check_zones(self) -> None:
        assert all((zone == 0xFF).all() for zone in self._zones), "memory outside a buffer was written"


class Kernel:
    """A loaded kernel library."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.to_workspace_bytes.restype = ctypes.c_int64

    def args(self, problem: GroupedConvProblem) -> Args:
        return Args(**{name: getattr(problem, name) for name in _EXTENTS})

    def run(
        self, problem: GroupedConvProblem, in0: np.ndarray, in1: np.ndarray, *, sealed: bool = False
    ) -> np.ndarray:
        """The result, whose memory held NaN before. Asserts that nothing else was written."""
        args = self.args(problem)
        workspace_bytes = self.library.to_workspace_bytes(ctypes.byref(args))
        shape = problem.operand_shapes[2]
        sizes = (in0.nbytes, in1.nbytes, math.prod(shape) * in0.itemsize, -(-workspace_bytes // 64) * 64)
        memory = [Memory(size_bytes, sealed) for size_bytes in sizes]
        for buffer, operand in zip(memory, (in0, in1), strict=False):
            buffer.content[:] = operand.reshape(-1).view(np.uint8)
        args.in0, args.in1, args.out, args.workspace = (buffer.address for buffer in memory)
        assert self.library.to_launch(ctypes.byref(args)) == 0
        for buffer in memory:
            buffer.check_zones()
        for buffer, operand in zip(memory, (in0, in1), strict=False):
            assert (buffer.content == operand.reshape(-1).view(np.uint8)).all(), "an input was written"
        return memory[2].content.copy().view(in0.dtype).reshape(shape)


# ---- the reference --------------------------------------------------------------------------


@lru_cache(maxsize=256)
def integer_case(problem: GroupedConvProblem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operands of integers and the exact result, rounded once, all as stored."""
    first, second = integer_operands(problem, 0)
    stored = [encode(one.astype(np.float32), problem.dtype) for one in (first, second)]
    return stored[0], stored[1], encode(exact_output(problem, first, second), problem.dtype)


def assert_exact(kernel: Kernel, problem: GroupedConvProblem, *, sealed: bool = False) -> None:
    in0, in1, expected = integer_case(problem)
    said = difference(kernel.run(problem, in0, in1, sealed=sealed), expected)
    assert said is None, f"{problem.id}: {said}"


# ---- problems -------------------------------------------------------------------------------

_MORE = (
    "n8-c4-k40-i40x40-f1x1",
    "n1-c64-k530-i3x3-f3x3-p1",
    "n1-c530-k6-i3x3-f2x2-p1",
    "n1-c4-k4-i2x5-f3x3-p4",
)
"""More rows or columns than one block of the packed pipelines takes; padding beyond the filter."""


def awkward_problems(direction: str, dtype: str, ndim: int) -> list[GroupedConvProblem]:
    more = [GroupedConvProblem.from_id(f"{direction}-{dtype}-{tail}") for tail in _MORE if ndim == 2]
    return [*awkward.awkward_problems(direction, dtype, ndim), *more]


@st.composite
def problems(draw: st.DrawFn, direction: str, dtype: str, ndim: int) -> GroupedConvProblem:
    """Small problems of any geometry whose output exists."""
    groups = draw(st.sampled_from([1, 1, 1, 2, 3, 18]))
    c, k = (groups * draw(st.sampled_from([1, 1, 2, 3, 4, 7, 16, 31, 34])) for _ in "ck")
    values = {"N": draw(st.integers(1, 3)), "C": c, "K": k, "G": groups}
    names = (
        [("Hi", "Y", "h"), ("Wi", "X", "w")]
        if ndim == 2
        else [("Di", "Z", "d"), ("Hi", "Y", "h"), ("Wi", "X", "w")]
    )
    for extent, taps, axis in names:
        values[taps] = draw(st.integers(1, 4 if ndim == 2 else 3))
        dilation, pad = draw(st.integers(1, 3)), draw(st.integers(0, 4))
        least = max(1, (values[taps] - 1) * dilation + 1 - 2 * pad)
        values[extent] = draw(st.integers(least, least + 6))
        values |= {
            f"dilation_{axis}": dilation,
            f"pad_{axis}": pad,
            f"stride_{axis}": draw(st.integers(1, 4)),
        }
    return GroupedConvProblem(direction, dtype, ndim, **values)


# ---- the tests ------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cpu_kernels")


@pytest.fixture(scope="session")
def library_of(folder: Path) -> Callable[[Config], Path]:
    """Compiles a kernel for this machine, once a session."""
    return cache(lambda config: compile_library(config, folder, NATIVE))


every_kernel = pytest.mark.parametrize("config", sampled(CONFIGS, every=3), ids=lambda config: config.name)
flat_kernels = pytest.mark.parametrize(
    "config", [c for c in CONFIGS if c.ndim == 2 and c.dtype == "bf16"], ids=lambda config: config.name
)
forward_kernels = pytest.mark.parametrize(
    "config", [c for c in CONFIGS if c.ndim == 2 and c.direction == "forward"], ids=lambda config: config.name
)


@every_kernel
def test_awkward_problems_are_exact(config: Config, library_of: Callable[[Config], Path]) -> None:
    kernel = Kernel(library_of(config))
    for problem in awkward_problems(config.direction, config.dtype, config.ndim):
        assert_exact(kernel, problem)


@flat_kernels
@settings(max_examples=20, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_small_problem_is_exact(
    config: Config, library_of: Callable[[Config], Path], data: st.DataObject
) -> None:
    problem = data.draw(problems(config.direction, config.dtype, config.ndim))
    assert_exact(Kernel(library_of(config)), problem)


@pytest.mark.slow
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_no_byte_behind_a_buffer_is_touched(direction: str, library_of: Callable[[Config], Path]) -> None:
    """Runs in its own process, where one byte too many is a segmentation fault."""
    chosen = [config for config in CONFIGS if config.direction == direction]
    names = [text for config in chosen for text in (config.name, str(library_of(config)))]
    itself = [sys.executable, "-m", "tests.kernels.test_cpu_kernels"]
    root = Path(__file__).parents[2]
    child = subprocess.run([*itself, *names], cwd=root, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stdout[-300:] + child.stderr[-3000:]
    assert child.stdout.split() == [config.name for config in chosen]


@forward_kernels
def test_the_one_rounding_is_to_nearest_even(config: Config, library_of: Callable[[Config], Path]) -> None:
    """Sums of two products on and next to the midpoint of two neighbours, beyond the largest value,
    and NaN and infinities."""
    steps = {"bf16": 8, "fp16": 11, "fp32": 24}[config.dtype]
    big = float(2**steps)
    pairs = [(big + 2 * i, odd / 2) for i in range(4) for odd in range(-3, 4)]
    if config.dtype == "fp16":
        pairs += [(65504.0, extra) for extra in (15.0, 16.0, 17.0, 40.0)] + [(-65504.0, -16.0)]
        pairs += [(m * 2.0**-13, n * 2.0**-14) for m in (1.0, 3.0) for n in (1.0, 2.0, 3.0)]
    pairs += [(math.nan, 1.0), (math.inf, 1.0), (-math.inf, 5.0), (math.inf, -math.inf), (-0.0, -0.0)]
    problem = GroupedConvProblem(
        "forward", config.dtype, 2, N=1, C=2, K=1, G=1, Hi=1, Wi=len(pairs), Y=1, X=1
    )
    given = np.array(pairs, np.float32)
    in0 = encode(given.reshape(problem.input_shape), config.dtype)
    in1 = encode(np.ones(problem.weight_shape, np.float32), config.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        exact = given.astype(np.float64).sum(axis=1).astype(np.float32)
        expected = decode(encode(exact, config.dtype), config.dtype)
    got = decode(Kernel(library_of(config)).run(problem, in0, in1), config.dtype).reshape(-1)
    np.testing.assert_array_equal(got, expected)


@flat_kernels
def test_a_3d_problem_is_refused_by_a_2d_kernel(config: Config, library_of: Callable[[Config], Path]) -> None:
    kernel = Kernel(library_of(config))
    args = kernel.args(awkward_problems(config.direction, config.dtype, 3)[0])
    assert kernel.library.to_launch(ctypes.byref(args)) == UNSUPPORTED  # the operands are null: nothing ran


@pytest.mark.parametrize("field", ["N", "G", "Di", "Ho", "stride_h", "pad_d", "pad_w", "dilation_w"])
def test_invalid_extents_are_refused(field: str, library_of: Callable[[Config], Path]) -> None:
    config = next(config for config in CONFIGS if config.ndim == 3)
    kernel = Kernel(library_of(config))
    args = kernel.args(awkward_problems(config.direction, config.dtype, 3)[0])
    setattr(args, field, -1)
    assert kernel.library.to_launch(ctypes.byref(args)) == UNSUPPORTED
    assert kernel.library.to_workspace_bytes(ctypes.byref(args)) == 0


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("index", sampled([0, 10, 29, 33], every=4))
def test_every_level_of_x86_is_exact(level: str, index: int, tmp_path: Path) -> None:
    if missing := resolve_isa(level).missing(this_cpu()):
        pytest.skip(f"this CPU lacks {missing[0]}")
    config = CONFIGS[index]
    kernel = Kernel(compile_library(config, tmp_path, f"-march={level}"))
    for problem in awkward_problems(config.direction, config.dtype, config.ndim):
        assert_exact(kernel, problem)


@pytest.mark.parametrize("config", CONFIGS[36:40], ids=lambda config: config.name)
def test_kernels_compile_for_aarch64(config: Config, tmp_path: Path) -> None:
    compiled = compile_object(config, tmp_path, "--target=aarch64-linux-gnu").read_bytes()
    assert compiled[:4] == b"\x7fELF"
    assert int.from_bytes(compiled[18:20], "little") == 183  # EM_AARCH64


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")
@pytest.mark.parametrize("index", [4, 22, 35])
def test_gcc_makes_the_same_results(index: int, tmp_path: Path) -> None:
    config = CONFIGS[index]
    source, library = tmp_path / "kernel.cpp", tmp_path / "kernel.so"
    source.write_text(config.source)
    subprocess.run(
        ["g++", *COMMON_FLAGS, NATIVE, "-I", KERNELS, "-shared", source, "-o", library], check=True
    )
    kernel = Kernel(library)
    for problem in awkward_problems(config.direction, config.dtype, config.ndim):
        assert_exact(kernel, problem)


def _run_sealed(names_and_libraries: list[str]) -> None:
    configs = {config.name: config for config in CONFIGS}
    for name, library in zip(names_and_libraries[::2], names_and_libraries[1::2], strict=True):
        config, kernel = configs[name], Kernel(Path(library))
        for problem in awkward_problems(config.direction, config.dtype, config.ndim):
            assert_exact(kernel, problem, sealed=True)
        print(name, flush=True)


if __name__ == "__main__":
    faulthandler.enable()
    _run_sealed(sys.argv[1:])
