"""CK Tile itself, three public versions: detected, compiled for gfx950, its host code run on a recording HIP.

No GPU is needed: the tests check that the kernels compile, which resources they use, and that CK Tile's own
host code, called through the library, supports, refuses and launches what it should.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.ck_tile import implicit_gemm
from tests.compiling.ck_tile_double import build as double
from tests.pools import kernel_pool
from tile_oracle.cli import main
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.ck_tile.api import CkTileApi, detect
from tile_oracle.compiling.ck_tile.headers import find_headers
from tile_oracle.compiling.ck_tile.kernel_source import CkTileSource, source_for
from tile_oracle.compiling.ck_tile.library import code_object_in, instances
from tile_oracle.compiling.ck_tile.toolchain import HIP_HEADERS, find_ck_tile_toolchain
from tile_oracle.compiling.code_facts import code_facts
from tile_oracle.errors import KernelError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, GroupedConvProblem
from tile_oracle.pool import rules_of
from tile_oracle.pool.ck_builder import read_builder_configs
from tile_oracle.problem import problem_from_id
from tile_oracle.process.cores import usable_cores

DOUBLE = Path(__file__).parents[1] / "compiling" / "ck_tile_double" / "build.py"

FORWARD = "grouped_conv_forward_bf16_2d_64x64x64_basic_v1_intrawave"
WEIGHT = "grouped_conv_bwd_weight_bf16_2d_64x64x64_basic_v1_intrawave"
GEMM = "gemm_bf16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_32x32x16"
OLDER_GEMM = GEMM.replace("compv3", "basic_v1")
NEW_FORWARD = "grouped_conv_forward_bf16_2d_64x64x64_basic_v1_intrawave_si"
NEW_DATA = "grouped_conv_bwd_data_bf16_2d_64x64x64_compv3_intrawave"
NEW_WEIGHT = "grouped_conv_bwd_weight_bf16_2d_64x64x64_compv3_intrawave_gm2_2s"
NEW_GEMM = OLDER_GEMM.replace("128x128x64", "128x64x64")
BUILT = {
    "ck-newer": {NEW_FORWARD: 1, NEW_DATA: 3, NEW_WEIGHT: 3, NEW_GEMM: 1},
    "ck": {FORWARD: 1, WEIGHT: 1, GEMM: 3},
    "ck-older": {OLDER_GEMM: 1},
}
"""Folder of headers -> kernel -> its instances: with compv3 a loop ends in one of three ways."""


def api_of(headers: Path, folder: str) -> CkTileApi:
    return detect(find_headers(headers / folder))


@pytest.fixture(scope="module")
def libraries(headers: Path) -> Iterator[dict[str, Path]]:
    """Kernel -> its library, in the user's own cache, where the next run finds it."""
    found: dict[str, Path] = {}
    builders = []
    for folder, kernels in BUILT.items():
        api = api_of(headers, folder)
        toolchain = find_ck_tile_toolchain("ziglang", "gfx950", api.headers, {HIP_HEADERS: str(headers)})
        builder = Builder(
            "gfx950",
            toolchain=toolchain,
            jobs=usable_cores(),
            runs_here=False,
            source=CkTileSource("gfx950", api),
        )
        builders.append(builder)
        for result in [builder.submit(parse_kernel_name(name)) for name in kernels]:
            done = result.result()
            assert done.binary is not None, f"{done.kernel.name}: {done.log}"
            found[done.kernel.name] = done.binary.path
    yield found
    for builder in builders:
        builder.close()


def test_the_version_of_november_2025_has_all(headers: Path) -> None:
    api = api_of(headers, "ck-newer")
    assert dict(api.missing) == {}
    assert set(api.pipelines) == {
        *("basic_v1", "basic_v2", "mem", "compv3", "compv4", "compv5", "compv6", "comp_async")
    }
    assert {name for name, pipeline in api.pipelines.items() if pipeline.lists_only} == {
        "compv6",
        "comp_async",
    }
    assert [d for d in DIRECTIONS if api.merges_groups(d)] == ["bwd_weight"]
    assert [d for d in DIRECTIONS if api.splits_image(d)] == ["forward"]
    assert [d for d in DIRECTIONS if api.takes_two_buffers(d)] == ["forward", "bwd_weight"]
    assert {(16, 16, 32), (32, 32, 16)} <= api.warp_tiles["bf16"]


def test_the_version_of_mid_2025_has_all_but_bwd_data(headers: Path) -> None:
    api = api_of(headers, "ck")
    assert dict(api.missing) == {
        "bwd_data": "it has no GroupedConvolutionBackwardDataKernel, GroupedConvBwdDataHostArgs"
    }
    assert {name: sorted(pipeline.schedulers) for name, pipeline in api.pipelines.items()} == {
        "basic_v1": [],
        "basic_v2": [],
        "mem": ["interwave", "intrawave"],
        "compv3": ["intrawave"],
        "compv4": ["intrawave"],
        "compv5": ["intrawave"],
    }
    assert (16, 16, 32) in api.warp_tiles["bf16"]
    # There is one, disabled by #if 0.
    assert api.missing_for_two_stage == "it has no UnaryConvert"
    with pytest.raises(KernelError, match="cannot build bwd_data kernels: it has no GroupedConv"):
        source_for(api, parse_kernel_name(FORWARD.replace("forward", "bwd_data")))


def test_the_version_of_early_2025_has_gemm_alone(headers: Path) -> None:
    api = api_of(headers, "ck-older")
    assert sorted(api.missing) == ["bwd_data", "bwd_weight", "forward"]
    assert "GroupedConvolutionForwardKernel" in api.missing["forward"]
    with pytest.raises(KernelError, match="has no TailHandler to choose it"):
        source_for(api, parse_kernel_name(GEMM))


def pool_of(api: CkTileApi, direction: str) -> tuple[int, set[str]]:
    """How many kernels of the default pool a version has, and why it lacks the others."""
    taken, reasons = 0, set()
    for kernel in kernel_pool(direction, "bf16", 2, "gfx950"):
        try:
            source_for(api, kernel)
            taken += 1
        except KernelError as error:
            reasons.add(str(error).split(":")[0])
    return taken, reasons


def test_the_default_pool_is_taken_or_refused_with_a_reason(headers: Path) -> None:
    taken, reasons = pool_of(api_of(headers, "ck"), "forward")
    # Ten tiles in basic_v1, compv3, compv4 with two buffers, and mem in both schedules.
    assert taken == 50
    assert "split_image" in reasons
    assert "GemmPipelineAGmemBGmemCRegV1 of this CK Tile has no interwave schedule" in reasons
    assert "GemmPipelineAgBgCrCompV5 of this CK Tile is for two groups of one wave" in reasons
    assert "pipeline compv6 is not in this CK Tile" in reasons


def test_the_default_pool_of_november_2025(headers: Path) -> None:
    api = api_of(headers, "ck-newer")
    taken, reasons = pool_of(api, "forward")
    # As before, with the image in one piece and in pieces.
    assert taken == 100
    lists = "GemmPipelineAgBgCrCompV6 of this CK Tile takes lists of operands"
    assert f"{lists}; its forward kernel passes one each" in reasons
    taken, reasons = pool_of(api, "bwd_data")
    assert taken == 30
    assert "double_smem_buffer" in reasons
    basic = "GemmPipelineAGmemBGmemCRegV1 of this CK Tile"
    along = f"{basic} advances along the second axis of A and B in any layout"
    assert along in reasons
    taken, reasons = pool_of(api, "bwd_weight")
    assert taken == 40
    assert along in reasons


def test_the_shipped_model_picks_what_november_2025_has(
    headers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the headers 182 of these picks are compv5, which this version has not for the pool's waves."""
    source = CkTileSource("gfx950", api_of(headers, "ck-newer"))
    found = []
    for given in ([], ["--ck-tile", str(headers / "ck-newer")]):
        picked = ["pick", "forward_validation_300", "--arch", "gfx950", "--engine", "python", "--json"]
        assert main([*picked, *given]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        pairs = [(parse_kernel_name(row["picks"][0]["kernel"]), row["problem"]) for row in rows]
        refused = [kernel for kernel, name in pairs if source.refusal(kernel, problem_from_id(name))]
        found.append((len(pairs), len(refused)))
        assert sum(bool(row["outside_training"]) for row in rows) == 70
    assert found == [(299, 182), (299, 0)]


@pytest.mark.parametrize("name", [name for kernels in BUILT.values() for name in kernels])
def test_a_kernel_compiles_for_gfx950(libraries: dict[str, Path], name: str) -> None:
    path = libraries[name]
    expected = next(kernels[name] for kernels in BUILT.values() if name in kernels)
    found = instances(code_object_in(path, "gfx950"))
    assert len(found) == expected
    facts = code_facts(path, "gfx950")
    print(f"{name}: {facts}")
    assert facts.scratch_bytes == 0
    assert all(instance.vgpr_spills == 0 for instance in found)
    assert all(instance.wavefront_size == 64 for instance in found)
    assert all(instance.most_threads == 256 for instance in found)
    tile_m, tile_n, tile_k = parse_kernel_name(name).tile
    # The tiles of both operands, two bytes per value; the epilogue's use of LDS is smaller here.
    assert facts.lds_bytes == 2 * tile_k * (tile_m + tile_n)


def conv(direction: str, ndim: int = 2, dtype: str = "bf16", **fields: int) -> dict[str, Any]:
    values = {"N": 2, "C": 128, "K": 256, "G": 2, "Hi": 10, "Wi": 12, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
    problem = GroupedConvProblem(direction, dtype, ndim, **{**values, **fields})
    return {"op": "grouped_conv", **problem.as_row()}


def gemm(m: int, n: int, k: int) -> dict[str, Any]:
    return {"op": "gemm", **GemmProblem("bf16", "rcr", m, n, k).as_row()}


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a"])
def test_a_gemm_compiles_for_older_gfx9(headers: Path, tmp_path: Path, arch: str) -> None:
    api = detect(find_headers(headers / "ck-newer"))
    source = CkTileSource(arch, api)
    toolchain = find_ck_tile_toolchain("ziglang", arch, api.headers, {HIP_HEADERS: str(headers)})
    with Builder(arch, toolchain=toolchain, build_dir=tmp_path, runs_here=False, source=source) as builder:
        binary = builder.need(parse_kernel_name(NEW_GEMM)).binary
    facts = code_facts(binary.path, arch)
    assert facts.spills == 0
    assert 0 < facts.lds_bytes <= 65536
    fp8 = parse_kernel_name(NEW_GEMM.replace("bf16", "fp8"))
    refusal = str(source.refusal(fp8, GemmProblem("fp8", "rcr", 128, 128, 128)))
    assert "operands are OCP's e4m3" in refusal or "states no fp8 format" in refusal


def test_ck_tile_s_own_host_code_decides_and_launches(libraries: dict[str, Path], tmp_path: Path) -> None:
    runs = [
        (libraries[FORWARD], conv("forward")),
        (libraries[FORWARD], conv("forward", C=6, G=1)),
        (libraries[WEIGHT], conv("bwd_weight")),
        (libraries[GEMM], gemm(256, 200, 512)),
        (libraries[GEMM], gemm(256, 256, 64)),
        (libraries[GEMM], gemm(256, 256, 512)),
        (libraries[OLDER_GEMM], gemm(256, 256, 512)),
        (libraries[OLDER_GEMM], gemm(256, 256, 500)),
    ]
    answers, calls = double.run_on_double(double.hip_double(tmp_path), tmp_path, runs)
    assert [answer[0] for answer in answers] == [
        *("ok", "unsupported", "ok", "unsupported", "ok", "ok", "ok", "unsupported")
    ], answers
    assert "Conv C is not a multiple of vector load size" in answers[1][1]
    assert "N that is not a multiple of NPerBlock" in answers[3][1]
    launched = [(call[1], call[2], call[6]) for call in calls if call[0] == "hipLaunchKernel"]
    grids: dict[str, set[str]] = {}
    for grid, block, entry in launched:
        assert block == "256,1,1"
        grids.setdefault(entry, set()).add(grid)
    # 240 rows x 128 columns in tiles of 64, two groups.
    assert {grid for found in grids.values() for grid in found} == {"8,2,1", "18,2,1", "4,1,1"}
    # Depths of 64 and 512 in steps of 64: one step is an odd tail, eight have a hot loop.
    assert len([entry for entry in grids if re.search("GemmPipelineAgBgCrCompV3", entry)]) == 2


def test_november_2025_s_host_code_decides_and_launches(libraries: dict[str, Path], tmp_path: Path) -> None:
    runs = [
        (libraries[NEW_FORWARD], conv("forward")),
        (libraries[NEW_FORWARD], conv("forward", C=6, G=1)),
        (libraries[NEW_DATA], conv("bwd_data")),
        # Four GEMMs: a stride of two leaves two places on each axis, three taps fall on both.
        (libraries[NEW_DATA], conv("bwd_data", stride_h=2, stride_w=2)),
        (libraries[NEW_WEIGHT], conv("bwd_weight", G=4)),
        (libraries[NEW_WEIGHT], conv("bwd_weight", G=1)),
        (libraries[NEW_GEMM], gemm(256, 192, 512)),
    ]
    answers, calls = double.run_on_double(double.hip_double(tmp_path), tmp_path, runs)
    assert [answer[0] for answer in answers] == [
        *("ok", "unsupported", "ok", "ok", "ok", "unsupported", "ok")
    ], answers
    assert "Conv C is not a multiple of vector load size" in answers[1][1]
    assert "ConvG must be a multiple of NumGroupsToMerge" in answers[5][1]
    launches = [call for call in calls if call[0] == "hipLaunchKernel"]
    grids = {call[1] for call in launches if "to_ck_entry" in call[6]}
    assert grids == {
        # 240 rows x 128 columns in tiles of 64, two groups.
        "8,2,1",
        # 240 rows x 64 columns, two groups; with the stride four GEMMs of 2 x 5 x 6 rows.
        "4,2,1",
        # Two groups of four together: 2 x 64 rows of filters x 2 x 9 x 32 columns.
        "18,2,1",
        "6,1,1",
    }, grids
    (converted,) = {tuple(call[1:3]) for call in launches if "to_ck_convert" in call[6]}
    # 256 x 32 x 9 values in blocks of 2048, eight waves each.
    assert converted == ("36,1,1", "512,1,1")


AWKWARD: tuple[dict[str, int], ...] = (
    {},
    {"G": 1, "C": 8, "K": 24},
    {"G": 4, "C": 32, "K": 64},
    {"Y": 1, "X": 1, "pad_h": 0, "pad_w": 0},
    {"Y": 1, "X": 1, "pad_h": 0, "pad_w": 0, "stride_h": 2, "stride_w": 2},
    {"Y": 2, "X": 5, "pad_h": 0, "pad_w": 2, "stride_h": 2, "stride_w": 3},
    {"Hi": 9, "dilation_h": 2, "dilation_w": 3, "pad_h": 2, "pad_w": 3},
    {"Hi": 9, "stride_h": 3, "dilation_h": 2, "pad_h": 0},
    {"Hi": 9, "stride_h": 2, "dilation_h": 2, "pad_h": 2},
    {"N": 1, "Hi": 1, "Wi": 1},
)
AWKWARD_3D: tuple[dict[str, int], ...] = (
    {"Di": 4, "Z": 3, "pad_d": 1},
    {"Di": 5, "Z": 2, "stride_d": 2, "dilation_h": 2, "pad_h": 2, "stride_w": 2},
    {"Di": 3, "Z": 1, "G": 4, "C": 32, "K": 64},
)


def carried_out(
    headers: Path, folder: Path, name: str, fields: Sequence[dict[str, int]], version: str = "ck-newer"
) -> dict[GroupedConvProblem, str]:
    """Small problems, computed with CK Tile's own descriptors; see implicit_gemm.py."""
    api = api_of(headers, version)
    toolchain = find_ck_tile_toolchain("ziglang", "gfx950", api.headers, {HIP_HEADERS: str(headers)})
    kernel = parse_kernel_name(name)
    assert isinstance(kernel, GroupedConvKernel)
    library = implicit_gemm.build_host_part(api, toolchain, kernel, folder / "built")
    small = {"N": 2, "C": 16, "K": 16, "G": 2, "Hi": 7, "Wi": 8, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
    problems = [
        GroupedConvProblem(kernel.direction, "bf16", kernel.ndim, **{**small, **given}) for given in fields
    ]
    runtime = double.hip_double(folder)
    found = implicit_gemm.carried_out(library, runtime, folder, problems, kernel.two_stage)
    return dict(zip(problems, found, strict=True))


@pytest.mark.parametrize(
    ("version", "direction", "ndim"),
    [
        ("ck", "forward", 2),
        ("ck", "bwd_weight", 2),
        *(("ck-newer", direction, ndim) for direction in DIRECTIONS for ndim in (2, 3)),
    ],
)
def test_the_implicit_gemm_is_the_convolution(
    headers: Path, tmp_path: Path, version: str, direction: str, ndim: int
) -> None:
    """Every index of a launch, by CK Tile's own descriptors, in integers, compared with the definition."""
    name = f"grouped_conv_{direction}_bf16_{ndim}d_64x64x64_compv3_intrawave"
    found = carried_out(headers, tmp_path, name, AWKWARD if ndim == 2 else AWKWARD_3D, version)
    assert set(found.values()) == {"right"}, found


def test_the_implicit_gemm_of_two_groups_is_the_convolution_in_the_workspace(
    headers: Path, tmp_path: Path
) -> None:
    found = carried_out(headers, tmp_path, NEW_WEIGHT, AWKWARD)
    for problem, answer in found.items():
        assert answer == ("right" if problem.G % 2 == 0 else "refused"), problem.id


def test_loops_that_end_in_different_ways_are_refused_where_the_end_is_compiled_in(
    headers: Path, tmp_path: Path
) -> None:
    # A tap is 64 deep, one step: 9 steps; with the stride four GEMMs of 4, 2, 2 and 1.
    deep = ({"K": 128}, {"K": 128, "stride_h": 2, "stride_w": 2})
    found = carried_out(headers, tmp_path, NEW_DATA.replace("compv3", "mem"), deep)
    assert list(found.values()) == ["right", "refused"]


@pytest.mark.parametrize("version", ["ck", "ck-newer"])
def test_ck_builder_s_lines_are_read_by_the_headers_own_words(
    headers: Path, tmp_path: Path, version: str
) -> None:
    shutil.copytree(headers / version / "include" / "ck", tmp_path / "include" / "ck")
    config = tmp_path / "configs" / "forward" / "profiler" / "nhwgc_bf16.conf"
    config.parent.mkdir(parents=True)
    scheduled = "BlkGemmPipelineScheduler: Intrawave, BlkGemmPipelineVersion:"
    fwd, weight = "DeviceGroupedConvFwdMultiple", "DeviceGroupedConvBwdWeightTwoStage_Xdl_CShuffle"
    lines = (
        f"{fwd}ABD_Xdl_CShuffle<256, 128, 128, 32, Default, 32, 32, 2, 2, 8, 8, 8, 1, 1, 1>",
        f"{fwd}ABD_Xdl_CShuffle_V3<256, 128, 128, 64, Default, 32, 32, 2, 2, 8, 8, 8, 1, 1, {scheduled} v3>",
        f"{fwd}D_Xdl_CShuffle_Large_Tensor<256, 128, 128, 32, Default, 32, 32, 2, 2, 8, 8, 8, 1, 1>",
        f"{weight}<64, 32, 32, 32, Default, 8, 1, 1, 2, 2, 2, 2, 1, 1, 2, {scheduled} v2, 1>",
    )
    config.write_text("\n".join(lines) + "\n")
    names = [
        kernel.name for kernel in kernel_pool("forward", "bf16", 2, "gfx950", rules_of("profiler", tmp_path))
    ]
    assert names == [
        "grouped_conv_forward_bf16_2d_128x128x32_basic_v1_intrawave_w2x2x1_wt32x32x16_v8x8x8",
        "grouped_conv_forward_bf16_2d_128x128x32_basic_v1_intrawave_si_w2x2x1_wt32x32x16_v8x8x8",
        "grouped_conv_forward_bf16_2d_128x128x64_compv3_intrawave_w2x2x1_v8x8x8",
    ]
    ((_, reason),) = read_builder_configs("profiler", tmp_path).left_out
    assert "does not give MPerXDL" in reason
