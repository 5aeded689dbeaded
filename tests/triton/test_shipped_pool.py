"""The Triton kernels that ship: they compute what they declare, in Triton's interpreter, and compile."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import run_python
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.code_facts import code_facts
from tile_oracle.compiling.triton.child_process import triton_folder
from tile_oracle.compiling.triton.description import describe_file
from tile_oracle.compiling.triton.kernel_source import TritonSource, open_triton, shipped_file
from tile_oracle.kernel import NamedKernel
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.operation import Kind
from tile_oracle.operations.attention.problem import AttentionProblem
from tile_oracle.operations.fused_gemm.problem import FusedGemmProblem
from tile_oracle.operations.fused_moe.problem import FusedMoeProblem
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS, GemmProblem
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.operations.paged_attention.problem import PagedAttentionProblem
from tile_oracle.operations.rms_norm.problem import RmsNormProblem
from tile_oracle.operations.scaled_gemm.problem import ScaledGemmProblem
from tile_oracle.operations.softmax.problem import SoftmaxProblem
from tile_oracle.problem import Problem
from tile_oracle.targets import TargetOptions, resolve_target

pytestmark = pytest.mark.skipif(triton_folder() is None, reason="Triton is not installed")
WAYS = ("SPLIT_K", "ROWS", "COLUMNS", "EVEN", "FILTER", "STRIDE", "TAP_ROWS")
TMA = ("tma", "tma_uneven", "tma_swapped", "tma_split_k", "tma_stream_k")
ODD = ("tma_odd", "padded")
GLUON = ("tma_warps", "tma_warps_split_k")
SHAPES = (
    (70, 48, 96),
    (33, 17, 65),
    (1, 32, 160),
    (130, 136, 40),
    (3, 40, 1048),
    (90, 1, 300),
    (17, 3, 1040),
    (200, 336, 144),
    (40, 72, 200),
    (200, 330, 136),
)
SCALED = (
    ScaledGemmProblem("fp8_e4m3", "tensor", 33, 144, 528),
    ScaledGemmProblem("fp8_e4m3", "row", 70, 48, 528),
    ScaledGemmProblem("fp8_e4m3", "block", 9, 144, 512),
    ScaledGemmProblem("fp8_e5m2", "block", 40, 200, 304),
    ScaledGemmProblem("fp8_e4m3", "block", 5, 17, 300),
)
MX = (
    ScaledGemmProblem("fp4_e2m1", "mx", 33, 144, 1056),
    ScaledGemmProblem("fp4_e2m1", "mx", 5, 16, 32),
    ScaledGemmProblem("fp8_e4m3", "mx", 9, 144, 544),
    ScaledGemmProblem("fp8_e5m2", "mx", 40, 200, 512),
)
EXPERTS = (
    FusedMoeProblem("bf16", "gate_up", 40, 6, 2, 144, 80, zipf=100),
    FusedMoeProblem("bf16", "down", 19, 8, 4, 80, 144, hot=100),
    FusedMoeProblem("bf16", "gate_up", 7, 3, 3, 130, 17),
    FusedMoeProblem("fp8_e4m3", "down", 19, 6, 2, 80, 272, zipf=100),
    FusedMoeProblem("fp8_e4m3", "gate_up", 40, 6, 2, 144, 80, scale="row"),
    FusedMoeProblem("fp8_e4m3", "down", 19, 6, 2, 80, 272, zipf=100, scale="row"),
    FusedMoeProblem("fp8_e4m3", "gate_up", 19, 6, 2, 272, 80, scale="tensor"),
)


@pytest.fixture(scope="module")
def hopper() -> TritonSource:
    return open_triton("sm_90", "")


def small(kernel: NamedKernel) -> bool:
    """Small tiles: the interpreter takes long for large ones."""
    values = kernel.configuration
    if "BLOCK" in values:
        return int(values["BLOCK"]) <= 4096
    if "BLOCK_M" not in values:
        return True
    return int(values["BLOCK_M"]) * int(values.get("BLOCK_N", 1)) <= 64 * 128


def smallest_of_each_way(kernels: list[NamedKernel]) -> list[NamedKernel]:
    """For each combination of flags and WAYS the kernel with the smallest tile."""

    def tile(kernel: NamedKernel) -> int:
        values = kernel.configuration
        return math.prod(int(values.get(one, 1)) for one in ("BLOCK_M", "BLOCK_N", "BLOCK_H", "BLOCK_W"))

    def way(kernel: NamedKernel) -> tuple[object, ...]:
        values = kernel.configuration
        flags = (one for one in values.values() if isinstance(one, bool))
        more = int(values.get("MORE_N", 0))
        return (*flags, more & (more - 1), *map(values.get, WAYS))

    kernels = sorted(kernels, key=tile)
    return list({way(one): one for one in reversed(kernels)}.values())


Case = tuple[NamedKernel, Problem]


def cases(source: TritonSource, kernels: Iterator[NamedKernel], problems: list[Problem]) -> list[Case]:
    return [
        (kernel, problem)
        for kernel in kernels
        for problem in problems
        if source.refusal(kernel, problem) is None
    ]


def wrong_in_the_interpreter(told: list[Case], build_dir: Path, arch: str = "sm_90") -> list[str]:
    """The cases that `--target interpret` does not find right, with the reason."""
    options = TargetOptions(build_dir=build_dir / "cache", isa=arch, sources=("triton",))
    target, _ = resolve_target("interpret", options)
    supervisor = Supervisor(target, SweepSettings())
    kernels: dict[Problem, list[NamedKernel]] = {}
    for kernel, problem in told:
        kernels.setdefault(problem, []).append(kernel)
    try:
        found = [one for problem, some in kernels.items() for one in supervisor.sweep(problem, some)]
    finally:
        supervisor.close()
        target.close()
    assert len(found) == len(told)
    return [f"{m.problem.id}: {m.kernel.name}: {m.detail}" for m in found if m.status != "untimed"]


def test_every_kind_has_a_pool(hopper: TritonSource) -> None:
    assert len(hopper.kinds) == 8 + 3 * 2 * 2 + 2 * 3 + 2 * 3 * 2 + 2 * 3 + (1 + 3) * 2 + 2 * 4 * 9 + 2 * 6
    for layout in GEMM_LAYOUTS:
        pool = hopper.pool(Kind.of("gemm", dtype="bf16", layout=layout))
        assert {kernel.function for kernel in pool if isinstance(kernel, NamedKernel)} == {
            *("tiles", "persistent", "split_k", "stream_k", "pieces", *TMA),
            *(("few_rows", "few_columns", "tma_pieces", *ODD, *GLUON) if layout == "rcr" else ()),
        }
        assert len(pool) == {"rcr": 167, "ccr": 100}.get(layout, 99)


WITHOUT_GLUON = """\
import sys

class Older:
    def find_spec(self, name, path=None, target=None):
        if name == "triton.experimental.gluon":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Older())
sys.path.insert(0, sys.argv[1])
import shipped
from tile_oracle.triton.declare import declared
print(*sorted({one.main.function.__name__ for one in declared()}))
"""


def test_an_older_triton_has_all_but_the_kernels_in_gluon() -> None:
    folder = str(shipped_file().parent)
    done = run_python("-c", WITHOUT_GLUON, folder)
    assert done.returncode == 0, done.stderr
    assert "tma_warps" not in done.stdout.split()
    assert {"tiles", "tma", "pieces", "window"} <= set(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "function"),
    [
        *itertools.product(GEMM_LAYOUTS, ("tiles", "persistent", "split_k", "stream_k", "pieces", *TMA)),
        ("rcr", "few_rows"),
        ("rcr", "few_columns"),
        ("rcr", "tma_pieces"),
        *itertools.product(["rcr"], ODD),
    ],
)
def test_products_are_right(hopper: TritonSource, tmp_path: Path, layout: str, function: str) -> None:
    pool = hopper.pool(Kind.of("gemm", dtype="fp16", layout=layout))
    kernels = [one for one in pool if isinstance(one, NamedKernel) and one.function == function]
    chosen = smallest_of_each_way(kernels)
    problems: list[Problem] = [GemmProblem("fp16", layout, *shape) for shape in SHAPES]
    problems.append(GemmProblem("fp16", layout, 80, 64, 1024))
    told = cases(hopper, iter(chosen), problems)
    assert told
    assert not wrong_in_the_interpreter(told, tmp_path)


# N, C, K, G, Hi, Wi, Y, X, stride, pad, dilation (each of height and width), and those of 3D
CONVOLUTIONS = (
    (2, 1, 32, 16, 1, 9, 7, 3, 3, 1, 1, 1, 1),
    (2, 2, 12, 18, 3, 8, 10, 3, 2, 2, 3, 0, 1, 2, 1),
    (2, 2, 8, 8, 8, 6, 6, 3, 3, 1, 1, 1, 1),
    (2, 1, 20, 20, 20, 9, 8, 5, 4, 2, 3, 2, 1, 1, 2),
    (2, 3, 80, 40, 1, 5, 5, 1, 1),
    (2, 1, 16, 24, 1, 7, 9, 3, 3, 2, 2, 1, 0, 2, 3),
    (2, 1, 16, 8, 1, 6, 7, 1, 1, 2, 3),
    (2, 2, 3, 16, 1, 11, 9, 5, 5, 2, 2, 2, 2),
    (2, 2, 32, 48, 1, 33, 32, 1, 1),
    (2, 3, 24, 40, 1, 9, 17, 3, 2, 1, 1, 2, 1, 2, 3),
    (2, 2, 128, 128, 2, 4, 5, 2, 3, 1, 1, 1, 0),
    (2, 1, 16, 80, 1, 3, 5, 1, 1, 1, 1, 0, 0, 2, 3),
    (3, 2, 48, 16, 1, 5, 6, 1, 1, 1, 1, 0, 0, 1, 1, 3),
    (3, 1, 16, 8, 2, 5, 6, 2, 3, 1, 2, 0, 1, 1, 1, 4, 3, 2, 1, 1),
)


def convolutions(direction: str) -> list[GroupedConvProblem]:
    """Backward weight has a program a group, tap and part, which takes long in the interpreter."""
    found = [GroupedConvProblem(direction, "fp16", *numbers) for numbers in CONVOLUTIONS]
    return [one for one in found if direction != "bwd_weight" or one.G * one.Y * one.X <= 12]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "function"),
    [
        ("forward", "implicit"),
        ("forward", "depthwise"),
        ("bwd_data", "implicit_data"),
        ("bwd_data", "depthwise_data"),
        ("bwd_weight", "implicit_weight"),
        *itertools.product(("forward", "bwd_data", "bwd_weight"), ("tiles", "tma", "tma_uneven")),
        *itertools.product(("bwd_weight",), ("tma_stream_k", "tma_split_k")),
        *itertools.product(("forward", "bwd_data"), ("window",)),
    ],
)
def test_convolutions_are_right(hopper: TritonSource, tmp_path: Path, direction: str, function: str) -> None:
    told: list[Case] = []
    for problem in convolutions(direction):
        pool = hopper.pool(problem.kind)
        kernels = [one for one in pool if isinstance(one, NamedKernel) and one.function == function]
        told += cases(hopper, iter(smallest_of_each_way(kernels)), [problem])
    assert told
    assert not wrong_in_the_interpreter(told, tmp_path)


# N, channels, Hi, Wi, Y, X, stride, pad, dilation (each of height and width), and those of 3D
DEPTHWISE = (
    (2, 2, 72, 9, 7, 3, 3, 1, 1, 1, 1),
    (2, 2, 7, 8, 9, 3, 3, 1, 1, 0, 2),
    (2, 1, 24, 11, 10, 3, 3, 2, 2, 1, 1),
    (2, 1, 6, 9, 10, 5, 5, 1, 1, 2, 2),
    (2, 1, 6, 10, 9, 5, 5, 2, 2, 2, 2),
    (2, 1, 8, 9, 9, 7, 7, 1, 1, 3, 3),
    (2, 1, 8, 9, 10, 7, 7, 2, 2, 3, 3),
    (2, 1, 2, 12, 12, 9, 9, 1, 1, 4, 4),
    (2, 1, 2, 13, 12, 11, 11, 1, 1, 5, 5),
    (2, 2, 1, 9, 10, 3, 3, 1, 1, 2, 3, 2, 3),
    (2, 1, 4, 20, 20, 5, 5, 1, 1, 4, 4, 2, 2),
    (2, 1, 4, 20, 19, 7, 7, 1, 1, 6, 6, 2, 2),
    (2, 1, 20, 9, 8, 5, 4, 2, 3, 2, 1, 1, 2),
    (2, 2, 16, 5, 6, 1, 1),
    (3, 2, 8, 5, 6, 3, 3, 1, 1, 1, 1, 1, 1, 4, 3, 1, 1, 1),
    (3, 1, 5, 5, 6, 3, 3, 2, 2, 1, 1, 1, 1, 5, 3, 2, 1, 1),
    (3, 1, 8, 7, 6, 2, 3, 1, 2, 0, 1, 1, 1, 6, 3, 2, 1, 2),
)


def depthwise(direction: str) -> Iterator[GroupedConvProblem]:
    """One channel a group."""
    for ndim, images, channels, *numbers in DEPTHWISE:
        yield GroupedConvProblem(direction, "fp16", ndim, images, *[channels] * 3, *numbers)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "functions"),
    [
        ("forward", {"depthwise_volume"}),
        ("bwd_data", {"depthwise_volume_data"}),
        ("bwd_weight", {"depthwise_weight", "depthwise_weight_any"}),
    ],
)
def test_depthwise_convolutions_are_right(
    hopper: TritonSource, tmp_path: Path, direction: str, functions: set[str]
) -> None:
    told: list[Case] = []
    for problem in depthwise(direction):
        pool = hopper.pool(problem.kind)
        kernels = [one for one in pool if isinstance(one, NamedKernel) and one.function in functions]
        found = cases(hopper, iter(smallest_of_each_way(kernels)), [problem])
        assert found or (problem.ndim == 2 and direction != "bwd_weight"), problem.id
        told += found
    assert {kernel.function for kernel, _ in told} == functions
    assert not wrong_in_the_interpreter(told, tmp_path)


SOFTMAX_AND_NORM: dict[str, tuple[Problem, ...]] = {
    "softmax_rows": (SoftmaxProblem("fp32", 9, 100), SoftmaxProblem("bf16", 37, 500)),
    "softmax_online": (SoftmaxProblem("fp16", 2, 3001), SoftmaxProblem("fp32", 2, 2100)),
    "softmax_split": (SoftmaxProblem("fp32", 12, 9001), SoftmaxProblem("fp32", 1, 20000)),
    "rms_norm_rows": (RmsNormProblem("fp16", 9, 100), RmsNormProblem("fp32", 37, 500)),
    "rms_norm_walk": (RmsNormProblem("bf16", 2, 3001), RmsNormProblem("fp32", 2, 2100)),
}
ATTENTION: dict[str, tuple[Problem, ...]] = {
    "attention_prefill": (
        AttentionProblem("fp16", 1, 2, 1, 70, 100, 64, 1),
        AttentionProblem("bf16", 1, 2, 2, 65, 130, 64, 0),
    ),
    "attention_decode": (
        AttentionProblem("fp16", 2, 4, 2, 3, 300, 64, 1),
        AttentionProblem("fp16", 1, 8, 1, 1, 260, 128, 0),
    ),
}
FUSED = (
    FusedGemmProblem("bf16", "rcr", "silu_mul", 33, 80, 512),
    FusedGemmProblem("fp16", "rrr", "bias_gelu", 70, 48, 96, 2),
    FusedGemmProblem("bf16", "crr", "gelu_tanh_mul", 64, 72, 128, 2),
    FusedGemmProblem("bf16", "crr", "bias_residual", 32, 16, 600, 2),
    FusedGemmProblem("fp16", "ccr", "bias_gelu_tanh", 128, 144, 1024, 2),
)
PAGED = (
    PagedAttentionProblem("bf16", "bf16", 3, 8, 2, 1, 300, 64, 16, variation=60),
    PagedAttentionProblem("bf16", "fp8_e4m3", 2, 4, 2, 3, 290, 128, 32, 270, 1, 40),
    PagedAttentionProblem("bf16", "bf16", 2, 8, 1, 1, 260, 576, 64, variation=30),
)
PRODUCTS: dict[str, tuple[Problem, ...]] = {
    **dict.fromkeys(("scaled_tiles", "scaled_split_k", "scaled_tma"), SCALED),
    **dict.fromkeys(("experts", "experts_persistent", "experts_tma"), EXPERTS),
    **dict.fromkeys(("paged", "paged_split"), PAGED),
    **dict.fromkeys(("fused_tiles", "fused_split_k", "fused_tma"), FUSED),
}


@pytest.mark.slow
@pytest.mark.parametrize("function", [*SOFTMAX_AND_NORM, *ATTENTION, *PRODUCTS])
def test_other_operations_are_right(hopper: TritonSource, tmp_path: Path, function: str) -> None:
    """Of products a kernel of each way, of others the first and the last one for each problem."""
    told: list[Case] = []
    for problem in {**SOFTMAX_AND_NORM, **ATTENTION, **PRODUCTS}[function]:
        pool = (one for one in hopper.pool(problem.kind) if isinstance(one, NamedKernel))
        found = cases(hopper, (one for one in pool if one.function == function and small(one)), [problem])
        if function in PRODUCTS:
            told += [(kernel, problem) for kernel in smallest_of_each_way([kernel for kernel, _ in found])]
        else:
            told += [found[0], found[-1]]
    assert len(told) >= 3
    assert not wrong_in_the_interpreter(told, tmp_path)


@pytest.mark.slow
def test_products_of_mx_are_right(tmp_path: Path) -> None:
    source = open_triton("gfx950", "")
    told: list[Case] = []
    for problem in MX:
        pool = (one for one in source.pool(problem.kind) if isinstance(one, NamedKernel) and small(one))
        found = cases(source, pool, [problem])
        told += [(kernel, problem) for kernel in smallest_of_each_way([kernel for kernel, _ in found])]
    assert {kernel.function for kernel, _ in told} == {"mx_tiles", "mx_split_k"}
    assert not wrong_in_the_interpreter(told, tmp_path, "gfx950")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_90", "gfx950"])
def test_a_kernel_of_each_function_compiles_without_spills(tmp_path: Path, arch: str) -> None:
    source = open_triton(arch, "")
    conv = [
        one
        for ndim, direction in itertools.product((3, 2), ("forward", "bwd_data", "bwd_weight"))
        for one in source.pool(Kind.of("grouped_conv", direction=direction, dtype="bf16", ndim=ndim))
        if isinstance(one, NamedKernel)
        and (one.configuration.get("EVEN", 8) == 8 or one.function.startswith("depthwise_weight"))
    ]
    rows = [one for op in ("softmax", "rms_norm") for one in source.pool(Kind.of(op, dtype="bf16"))]
    heads = source.pool(Kind.of("attention", dtype="bf16", head_dim=128, causal=1))
    products = [
        one for layout in ("rrr", "rcr") for one in source.pool(Kind.of("gemm", dtype="bf16", layout=layout))
    ]
    scaled = source.pool(Kind.of("scaled_gemm", dtype="fp8_e5m2", scale="block"))
    experts = [
        one
        for dtype, scale in (("bf16", "block"), ("fp8_e4m3", "row"))
        for one in source.pool(Kind.of("fused_moe", dtype=dtype, product="down", scale=scale))
    ]
    fused = source.pool(Kind.of("fused_gemm", dtype="bf16", layout="rcr", epilogue="bias_gelu"))
    mx = source.pool(Kind.of("scaled_gemm", dtype="fp4_e2m1", scale="mx"))
    pool = (*products, *conv, *rows, *heads, *scaled, *mx, *experts, *fused)
    of_function = {
        (kernel.function, kernel.dtype): kernel
        for kernel in pool
        if isinstance(kernel, NamedKernel) and small(kernel)
    }
    with Builder(arch, build_dir=tmp_path / "cache", source=source, runs_here=False) as builder:
        for kernel in of_function.values():
            result = builder.submit(kernel).result()
            assert result.binary is not None, result.log
            spills = code_facts(result.binary.path, arch).spills
            assert spills == 0 or kernel.dtype == "fp8_e4m3", kernel.name  # docs/fused_moe.md: nine of 270


@pytest.mark.slow
def test_kernels_with_specialized_warps_need_triton_3_7(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(shipped_file().parent))
    found = {}
    for version in ("3.6.0", "3.10.1"):
        path = tmp_path / "kernels.py"
        path.write_text(f"import triton\ntriton.__version__ = {version!r}\nimport gemm_tma, pointwise\n")
        described = describe_file(path, "sm_90")
        found[version] = [kernel for kernel in described.units if "SPECIALIZE=True" in kernel.name]
        told = described.told.left_out
        left = {op: count for op, who, why, count in told if who == "tma" and version in why}
        assert left == ({} if version == "3.10.1" else {"gemm": 32, "grouped_conv": 24})
    assert (len(found["3.6.0"]), len(found["3.10.1"])) == (0, 56)
