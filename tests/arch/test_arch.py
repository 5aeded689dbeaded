"""What architectures allow, and the messages with which they refuse a kernel."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.arch import Arch, known_archs, load_arch, read_archs
from tile_oracle.arch.time_bound import MARGIN, Limits, gpu_limits, impossible
from tile_oracle.device.reference import exact_output
from tile_oracle.errors import RuleError
from tile_oracle.files.data_files import data_folder
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.operation import operation_named
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, GroupedConvProblem
from tile_oracle.problem import problem_from_row
from tile_oracle.targets.cpu_info import cpu_peak_flops

SPECS = json.loads((data_folder("kernels") / "arch_specs.json").read_text())


def gpu_kernel(suffix: str = "64x64x64_compv3_intrawave", kind: str = "forward_bf16_2d") -> GroupedConvKernel:
    return parse_kernel_name(f"grouped_conv_{kind}_{suffix}")


def cpu_kernel(**changed: Any) -> GroupedConvKernel:
    kernel = gpu_kernel("64x64x64_compv3_intrawave_w1x1x1_wt4x32x1")
    return replace(kernel, **changed)


def test_an_unknown_architecture_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(RuleError, match=r"'gfx905' is not in kernels/arch_specs.json; did you mean gfx950\?"):
        load_arch("gfx905")
    with pytest.raises(RuleError, match=r"'sm_80' is not in .*; known: gfx908"):
        load_arch("sm_80")
    with pytest.raises(RuleError, match="known: gfx908, gfx90a"):
        load_arch("z" * 10_000)


def test_hardware_figures_of_gfx950_are_the_published_ones_in_their_order() -> None:
    assert load_arch("gfx950").hardware.features() == {
        "hw_num_cus": 256,
        "hw_simds_per_cu": 4,
        "hw_total_simds": 1024,
        "hw_shader_engines": 32,
        "hw_max_clock_mhz": 2400,
        "hw_max_waves_per_cu": 32,
        "hw_wavefront_size": 64,
        "hw_lds_capacity": 65536,
        "hw_l1_cache_kb": 32,
        "hw_l2_cache_kb": 4096,
        "hw_l3_cache_kb": 262144,
        "hw_num_xcd": 8,
    }


REFUSED = """
gfx950 forward_bf16_2d_64x64x64_compv3_intrawave
gfx950 forward_bf16_2d_64x64x64_compv3_interwave
    scheduler: compv3 on gfx950 is intrawave, not interwave
gfx950 forward_bf16_2d_64x64x64_compv4_intrawave
    double_smem_buffer: compv4 on gfx950 has two
gfx950 forward_bf16_2d_64x64x64_comp_async_intrawave_dsb
gfx950 forward_bf16_2d_64x64x64_comp_async_intrawave
    double_smem_buffer: comp_async on gfx950
gfx950 forward_bf16_2d_64x64x64_basic_async_v1_interwave
gfx942 forward_bf16_2d_64x64x64_comp_async_intrawave_dsb
    pipeline: comp_async on gfx942: needs wide
gfx950 forward_bf16_2d_64x64x64_compv9_intrawave
    pipeline: gfx950 has no compv9, only basic_v1
gfx950 forward_bf16_2d_64x64x64_preshufflev2_intrawave_dsb
    pipeline: preshufflev2 is for gemm, not for
gfx942 forward_bf16_2d_128x128x64_mem_intrawave
    waves: 4x4x1 is not one of 1x4x1, 2x2x1, 4x1x1 on gfx942
gfx1100 forward_bf16_2d_64x64x64_mem_intrawave_w2x4x1_wt16x16x16
gfx1100 forward_bf16_2d_32x128x64_mem_intrawave
    waves: 1x4x1
    warp tile: 32x32x16 is not one of 16x16x16 for bf16 on gfx1100
gfx1200 forward_fp32_2d_64x64x64_compv3_intrawave
    dtype: gfx1200 has kernels for bf16, fp16, not for fp32
gfx908 forward_bf16_2d_16x64x64_mem_intrawave_w4x1x1_wt4x64x16
    warp tile: 4x64x16 is not one of 32x32x8
gfx950 forward_bf16_2d_16x64x64_mem_intrawave_w4x1x1_wt4x64x16
gfx950 forward_bf16_2d_96x64x48_mem_intrawave_w4x1x1_wt16x16x32_v2x4x8
    tile: tile_m = 96 is not a multiple of waves x warp tile = 4 x 16
    tile: tile_k = 48 is not
gfx950 forward_bf16_2d_128x64x128_compv4_intrawave_dsb
gfx942 forward_bf16_2d_64x64x128_compv4_intrawave_dsb
gfx942 forward_fp16_2d_128x128x64_mem_intrawave_dsb_w2x2x1
gfx942 forward_bf16_2d_128x128x128_mem_intrawave_dsb_w2x2x1_wt32x32x16
    LDS: 128x128x128 bf16 in two buffers needs 131,072 bytes, mem on gfx942 has 65,536
gfx950 forward_bf16_2d_128x128x128_mem_intrawave_dsb_w2x2x1_wt32x32x16
gfx950 forward_bf16_2d_256x256x256_mem_intrawave_w2x2x1_wt32x32x16
    LDS: 256x256x256 bf16 needs 262,144 bytes, mem on gfx950 has 163,840
gfx950 forward_bf16_2d_64x64x64_mem_intrawave_v16x8x8
    vectors: vector_a = 16 of bf16 is 32 bytes
gfx950 forward_fp32_2d_64x64x64_mem_intrawave
    vectors: vector_b = 8 of fp32 is 32 bytes, a load on gfx950 moves at most 16
    vectors: vector_c = 8
gfx950 forward_fp32_2d_64x64x64_mem_intrawave_v4x4x4
gfx950 forward_bf16_2d_64x64x64_mem_intrawave_v3x1x1
    vectors: vector_a = 3 is not a power of two
    vectors
gfx950 forward_bf16_2d_16x64x64_mem_intrawave_v8x8x8
    vectors: tile_m x tile_k = 1,024 elements are not whole loads of vector_a = 8 for 256 threads
gfx950 forward_bf16_2d_64x16x64_mem_intrawave_w4x1x1_wt16x16x16_v8x8x8
    vectors: tile_n x tile_k = 1,024
gfx950 bwd_data_bf16_2d_64x64x64_mem_intrawave_si
    split_image: gfx950 has no bwd_data
gfx950 bwd_weight_bf16_2d_64x64x64_mem_intrawave_si
    split_image: gfx950 has no bwd_w
gfx950 forward_bf16_2d_64x64x64_mem_intrawave_gm4
gfx950 forward_bf16_2d_64x64x64_mem_intrawave_gm3
    num_groups_to_merge: 3 is not one of 1, 2, 4, 8, 16, 32
gfx950 bwd_data_bf16_2d_64x64x64_mem_intrawave_gm4
    num_groups_to_merge: gfx950 has no
gfx950 bwd_data_bf16_2d_64x64x64_mem_intrawave_eg
gfx950 forward_bf16_2d_64x64x64_mem_intrawave_gm2_eg
    explicit_gemm: the tensors are used as matrices
gfx950 bwd_weight_bf16_3d_64x64x64_mem_intrawave_2s
gfx950 forward_bf16_2d_64x64x64_mem_intrawave_epdefault_pad010
gfx1250 gemm_fp16_rcr_comp_tdm_tdm_intrawave_False_False_False_False_128x128x64_2x4x1_16x16x32
gfx1250 gemm_fp16_rcr_comp_tdm_v2_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_16x16x32
gfx1250 gemm_fp16_rcr_comp_tdm_v2_cshuffle_intrawave_True_True_True_False_128x128x64_2x4x1_16x16x32
    waves: comp_tdm_v2 on gfx1250 has 4 waves, not 8
    padding: comp_tdm_v2 on gfx1250: pad_m, pad_n, pad_k must be off
gfx1250 gemm_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x128x64_2x4x1_16x16x32
    waves: compv3 on gfx1250 has 1 to 4 waves, not 8
gfx1250 gemm_fp16_rcr_comp_async_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_16x16x32
    padding: comp_async on gfx1250: pad_m, pad_n, pad_k must be on
gfx1250 gemm_fp16_rcr_mem_cshuffle_intrawave_True_True_True_False_128x128x64_2x4x1_16x16x32
gfx950 gemm_fp16_rcr_comp_tdm_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_16x16x32
    pipeline: gfx950 has no comp_tdm, only
gfx950 gemm_fp16_rcr_compv3_tdm_intrawave_False_False_False_False_128x128x64_2x2x1_16x16x32
    epilogue: kernels on gfx950 end in cshuffle or default, not tdm
"""
"""Architecture and kernel, and below them all reasons that must be given. Of LDS both buffers count; their
limit is what the chip has. The tensor data mover is gfx1250's."""


def refused() -> Iterator[tuple[str, Kernel, tuple[str, ...]]]:
    """Read REFUSED."""
    for case in re.split(r"\n(?=\w)", REFUSED.strip("\n")):
        first, *reasons = case.split("\n    ")
        arch, name = first.split()
        yield (
            arch,
            parse_kernel_name(name if name.startswith("gemm_") else f"grouped_conv_{name}"),
            tuple(reasons),
        )


REFUSALS = [
    *refused(),
    ("cpu", cpu_kernel(), ()),
    ("cpu", cpu_kernel(dtype="fp32", direction="bwd_weight", ndim=3), ()),
    ("cpu", cpu_kernel(pipeline="compv4", double_smem_buffer=True), ()),
    ("cpu", cpu_kernel(pipeline="compv4"), ("double_smem_buffer: compv4 on cpu has two buffers",)),
    ("cpu", cpu_kernel(double_smem_buffer=True), ("double_smem_buffer: compv3 on cpu has one buffer",)),
    (
        "cpu",
        cpu_kernel(pipeline="compv5"),
        ("pipeline: cpu has no compv5, only basic_v1, mem, compv3, compv4",),
    ),
    ("cpu", cpu_kernel(pipeline="mem", scheduler="interwave"), ("scheduler: mem on cpu is intrawave",)),
    ("cpu", cpu_kernel(epilogue="default"), ("epilogue: kernels on cpu end in cshuffle, not default",)),
    ("cpu", cpu_kernel(wave_m=4), ("waves: 4x1x1 is not one of 1x1x1 on cpu",)),
    ("cpu", cpu_kernel(warp_tile_m=16), ("warp tile: 16x32x1 is not one of 1x16x1, 4x16x1",)),
    ("cpu", cpu_kernel(tile_m=66), ("tile: tile_m = 66 is not a multiple of waves x warp tile = 1 x 4",)),
    ("cpu", cpu_kernel(tile_n=48), ("tile: tile_n = 48 is not a multiple of waves x warp tile = 1 x 32",)),
    ("cpu", cpu_kernel(tile_k=1), ()),
    ("cpu", cpu_kernel(vector_a=8), ("vectors: 8x8x8 on cpu must be 4x8x8",)),
    ("cpu", cpu_kernel(split_image=True), ("split_image: cpu has no forward kernels with it",)),
    ("cpu", cpu_kernel(num_groups_to_merge=2), ("num_groups_to_merge: cpu has no forward",)),
    ("cpu", cpu_kernel(explicit_gemm=True), ("explicit_gemm: cpu has no forward",)),
    ("cpu", cpu_kernel(direction="bwd_weight", two_stage=True), ("two_stage: cpu has no bwd_weight",)),
    ("cpu", cpu_kernel(pad_k=False), ("padding: cpu kernels always handle partial tiles",)),
    (
        "cpu",
        cpu_kernel(tile_m=512, tile_n=512, tile_k=512),
        ("LDS: 512x512x512 bf16 needs 2,097,152 bytes, compv3 on cpu has 1,048,576",),
    ),
]


@pytest.mark.parametrize(
    ("arch", "kernel", "reasons"), REFUSALS, ids=lambda v: getattr(v, "short_name", None)
)
def test_all_reasons_are_given_and_no_other(arch: str, kernel: Kernel, reasons: tuple[str, ...]) -> None:
    given_reasons = load_arch(arch).refusals(kernel)
    assert len(given_reasons) == len(reasons), given_reasons
    for given_reason, start in zip(given_reasons, reasons, strict=True):
        assert given_reason.startswith(start)
        assert "\n" not in given_reason
    assert load_arch(arch).refusal(kernel) == (given_reasons[0] if reasons else None)


# (architecture, kernel, bytes by hand)
LDS = [
    ("gfx950", gpu_kernel("128x64x128_mem_intrawave"), (128 * 128 + 64 * 128) * 2),
    ("gfx950", gpu_kernel("128x64x128_mem_intrawave_dsb"), (128 * 128 + 64 * 128) * 2 * 2),
    ("gfx90a", gpu_kernel("64x64x64_mem_intrawave", "forward_fp32_2d"), (64 * 64 + 64 * 64) * 4),
    ("cpu", cpu_kernel(pipeline="basic_v1"), 0),
    ("cpu", cpu_kernel(pipeline="mem", tile_n=128), 128 * 64 * 4),
    ("cpu", cpu_kernel(pipeline="compv3", tile_n=128), (64 + 128) * 64 * 4),
    ("cpu", cpu_kernel(pipeline="compv4", double_smem_buffer=True, dtype="fp32"), 2 * (64 + 64) * 64 * 4),
]


@pytest.mark.parametrize(("arch", "kernel", "expected"), LDS)
def test_local_memory_holds_what_the_pipeline_stages(
    arch: str, kernel: GroupedConvKernel, expected: int
) -> None:
    assert load_arch(arch).lds_bytes(kernel) == expected


@pytest.mark.parametrize(
    ("arch", "dtype", "tile", "waves", "expected"),
    [
        ("gfx950", "bf16", (64, 64, 64), (4, 1, 1), (8, 8, 8)),
        ("gfx950", "bf16", (16, 64, 64), (1, 4, 1), (4, 8, 8)),
        ("gfx950", "bf16", (16, 64, 32), (1, 4, 1), (2, 8, 8)),
        ("gfx950", "fp32", (64, 64, 64), (4, 1, 1), (4, 4, 4)),
        ("cpu", "fp32", (64, 64, 64), (1, 1, 1), (4, 8, 8)),
    ],
)
def test_the_widest_vectors_are_whole_loads_of_sixteen_bytes(
    arch: str,
    dtype: str,
    tile: tuple[int, int, int],
    waves: tuple[int, int, int],
    expected: tuple[int, int, int],
) -> None:
    assert load_arch(arch).widest_vectors(dtype, tile, waves) == expected


@given(
    st.sampled_from(known_archs()),
    st.sampled_from([kernel for _, kernel, _ in REFUSALS if isinstance(kernel, GroupedConvKernel)]),
    st.data(),
)
def test_any_kernel_gets_an_answer(name: str, kernel: GroupedConvKernel, data: st.DataObject) -> None:
    changed = replace(
        kernel,
        **{
            field: data.draw(st.integers(1, 1 << 20))
            for field in data.draw(st.sets(st.sampled_from(("tile_m", "wave_n", "warp_tile_k", "vector_c"))))
        },
    )
    arch = load_arch(name)
    reasons = arch.refusals(changed)
    assert arch.refusal(changed) == next(iter(reasons), None)
    assert all(reason and "\n" not in reason and ": " in reason for reason in reasons)


# ---- problems -----------------------------------------------------------------------------------


def problem(direction: str = "forward", **changed: int) -> GroupedConvProblem:
    sizes = {"N": 2, "C": 64, "K": 128, "G": 1, "Hi": 16, "Wi": 16, "Y": 1, "X": 1} | changed
    return GroupedConvProblem(direction, "bf16", 2, **sizes)


FORWARD, DATA, WEIGHT = "forward_bf16_2d", "bwd_data_bf16_2d", "bwd_weight_bf16_2d"

PROBLEM_REFUSALS = [
    (gpu_kernel(), problem(), None),
    (
        gpu_kernel(),
        problem("bwd_data"),
        "kind: the kernel is for forward bf16 2D, the problem is bwd_data bf16 2D",
    ),
    (gpu_kernel(kind="forward_fp16_2d"), problem(), "kind: the kernel is for forward fp16 2D"),
    (gpu_kernel(kind="forward_bf16_3d"), problem(), "kind: the kernel is for forward bf16 3D"),
    (gpu_kernel("64x64x64_mem_intrawave_gm4"), problem(G=8), None),
    (gpu_kernel("64x64x64_mem_intrawave_gm4"), problem(G=2), "num_groups_to_merge: 4 does not divide G = 2"),
    (gpu_kernel("64x64x64_mem_intrawave_gm4"), problem(), "num_groups_to_merge: 4 does not divide G = 1"),
    (gpu_kernel("64x64x64_mem_intrawave_eg"), problem(), None),
    (gpu_kernel("64x64x64_mem_intrawave_eg"), problem(Y=3, X=3), "explicit_gemm: only a 1x1 filter"),
    (gpu_kernel("64x64x64_mem_intrawave_eg"), problem(stride_w=2), "explicit_gemm: only a 1x1 filter"),
    (gpu_kernel("64x64x64_mem_intrawave_eg"), problem(pad_h=1), "explicit_gemm: only a 1x1 filter"),
    # Odd channels do not matter while the axis is padded ...
    (gpu_kernel(), problem(C=3, K=5), None),
    # ... and named when it is not. forward: A and B run along C (the K of the GEMM), C along K (its N).
    (
        gpu_kernel("64x64x64_mem_intrawave_pad110"),
        problem(C=72),
        "padding: pad_k is off and K = 72 is not a mul",
    ),
    (gpu_kernel("64x64x64_mem_intrawave_pad110"), problem(), None),
    (gpu_kernel("64x64x64_mem_intrawave_pad101"), problem(K=68), "padding: pad_n is off and N = 68"),
    (gpu_kernel("64x64x64_mem_intrawave_pad011"), problem(N=1, Hi=7), "padding: pad_m is off and M = 112"),
    (
        gpu_kernel("64x64x64_mem_intrawave_pad110"),
        problem(C=4, Y=4, X=4, pad_h=2, pad_w=2),
        "vectors: pad_k is off and C/G = 4 is not a multiple of vector_b = 8",
    ),
    (gpu_kernel("64x64x64_mem_intrawave_v4x4x8_pad110"), problem(C=4, Y=4, X=4, pad_h=2, pad_w=2), None),
    # Groups count: C/G, not C.
    (
        gpu_kernel("64x64x64_mem_intrawave_pad110"),
        problem(C=64, G=16, Y=4, X=4, pad_h=2, pad_w=2),
        "vectors: pad_k is off and C/G = 4",
    ),
    (
        gpu_kernel("64x64x64_mem_intrawave_pad110", DATA),
        problem("bwd_data", K=2, Y=8, X=8, pad_h=4, pad_w=4, C=64),
        "vectors: pad_k is off and K/G = 2 is not a multiple of vector_a = 4",
    ),
    (
        gpu_kernel("64x64x64_mem_intrawave_pad101", WEIGHT),
        problem("bwd_weight", C=4, Y=4, X=4, pad_h=2, pad_w=2),
        "vectors: pad_n is off and C/G = 4 is not a multiple of vector_b = 8",
    ),
    (gpu_kernel("64x64x64_mem_intrawave_pad011", WEIGHT), problem("bwd_weight"), None),
]


@pytest.mark.parametrize(("kernel", "instance", "reason"), PROBLEM_REFUSALS)
def test_requirements_of_a_problem_on_a_kernel(
    kernel: GroupedConvKernel, instance: GroupedConvProblem, reason: str | None
) -> None:
    answer = load_arch("gfx950").problem_refusal(kernel, instance)
    assert (answer is None) == (reason is None), answer
    assert (answer or "").startswith(reason or "")


# ---- the table ----------------------------------------------------------------------------------


def written(folder: Path, specs: Any) -> Path:
    path = folder / "arch_specs.json"
    path.write_text(specs if isinstance(specs, str) else json.dumps(specs))
    return path


def test_the_table_takes_an_architecture_of_another_maker(tmp_path: Path) -> None:
    specs = copy.deepcopy(SPECS)
    specs["kernel_families"]["mma"] = copy.deepcopy(specs["kernel_families"]["ck_tile"])
    specs["archs"]["sm_90"] = copy.deepcopy(specs["archs"]["gfx950"]) | {
        "family": "hopper",
        "kernels": "mma",
        "waves": [[2, 2, 1], [4, 2, 1]],
        "warp_tiles": {"bf16": [[16, 8, 16]], "fp16": [[16, 8, 16]]},
    }
    specs["archs"]["sm_90"]["hardware"] |= {"product": "NVIDIA H200", "wavefront_size": 32, "num_cus": 132}
    sm_90 = read_archs(written(tmp_path, specs))["sm_90"]
    assert isinstance(sm_90, Arch)
    kernel = gpu_kernel("64x64x64_compv3_intrawave_w2x2x1_wt16x8x16")
    assert sm_90.refusals(kernel) == ()
    assert sm_90.workgroup_threads(kernel) == 128


def _set(*path: str, value: Any) -> Any:
    def change(specs: Any) -> None:
        for key in path[:-1]:
            specs = specs[key]
        specs[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("archs", "cpu", "wavez", value=[]), "archs.cpu: wavez is not a field"),
        (_set("archs", "cpu", "waves", value=[[1, 1]]), r"cpu: waves\[0\]: expected `array` of length 3"),
        (_set("archs", "cpu", "waves", value=[[1, 0, 1]]), r"cpu: waves\[0\]\[1\]: expected `int` >= 1"),
        (_set("archs", "cpu", "waves", value=[[1, True, 1]]), r"waves\[0\]\[1\]: expected `int`, got `bool`"),
        (
            _set("archs", "cpu", "kernels", value="cuda"),
            "cpu: 'cuda' is not one of ck_tile, ck_tile_tdm, native, cpu",
        ),
        (
            _set("kernel_families", "cpu", "extends", value="gpu"),
            "kernel_families.cpu extends 'gpu', which is not a family above it",
        ),
        (_set("archs", "cpu", "hardware", value={}), "hardware: object missing required field `product`"),
        (_set("archs", "cpu", "hardware", "num_cus", value=1.5), "num_cus: expected `int`, got `float`"),
        (_set("element_bytes", "fp32", value=0), "element_bytes.*: expected `float` > 0"),
        (
            _set("kernel_families", "cpu", "pipelines", "mem", "double_smem_buffer", value="maybe"),
            "kernels.pipelines.*double_smem_buffer: invalid enum value 'maybe'",
        ),
        (_set("kernel_families", "cpu", "paddings", value=0), "object contains unknown field `paddings`"),
    ],
)
def test_a_mistake_in_the_table_is_reported_with_its_place(change: Any, message: str, tmp_path: Path) -> None:
    specs = copy.deepcopy(SPECS)
    change(specs)
    with pytest.raises(RuleError, match=f"^arch_specs.json: .*{message}"):
        read_archs(written(tmp_path, specs))


def test_the_parts_of_the_table_fit_each_other() -> None:
    known = {*SPECS["element_bytes"]}
    assert {"bf16", "fp16", "fp32", "fp8"} <= known
    assert {*SPECS["accumulate"].values()} <= known
    assert all({*types.split("_")} <= known or types in known for types in SPECS["accumulate"])
    for name in SPECS["archs"]:
        arch = load_arch(name)
        assert {*arch.warp_tiles, *arch.preshuffle_warp_tiles} <= {*SPECS["accumulate"]}
        assert {*arch.pipelines_refused} <= {*arch.kernels.pipelines}
        assert all(math.prod(w) * arch.hardware.wavefront_size <= arch.most_threads for w in arch.waves)
        assert (arch.kernels.fixed_vectors is None) == (arch.kernels.max_vector_bytes > 0)
        assert arch.kernels.options["num_groups_to_merge"].values


# Lower bounds of a kernel's time: never above the time of a correct kernel.

GROUPED_CONV = operation_named("grouped_conv")
CONVS = [
    GroupedConvProblem.from_id(f"{direction}-{rest}")
    for direction in DIRECTIONS
    for rest in ("fp32-n2-g3-c9-k21-i6x5-f3x2-s2x1-p1x0-d1x2", "fp32-n1-c5-k3-i4x3x5-f2x1x3-p1x0x1")
] + [GroupedConvProblem.from_id("forward-fp32-n1-c4-k4-i1x1-f3x3-p1")]


@pytest.mark.parametrize("problem", CONVS, ids=lambda problem: problem.id)
def test_only_products_inside_the_image_count(problem: GroupedConvProblem) -> None:
    ones = [np.ones(shape, np.int32) for shape in problem.operand_shapes[:2]]
    products = int(exact_output(problem, *ones).astype(np.int64).sum())
    operations, read = GROUPED_CONV.work_bound(problem)
    assert operations == 2 * products / 4
    needed = 0
    for number in (0, 1):
        # The elements on which the result depends: a one among zeros changes it.
        other = ones[1 - number]
        reached = 0
        for at in range(ones[number].size):
            single = np.zeros(ones[number].shape, np.int32)
            single.ravel()[at] = 1
            operands = (single, other) if number == 0 else (other, single)
            reached += bool(exact_output(problem, *operands).any())
        needed += reached
    assert read == 4 * needed


def test_a_run_faster_than_the_arithmetic_or_the_memory_is_refused() -> None:
    limits = gpu_limits("sm_90", 132)
    large = GemmProblem("bf16", "rcr", 8192, 8192, 8192)
    least = limits.least_ms(large)
    assert least == pytest.approx(large.flops * 7 / 8 / (MARGIN * 132 * 1.98e9 * 4096) * 1e3)
    assert impossible(large, limits, 1.01 * least) is None
    why = impossible(large, limits, 0.99 * least)
    assert why is not None
    assert "faster than the device can be" in why
    thin = GemmProblem("bf16", "rcr", 1, 65536, 65536)
    assert limits.least_ms(thin) == pytest.approx((2 * 65536 * 65537 - 60 * 2**20) / (MARGIN * 4.8e12) * 1e3)


def test_without_known_peaks_nothing_is_refused() -> None:
    assert impossible(GemmProblem("bf16", "rcr", 8, 8, 8), Limits(), 0.0) is None
    assert gpu_limits("gfx1100", 0) == Limits()
    assert load_arch("gfx1100").peak is None


def test_this_machines_core_has_a_limit_far_above_its_actual_rate() -> None:
    peak = cpu_peak_flops()
    assert peak["bf16"] == 2 * peak["fp32"] >= 4e11
    assert all(math.isfinite(value) for value in peak.values())


def test_recorded_kernels_stay_clear_of_the_bound() -> None:
    """The fastest kernels of an H200 on 300 problems."""
    path = data_folder("models") / "grouped_conv_forward_bf16_sm_90" / "nvidia-h200-84ff98ac"
    records = pd.read_parquet(path / "forward_unseen_300" / "default.parquet")
    records = records[records["latency_ms"].notna()]
    fastest = records.loc[records.groupby("problem")["latency_ms"].idxmin()]
    assert len(fastest) == 300
    limits = gpu_limits("sm_90", 132)
    for row in fastest.to_dict("records"):
        problem = problem_from_row(row)
        assert limits.least_ms(problem) < 0.5 * row["latency_ms"], problem.id
