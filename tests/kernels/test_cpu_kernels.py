"""The CPU kernels against an independent reference, compiled for real and called through the C ABI.

Integer data make the exact result the only right one: every comparison of those is bit for bit.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import ziglang
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.data_files import data_folder
from harness.problem import DIRECTIONS, DTYPES, GroupedConvProblem

KERNELS = data_folder("kernels") / "cpu"
PIPELINES = ("DIRECT", "PACK_B", "PACK_AB", "PACK_AB_DOUBLE")

# tile (m, n, k) and micro-tile (m, n): every micro-tile of the architecture table is met.
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


CONFIGS = [
    Config(direction, dtype, ndim, pipeline, *TILES[i % len(TILES)])
    for i, (direction, dtype, ndim, pipeline) in enumerate(
        itertools.product(DIRECTIONS, DTYPES, (2, 3), PIPELINES)
    )
]

# ---- compiling and calling ------------------------------------------------------------------


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
    command = [package / "zig", "clang", "-resource-dir", resources, "-std=c++20", "-O3", "-fPIC"]
    command += ["-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Werror", *flags]
    subprocess.run([*command, "-I", KERNELS, "-c", source, "-o", result], check=True)
    return result


def compile_library(config: Config, folder: Path, *flags: str) -> Path:
    compiled = compile_object(config, folder, *flags)
    library = compiled.with_suffix(".so")
    linker = Path(ziglang.__file__).parent / "zig"
    subprocess.run([linker, "ld.lld", "-shared", compiled, "-o", library], check=True)
    return library


_EXTENTS = (
    "N C K G Di Hi Wi Z Y X Do Ho Wo stride_d stride_h stride_w pad_d pad_h pad_w "
    "dilation_d dilation_h dilation_w"
).split()


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


def reference(problem: GroupedConvProblem, in0: np.ndarray, in1: np.ndarray) -> np.ndarray:
    """The result in float64, by one slice of the padded image a tap."""
    p = problem

    def d3(values: tuple[int, ...], fill: int) -> tuple[int, ...]:
        return (fill,) * (3 - len(values)) + values

    inner, outer, taps = d3(p.input_spatial, 1), d3(p.output_spatial, 1), d3(p.filter, 1)
    stride, pad, dilation = d3(p.stride, 1), d3(p.pad, 0), d3(p.dilation, 1)
    c, k = p.C // p.G, p.K // p.G
    image_shape, result_shape = (p.N, *inner, p.G, c), (p.N, *outer, p.G, k)
    margin = [(0, 0), *((v, v) for v in pad), (0, 0), (0, 0)]
    padded = np.zeros([size + sum(m) for size, m in zip(image_shape, margin, strict=True)])
    core = tuple(slice(m[0], m[0] + size) for size, m in zip(image_shape, margin, strict=True))
    y = np.zeros(result_shape)
    w = np.zeros((p.G, k, *taps, c))
    if p.direction == "forward":
        padded[core], w = in0.reshape(image_shape), in1.reshape(w.shape)
    elif p.direction == "bwd_data":
        y, w = in0.reshape(result_shape), in1.reshape(w.shape)
    else:
        padded[core], y = in0.reshape(image_shape), in1.reshape(result_shape)
    for tap in itertools.product(*map(range, taps)):
        window = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, dilation, outer, stride, strict=True)
        )
        here = (slice(None), *window)
        there = (slice(None), slice(None), *tap)
        if p.direction == "forward":
            y += np.einsum("ndhwgc,gkc->ndhwgk", padded[here], w[there])
        elif p.direction == "bwd_data":
            padded[here] += np.einsum("ndhwgk,gkc->ndhwgc", y, w[there])
        else:
            w[there] = np.einsum("ndhwgc,ndhwgk->gkc", padded[here], y)
    result = {"forward": y, "bwd_data": padded[core], "bwd_weight": w}[p.direction]
    return result.reshape(p.operand_shapes[2])


def to_bits(values: np.ndarray, dtype: str) -> np.ndarray:
    """Rounds float64 values, exact in fp32, to the dtype; bf16 as its upper half of fp32, in uint16."""
    single = values.astype(np.float32)
    if dtype == "fp32":
        return single
    if dtype == "fp16":
        with np.errstate(over="ignore"):
            return single.astype(np.float16)
    bits = single.view(np.uint32)
    half = (bits >> 16) + (((bits & 0xFFFF) + ((bits >> 16) & 1)) > 0x8000)
    return np.where(np.isnan(single), 0x7FC0, half).astype(np.uint16)


def to_values(bits: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return bits.astype(np.float64)


@lru_cache(maxsize=256)
def integer_case(problem: GroupedConvProblem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operands of integers from -8 to 8 and the exact result, rounded once, all as bits."""
    rng = np.random.default_rng(0)
    shapes = problem.operand_shapes[:2]
    a, b = (rng.integers(-8, 9, shape).astype(np.float64) for shape in shapes)
    expected = to_bits(reference(problem, a, b), problem.dtype)
    return to_bits(a, problem.dtype), to_bits(b, problem.dtype), expected


def assert_exact(kernel: Kernel, problem: GroupedConvProblem, *, sealed: bool = False) -> None:
    in0, in1, expected = integer_case(problem)
    got = kernel.run(problem, in0, in1, sealed=sealed)
    # -0.0 and 0.0 are the same integer
    same = got == expected if problem.dtype != "bf16" else to_values(got, "bf16") == to_values(expected, "bf16")
    wrong = np.argwhere(~same)
    assert not len(wrong), f"{problem.id}: {len(wrong)} of {got.size} values are wrong, the first at {wrong[0]}"


# ---- problems -------------------------------------------------------------------------------

_2D = [
    # N C K G Hi Wi Y X, then what differs from stride 1, pad 0, dilation 1
    (dict(N=1, C=64, K=64, G=1, Hi=9, Wi=9, Y=3, X=3), dict(pad=1)),
    (dict(N=2, C=40, K=70, G=1, Hi=5, Wi=6, Y=1, X=1), {}),
    (dict(N=1, C=3, K=7, G=1, Hi=12, Wi=11, Y=7, X=7), dict(stride=2, pad=3)),
    (dict(N=2, C=5, K=129, G=1, Hi=4, Wi=3, Y=2, X=3), dict(pad=1)),
    (dict(N=1, C=150, K=33, G=1, Hi=5, Wi=4, Y=3, X=1), dict(pad=1)),
    (dict(N=3, C=1, K=1, G=1, Hi=1, Wi=1, Y=1, X=1), {}),
    (dict(N=1, C=8, K=8, G=1, Hi=1, Wi=1, Y=3, X=3), dict(pad=1)),
    (dict(N=1, C=6, K=10, G=1, Hi=3, Wi=2, Y=5, X=4), dict(pad=3)),
    (dict(N=1, C=17, K=2, G=1, Hi=8, Wi=7, Y=1, X=1), dict(stride=3)),
    (dict(N=2, C=4, K=6, G=2, Hi=7, Wi=9, Y=2, X=2), dict(stride=3)),
    (dict(N=1, C=4, K=4, G=1, Hi=2, Wi=5, Y=3, X=3), dict(pad=4)),
    (dict(N=1, C=10, K=6, G=2, Hi=11, Wi=9, Y=3, X=3), dict(dilation=2, pad=2)),
    (dict(N=1, C=3, K=5, G=1, Hi=13, Wi=12, Y=3, X=4), dict(dilation=3, stride=2, pad=1)),
    (dict(N=1, C=96, K=96, G=96, Hi=6, Wi=7, Y=3, X=3), dict(pad=1)),
    (dict(N=2, C=19, K=19, G=19, Hi=9, Wi=8, Y=5, X=5), dict(stride=2, pad=2)),
    (dict(N=1, C=4, K=12, G=4, Hi=6, Wi=6, Y=3, X=3), dict(pad=1)),
    (dict(N=1, C=12, K=4, G=4, Hi=6, Wi=6, Y=3, X=3), dict(pad=1)),
    (dict(N=1, C=64, K=96, G=4, Hi=6, Wi=5, Y=3, X=3), dict(pad=1, stride=2)),
    (dict(N=1, C=2, K=3, G=1, Hi=4, Wi=40, Y=1, X=9), dict(pad=4)),
    (dict(N=1, C=7, K=9, G=1, Hi=5, Wi=5, Y=2, X=2), dict(stride=7)),
    (dict(N=40, C=16, K=16, G=1, Hi=6, Wi=6, Y=1, X=1), {}),
]
_3D = [
    (dict(N=1, C=20, K=18, G=1, Di=4, Hi=5, Wi=6, Z=3, Y=3, X=3), dict(pad=1)),
    (dict(N=2, C=3, K=5, G=1, Di=5, Hi=6, Wi=4, Z=3, Y=2, X=3), dict(stride=2, pad=1)),
    (dict(N=1, C=10, K=4, G=2, Di=7, Hi=6, Wi=7, Z=2, Y=3, X=2), dict(dilation=2, pad=1)),
    (dict(N=1, C=18, K=18, G=18, Di=4, Hi=3, Wi=5, Z=3, Y=3, X=3), dict(pad=1)),
    (dict(N=1, C=70, K=33, G=1, Di=2, Hi=2, Wi=3, Z=1, Y=1, X=1), {}),
    (dict(N=1, C=3, K=2, G=1, Di=1, Hi=1, Wi=1, Z=3, Y=3, X=3), dict(pad=1)),
    (dict(N=1, C=4, K=4, G=1, Di=5, Hi=4, Wi=4, Z=2, Y=1, X=2), dict(stride=3)),
]


def build_problem(
    direction: str, dtype: str, ndim: int, extents: dict[str, int], geometry: dict[str, int]
) -> GroupedConvProblem:
    axes = "hw" if ndim == 2 else "dhw"
    spread = {f"{name}_{axis}": value for name, value in geometry.items() for axis in axes}
    return GroupedConvProblem(direction, dtype, ndim, **extents, **spread)


def awkward_problems(direction: str, dtype: str, ndim: int) -> list[GroupedConvProblem]:
    uneven = replace(
        build_problem(direction, dtype, 2, dict(N=1, C=6, K=8, G=2, Hi=9, Wi=14, Y=3, X=2), {}),
        stride_w=3, pad_h=2, dilation_h=2, dilation_w=4,
    )  # fmt: skip
    table = [build_problem(direction, dtype, ndim, *row) for row in (_2D if ndim == 2 else _3D)]
    return [*table, uneven] if ndim == 2 else table


@st.composite
def problems(draw: st.DrawFn, direction: str, dtype: str, ndim: int) -> GroupedConvProblem:
    """Small problems of any geometry whose output exists."""
    groups = draw(st.sampled_from([1, 1, 1, 2, 3, 18]))
    c, k = (groups * draw(st.sampled_from([1, 1, 2, 3, 4, 7, 16, 31, 34])) for _ in "ck")
    values = {"N": draw(st.integers(1, 3)), "C": c, "K": k, "G": groups}
    names = [("Hi", "Y", "h"), ("Wi", "X", "w")] if ndim == 2 else [("Di", "Z", "d"), ("Hi", "Y", "h"), ("Wi", "X", "w")]
    for extent, taps, axis in names:
        values[taps] = draw(st.integers(1, 4 if ndim == 2 else 3))
        dilation, pad = draw(st.integers(1, 3)), draw(st.integers(0, 4))
        least = max(1, (values[taps] - 1) * dilation + 1 - 2 * pad)
        values[extent] = draw(st.integers(least, least + 6))
        values |= {f"dilation_{axis}": dilation, f"pad_{axis}": pad, f"stride_{axis}": draw(st.integers(1, 4))}
    return GroupedConvProblem(direction, dtype, ndim, **values)


# ---- the tests ------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cpu_kernels")


@pytest.fixture(params=CONFIGS, ids=lambda config: config.name, scope="module")
def config(request: pytest.FixtureRequest) -> Config:
    return request.param


@pytest.fixture(scope="module")
def kernel(config: Config, folder: Path) -> Iterator[Kernel]:
    yield Kernel(compile_library(config, folder, "-march=native"))
