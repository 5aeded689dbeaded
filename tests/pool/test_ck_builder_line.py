"""Lines of CK Builder config files in both spellings, and files by their path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pools import kernel_pool
from tile_oracle.arch import load_arch
from tile_oracle.cli import main
from tile_oracle.errors import RuleError
from tile_oracle.operation import Kind, operation_named
from tile_oracle.operations.grouped_conv.kernel import SPECIALIZATIONS, GroupedConvKernel
from tile_oracle.pool import explain_pool_of_kind, load_rule_set, rules_of
from tile_oracle.pool.ck_builder_line import FORMS, UnreadableLineError, read_line

CONVOLUTION = Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2)

# ROCm/rocm-libraries (MIT): experimental/grouped_convolution_tile_instances/configs of Composable Kernel.
FWD, DATA = (
    "DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle",
    "DeviceGroupedConvBwdDataMultipleD_Xdl_CShuffle_v1",
)
WEIGHT, LARGE = (
    "DeviceGroupedConvBwdWeight_Xdl_CShuffle",
    "DeviceGroupedConvFwdMultipleD_Xdl_CShuffle_Large_Tensor",
)
OF_2D = (
    "2,NHWGC,GKYXC,EmptyTuple,NHWGK,bf16,bf16,fp32,bf16,EmptyTuple,bf16,PassThrough,PassThrough,PassThrough"
)
WEIGHT_2D = "2,NHWGC,GKYXC,NHWGK,bf16,bf16,bf16,fp32,PassThrough,PassThrough,PassThrough,Default"
V3 = "BlkGemmPipelineScheduler: Intrawave, BlkGemmPipelineVersion: v3"
A = "Seq(4,64,1),Seq(1,0,2),Seq(1,0,2),2,8,8"
UPSTREAM = {
    f"{FWD}<64, 64, 64, 32, Default, 32, 32, 2, 2, 1, 1, 1, 1, 1, 1>":
        "forward_bf16_2d_64x64x32_basic_v1_intrawave_w1x1x1_wt32x32x16_v1x1x1",
    f"{FWD}<64, 64, 16, 16, Filter3x3, 16, 16, 4, 1, 4, 1, 1, 1, 1, 32>":
        "forward_bf16_2d_64x16x16_basic_v1_intrawave_w1x1x1_wt16x16x16_v4x1x1_gm32_f3x3",
    f"{FWD}_V3<256, 256, 224, 64, Filter1x1Pad0, 16, 16, 8, 7, 8, 8, 8, 2, 1, {V3}>":
        "forward_bf16_2d_256x224x64_compv3_intrawave_w2x2x1_wt16x16x16_v8x8x8_f1x1p0",
    f"{LARGE}<256, 256, 128, 32, Default, 32, 32, 4, 2, 8, 8, 8, 1, 1>":
        "forward_bf16_2d_256x128x32_basic_v1_intrawave_si_w2x2x1_wt32x32x16_v8x8x8",
    f"{DATA}<256, 64, 128, 32, 8, 8, Default, 32, 32, 1, 2, 1, 4, 1, 1>":
        "bwd_data_bf16_2d_64x128x32_basic_v1_intrawave_w2x2x1_wt32x32x16_v1x4x4",
    f"{FWD}<{OF_2D},Default,MNKPadding,1,256,128,256,32,8,8,32,32,2,4,{A},true,{A},true,1,1,Seq(1,32,1,8),8,"
    "bf16,bf16,Default,1>":
        "forward_bf16_2d_128x256x32_basic_v1_intrawave_w2x2x1_wt32x32x16_v8x8x8",
    f"{FWD}<{OF_2D},OddC,MNKPadding,1,64,64,32,32,8,8,32,32,2,1,{A},true,{A},true,1,1,Seq(1,16,1,4),1,bf16,bf16,"
    "Default,1>":
        "forward_bf16_2d_64x32x32_basic_v1_intrawave_w1x1x1_wt32x32x16_v8x8x1",
    f"{FWD}<{OF_2D},Filter3x3,MNKPadding,1,64,64,16,16,4,4,16,16,4,1,Seq(4,16,1),Seq(0,2,1),Seq(0,2,1),1,4,4,true,"
    "Seq(4,16,1),Seq(1,0,2),Seq(1,0,2),2,1,4,true,1,1,Seq(1,16,1,4),1,bf16,bf16,Default,16>":
        "forward_bf16_2d_64x16x16_basic_v1_intrawave_w1x1x1_wt16x16x16_v4x1x1_gm16_f3x3",
    f"{FWD}_V3<{OF_2D},Default,MNKPadding,256,128,128,32,8,8,32,32,2,2,{A},false,{A},false,1,1,Seq(1,32,1,8),8,"
    "Intrawave,v4,bf16,bf16,false,1>":
        "forward_bf16_2d_128x128x32_compv4_intrawave_dsb_w2x2x1_wt32x32x16_v8x8x8",
    f"{FWD}_V3<{OF_2D},Default,MNKPadding,256,16,256,64,8,8,16,16,1,4,{A},false,{A},false,1,1,Seq(1,16,1,16),4,"
    "Intrawave,v2,bf16,bf16,false,1>":
        "forward_bf16_2d_16x256x64_mem_intrawave_w1x4x1_wt16x16x16_v8x8x4",
    f"{WEIGHT}<{WEIGHT_2D},128,128,32,4,8,32,32,2,1,Seq(1,4,16,2),Seq(0,3,1,2),Seq(0,2,1,3),2,8,4,true,Seq(1,4,4,8),"
    "Seq(0,3,1,2),Seq(0,2,1,3),2,2,1,true,1,1,Seq(1,32,1,4),2,bf16,bf16,1,1>":
        "bwd_weight_bf16_2d_128x32x32_basic_v1_intrawave_w2x1x1_wt32x32x16_v8x2x2",
    f"{WEIGHT}V3<{WEIGHT_2D},64,64,32,32,8,32,32,2,1,Seq(4,16,1),Seq(2,0,1),Seq(1,0,2),1,4,4,false,Seq(4,8,1),"
    "Seq(2,0,1),Seq(1,0,2),1,4,4,false,1,1,Seq(1,8,1,8),2,Intrawave,v2,bf16,bf16,0,1>":
        "bwd_weight_bf16_2d_64x32x32_mem_intrawave_w1x1x1_wt32x32x16_v4x4x2",
}  # fmt: skip
EXPLICIT = (
    "DeviceGroupedConvBwdWeight_Explicit_Xdl<DeviceBatchedGemmXdlUniversal<MNKPadding, CRR> BlkSize: 128, "
)
STAGES = "BlkGemmPipelineScheduler: Interwave, BlkGemmPipelineVersion: v2, BlkGemmPipelinePrefetchStages: 2>"
DATA_2D = "2,NHWGK,GKYXC,EmptyTuple,NHWGC,bf16,bf16,fp32,EmptyTuple,bf16,PassThrough,PassThrough,PassThrough"
MORE_UPSTREAM = {
    f"{DATA.removesuffix('_v1')}<{DATA_2D},Filter1x1Stride1Pad0,1,1,1,256,64,128,32,8,8,32,32,1,2,Seq(4,64,1),"
    "Seq(1,0,2),Seq(1,0,2),2,1,8,true,Seq(4,16,1),Seq(0,2,1),Seq(0,2,1),1,8,8,true,1,1,Seq(1,32,1,8),8,1,Default,"
    "bf16,bf16,1,1>":
        "bwd_data_bf16_2d_64x128x32_basic_v1_intrawave_w2x2x1_wt32x32x16_v1x8x8_f1x1s1p0",
    f"{FWD}_V3_DirectLoad<256, 64, 128, 64, Default, 32, 32, 1, 2, 8, 8, 8, 1, 1, {V3.replace('v3', 'v1')}>":
        "forward_bf16_2d_64x128x64_basic_async_v1_intrawave_v8x8x8",
    f"{FWD}_V3_DirectLoad<256, 64, 128, 64, Default, 32, 32, 1, 2, 8, 8, 8, 1, 1, {V3.replace('v3', 'v4')}>":
        "forward_bf16_2d_64x128x64_comp_async_intrawave_dsb_v8x8x8",
    f"{WEIGHT}V3<{WEIGHT_2D},128,16,32,64,8,16,16,1,1,Seq(8,2,8),Seq(0,2,1),Seq(0,2,1),1,8,8,false,Seq(4,4,8),"
    "Seq(0,2,1),Seq(0,2,1),1,8,8,false,1,1,Seq(1,16,1,8),4,Intrawave,v1,bf16,bf16,1,1>":
        "bwd_weight_bf16_2d_16x32x64_basic_async_v1_intrawave_w1x2x1_wt16x16x16_v8x8x4",
    f"DeviceGroupedConvBwdWeightTwoStage_Xdl_CShuffle<{WEIGHT_2D},64,32,64,32,8,32,32,1,2,Seq(4,8,1),Seq(2,0,1),"
    "Seq(1,0,2),1,4,4,false,Seq(4,16,1),Seq(2,0,1),Seq(1,0,2),1,4,4,false,1,1,Seq(1,8,1,8),1,Intrawave,v5,4,bf16,"
    "bf16,1,1>":
        "bwd_weight_bf16_2d_32x64x32_compv5_intrawave_w1x1x1_wt32x32x16_v4x4x1_gm4_2s",
    f"{EXPLICIT}BlkTile: 64x16x64, WaveTile: 16x16, K1: 4x4, WaveMap: 2x1, VmemReadVec: 8x1xSeq(4), {STAGES}":
        "bwd_weight_bf16_2d_64x16x64_mem_interwave_w2x1x1_wt16x16x16_v8x1x4_eg_f1x1s1p0",
    f"{EXPLICIT}BlkTile: 64x16x64, WaveTile: 16x16, WaveMap: 2x1, VmemReadVec: 8x2, {STAGES}":
        "bwd_weight_bf16_2d_64x16x64_mem_interwave_w2x1x1_wt16x16x16_v8x2x2_eg_f1x1s1p0",
    f"{EXPLICIT}BlkTile: 16x32x64, WaveTile: 16x16, WaveMap: 1x1, VmemReadVec: 2x1, {STAGES}":
        "bwd_weight_bf16_2d_16x32x64_mem_interwave_w1x2x1_wt16x16x16_v2x1x1_eg_2s_f1x1s1p0",
}  # fmt: skip
"""Kinds of lines in other states of the public files, among them lines of the class without `_v1`."""
FULL = next(line for line in UPSTREAM if "256,128,256" in line)


def write(folder: Path, *lines: str, name: str = "nhwgc_bf16.conf") -> str:
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize("line", [*UPSTREAM, *MORE_UPSTREAM])
def test_every_kind_of_line_is_a_kernel(tmp_path: Path, line: str) -> None:
    (block,) = load_rule_set(write(tmp_path, line)).blocks["grouped_conv"]
    kind = next(kind for kind in kinds() if block.covers(kind, "gfx950"))
    assert [kernel.name for kernel in block.kernels(kind, load_arch("gfx950"))] == [
        f"grouped_conv_{(UPSTREAM | MORE_UPSTREAM)[line]}"
    ]


def kinds() -> list[Kind]:
    return operation_named("grouped_conv").kinds({})


def test_a_whole_file_with_a_count_and_comments(tmp_path: Path) -> None:
    path = write(tmp_path, "# a comment", *UPSTREAM, f";{FULL}", "", "nonsense")
    rule_set = load_rule_set(path)
    assert len(rule_set.blocks["grouped_conv"]) == len(UPSTREAM)
    assert rule_set.notes[0].endswith("1 of 13 lines in 1 config files were left out")
    assert rule_set.left_out == ((f"{path}:16", "not of the form Class<number, ...>"),)
    assert "1 lines do not give the vector width of the result" in rule_set.notes[-1]


def test_rank_and_type_may_come_from_the_line_alone(tmp_path: Path) -> None:
    line = FULL.replace("<2,NHWGC,GKYXC,EmptyTuple,NHWGK", "<3,NDHWGC,GKZYXC,EmptyTuple,NDHWGK")
    path = write(tmp_path, line.replace("bf16", "fp16"), name="mine.conf")
    (kernel,) = kernel_pool("forward", "fp16", 3, "gfx950", path)
    assert (
        kernel.name == "grouped_conv_forward_fp16_3d_128x256x32_basic_v1_intrawave_w2x2x1_wt32x32x16_v8x8x8"
    )


def test_fp32_multiplies_eight_deep(tmp_path: Path) -> None:
    line = f"{FWD}<64, 64, 64, 32, Default, 32, 32, 2, 2, 1, 1, 1, 1, 1, 1>"
    found = read_line("x:1", line, Path("ndhwgc_fp32.conf"), {})
    assert (found.warp_tile, found.ndim) == ((32, 32, 8), 3)


def test_every_line_without_a_candidate_is_listed_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, *UPSTREAM, "nonsense")
    asked = ["kernels", "--kernel-set", path, "--arch", "gfx950"]
    assert main([*asked, "--refused", "--list"]) == 0
    refused = capsys.readouterr().out.splitlines()
    assert main([*asked, "--list"]) == 0
    candidates = capsys.readouterr().out.splitlines()
    assert all(line.startswith(f"{path}:") for line in refused)
    assert len(refused) + len(candidates) == len(UPSTREAM) + 1
    assert refused[-1] == f"{path}:13: not of the form Class<number, ...>"


def test_with_a_checkout_the_library_determines_the_waves(tmp_path: Path) -> None:
    path = write(tmp_path, next(iter(UPSTREAM)))
    own = explain_pool_of_kind(CONVOLUTION, "gfx950", path)
    assert [refused.reason.partition(":")[0] for refused in own.refused] == ["waves"]
    assert own.refused[0].place == f"{path}:1"
    assert len(kernel_pool("forward", "bf16", 2, "gfx950", rules_of(path, tmp_path))) == 1
    wide_loads = write(tmp_path, next(line for line in UPSTREAM if "256,16,256,64" in line))
    assert "not whole loads" in explain_pool_of_kind(CONVOLUTION, "gfx950", wide_loads).refused[0].reason
    assert len(kernel_pool("forward", "bf16", 2, "gfx950", rules_of(wide_loads, tmp_path))) == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (FULL.replace("NHWGC,", "NGCHW,"), "layout NGCHW GKYXC NHWGK: problems here have NHWGC GKYXC NHWGK"),
        (FULL.replace("PassThrough,Default", "Bilinear,Default"), "CElementwiseOp Bilinear"),
        (FULL.replace("GKYXC,EmptyTuple", "GKYXC,Tuple(G_K)"), "DsLayout Tuple"),
        (FULL.replace("<2,", "<1,"), "NDimSpatial 1 is neither 2 nor 3"),
        (
            FULL.replace("<2,NHWGC,GKYXC,EmptyTuple,NHWGK", "<3,NDHWGC,GKZYXC,EmptyTuple,NDHWGK"),
            "the line is 3D",
        ),
        (FULL.replace("bf16", "fp16"), "the line is of fp16, its path of bf16"),
        (FULL.replace("8,bf16,bf16", "8,fp8,bf16"), "AComputeDataType is fp8, not bf16"),
        (FULL.replace("MNKPadding", "KPadding"), "GEMM padding KPadding"),
        (FULL.replace("Default,1>", "Default,0>"), "NumGroupsToMerge is not a positive integer"),
        (FULL.replace(",Default,1>", ",Default,1,2,3>"), "has 49 values, not 51"),
        (FULL.replace("Default,1>", "Sideways,1>"), "scheduler sideways"),
        (
            next(one for one in UPSTREAM if "v4" in one).replace("v4,bf16,bf16,false", "v3,bf16,bf16,true"),
            "directly to LDS",
        ),
        (next(one for one in MORE_UPSTREAM if "Explicit" in one).replace("WaveMap", "Map"), "give WaveMap"),
        (next(one for one in MORE_UPSTREAM if "Seq(4)" in one).replace("Seq(4)", "Seq(4,2)"), "4 and 2"),
    ],
)
def test_a_line_without_a_kernel_has_a_reason(line: str, reason: str) -> None:
    with pytest.raises(UnreadableLineError) as raised:
        read_line("x:1", line, Path("forward/nhwgc_bf16.conf"), {})
    assert reason in str(raised.value)


def test_stream_k_is_not_mistaken_for_the_plain_kernel(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"12 of 12 lines .* stream-K"):
        load_rule_set(write(tmp_path, *UPSTREAM, name="nhwgc_bf16_streamk.conf"))
    with pytest.raises(RuleError, match="stream-K"):
        load_rule_set(write(tmp_path, "DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle_Streamk<64, 64, 32>"))


@pytest.mark.slow
def test_hostile_files_get_one_clear_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.conf")
    (tmp_path / "folder.conf").mkdir()
    (tmp_path / "binary.conf").write_bytes(bytes(range(256)) * 64)
    (tmp_path / "huge.conf").write_bytes(b"")
    os.truncate(tmp_path / "huge.conf", 1 << 40)
    (tmp_path / "long.conf").write_text("x\n" * 1_000_000)
    (tmp_path / "empty.conf").touch()
    for name, reason in {
        "fifo": "is not a file", "folder": "is not a file", "binary": "no line makes a kernel",
        "huge": "larger than 8 MiB", "long": "more than 100,000 lines", "empty": "no line makes a kernel",
        "none": "there is no such file",
    }.items():  # fmt: skip
        with pytest.raises(RuleError, match=reason) as raised:
            load_rule_set(str(tmp_path / f"{name}.conf"))
        assert "\n" not in str(raised.value)


# ---- kernel -> line -> kernel -------------------------------------------------------------------------

SIZES = st.sampled_from((1, 2, 3, 4, 7, 8))


@st.composite
def listed_kernels(draw: st.DrawFn) -> GroupedConvKernel:
    """Kernels that a full line can express."""
    direction = draw(st.sampled_from(("forward", "bwd_data", "bwd_weight")))
    waves = draw(st.sampled_from(((1, 1, 1), (2, 2, 1), (1, 4, 1), (4, 1, 1), (1, 1, 2))))
    warp = draw(st.sampled_from((16, 32)))
    dtype = draw(st.sampled_from(("bf16", "fp16", "fp32")))
    scheduled = direction == "forward" or draw(st.booleans())
    version = draw(st.sampled_from(sorted(VERSIONS))) if scheduled and direction != "bwd_data" else "basic_v1"
    return GroupedConvKernel(
        direction,
        dtype,
        draw(st.sampled_from((2, 3))),
        *(warp * waves[0] * draw(SIZES), warp * waves[1] * draw(SIZES), 8 * draw(st.integers(1, 16))),
        *waves,
        *(warp, warp, 8 if dtype == "fp32" else 16),
        *(draw(st.sampled_from((1, 2, 4, 8))) for _ in "abc"),
        pipeline=version,
        scheduler=draw(st.sampled_from(("intrawave", "interwave"))) if version != "basic_v1" else "intrawave",
        double_smem_buffer=version == "compv4",
        num_groups_to_merge=draw(st.sampled_from((1, 8, 32))) if version != "basic_v1" else 1,
        two_stage=direction == "bwd_weight" and version != "basic_v1" and draw(st.booleans()),
        specialization=draw(st.sampled_from(SPECIALIZATIONS)),
    )


VERSIONS = {"basic_v1": "v1", "mem": "v2", "compv3": "v3", "compv4": "v4", "compv5": "v5"}
CLASSES = {
    ("forward", False): f"{FWD}_V3", ("bwd_data", False): DATA,
    ("bwd_weight", False): f"{WEIGHT}V3",
    ("bwd_weight", True): "DeviceGroupedConvBwdWeightTwoStage_Xdl_CShuffle",
}  # fmt: skip


def full_line(kernel: GroupedConvKernel) -> str:
    """The kernel with every template argument; irrelevant arguments have arbitrary values."""
    m, n, k = kernel.waves
    each = (kernel.tile_m // (m * kernel.warp_tile_m), kernel.tile_n // (n * kernel.warp_tile_n))
    layouts = ("NHWGC", "GKYXC", "NHWGK") if kernel.ndim == 2 else ("NDHWGC", "GKZYXC", "NDHWGK")
    says = {
        "NDimSpatial": kernel.ndim, "ALayout": layouts[0], "BLayout": layouts[1], "ELayout": layouts[2],
        "DsLayout": "EmptyTuple", "DsDataType": "EmptyTuple", "ConvSpecialization": kernel.specialization,
        "BlockSize": 64 * m * n * k, "MPerBlock": kernel.tile_m, "NPerBlock": kernel.tile_n,
        "KPerBlock": kernel.tile_k, "MPerXDL": kernel.warp_tile_m, "NPerXDL": kernel.warp_tile_n,
        "MXdlPerWave": each[0], "NXdlPerWave": each[1], "GemmSpec": "MNKPadding",
        "ABlockTransferSrcScalarPerVector": kernel.vector_a,
        "BBlockTransferSrcScalarPerVector": kernel.vector_b,
        "CBlockTransferScalarPerVector": kernel.vector_c, "DirectLoad": "false",
        "BlkGemmPipeSched": kernel.scheduler.capitalize(), "BlkGemmPipelineVer": VERSIONS[kernel.pipeline],
        "NumGroupsToMerge": kernel.num_groups_to_merge, "LoopSched": "Default", "DoPadGemmM": "true",
        "DoPadGemmN": "true",
    }  # fmt: skip
    name = CLASSES[kernel.direction, kernel.two_stage]
    words = []
    for field in FORMS[name][-1].names:
        other = (
            kernel.dtype
            if field.endswith("DataType")
            else "PassThrough"
            if field.endswith("Op")
            else "Seq(9,9)"
        )
        words.append(str(says.get(field, other)))
    return f"{name}<{','.join(words)}>"


@given(listed_kernels())
def test_a_kernel_s_full_line_gives_back_the_kernel(kernel: GroupedConvKernel) -> None:
    found = read_line("x:1", full_line(kernel), Path("x.conf"), {})
    shared = [name for name in kernel.as_row() if hasattr(found, name)]
    assert {name: getattr(found, name) for name in shared} == {name: kernel.as_row()[name] for name in shared}
    assert (found.tile, found.waves, found.warp_tile, found.vectors) == (
        kernel.tile, kernel.waves, kernel.warp_tile, kernel.vectors
    )  # fmt: skip
    assert len(shared) == 11
