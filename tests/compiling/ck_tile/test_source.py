"""Detection of CK Tile's features from its headers, and the generated source. The headers are a test
double's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tile_oracle.compiling.ck_tile.api import CkTileApi, detect
from tile_oracle.compiling.ck_tile.headers import find_headers
from tile_oracle.compiling.ck_tile.kernel_source import CkTileSource, source_for
from tile_oracle.errors import KernelError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.operations.gemm.problem import GemmProblem

DOUBLE = Path(__file__).parents[1] / "ck_tile_double"
FORWARD = "grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave"
ADAPTER = "kernels/ck_tile/adapter.hpp"
GEMM = "gemm_bf16_rcr_compv3_cshuffle_intrawave_True_False_True_False_128x128x64_2x2x1_32x32x16"


@pytest.fixture(scope="module")
def api() -> CkTileApi:
    return detect(find_headers(DOUBLE))


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """A copy of the double to change."""
    shutil.copytree(DOUBLE / "include", tmp_path / "include")
    return tmp_path


def edit(folder: Path, header: str, before: str, after: str) -> CkTileApi:
    path = folder / "include" / "ck_tile" / "ops" / header
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    return detect(find_headers(folder))


def source(api: CkTileApi, name: str) -> str:
    return source_for(api, parse_kernel_name(name))


def test_layouts_paddings_defaults_and_specializations_are_in_the_source(api: CkTileApi) -> None:
    assert dict(api.missing) == {}
    assert api.gemm_layouts["bwd_weight"] == ("ColumnMajor", "RowMajor", "RowMajor")
    assert not api.tails_are_arguments
    text = source(api, GEMM)
    assert "TileGemmUniversalTraits<true, false, true, false, tensor_layout::gemm::RowMajor" in text
    assert "Args(p.in0, p.in1, p.out, 1, p.gemm_m, p.gemm_n, p.gemm_k, p.gemm_k, p.gemm_k, p.gemm_n)" in text
    crr = source(api, GEMM.replace("rcr", "crr"))
    assert "p.gemm_k, p.gemm_m, p.gemm_n, p.gemm_n)" in crr
    persistent = GEMM.replace("True_False_True_False", "True_False_True_True")
    assert "false, true>;" in source(api, persistent)
    # ComputeDataType_ = AsDataType_ precedes the vector widths, and AElementWise_ precedes it.
    text = source(api, FORWARD)
    assert "GemmPipelineScheduler::Intrawave, element_wise::PassThrough, T, true, 4, 8>" in text
    text = source(api, FORWARD + "_f1x1p0")
    assert "GroupedConvTraits<2, ConvolutionSpecialization::Filter1x1Pad0," in text


def test_members_that_the_adapter_uses_are_looked_for_before_anything_compiles(changed: Path) -> None:
    api = edit(
        changed, "grouped_convolution/double.hpp",
        "MakeKernelArgs(const GroupedConvFwdHostArgs", "MakeArgs(const GroupedConvFwdHostArgs",
    )  # fmt: skip
    assert dict(api.missing) == {
        "forward": f"its GroupedConvolutionForwardKernel has no MakeKernelArgs, which {ADAPTER} uses"
    }
    api = edit(changed, "gemm/double.hpp", "index_t BlockSize =", "index_t Threads =")
    with pytest.raises(KernelError, match=f"has no BlockSize, which {ADAPTER} uses"):
        source(api, GEMM)


def test_members_of_base_classes_count(changed: Path) -> None:
    """The double's convolutions have GridSize from their base class."""
    api = edit(
        changed, "grouped_convolution/double.hpp", "GridSize(const ConvKernelArgs", "Grid(const ConvKern"
    )
    wanted = dict.fromkeys(("forward", "bwd_data", "bwd_weight"), f"has no GridSize, which {ADAPTER} uses")
    assert {direction: why.split(maxsplit=2)[2] for direction, why in api.missing.items()} == wanted
    # What a base has that is not among the headers is not known.
    api = edit(changed, "grouped_convolution/double.hpp", "struct ConvKernelOf", "struct ConvKernelFrom")
    assert dict(api.missing) == {}


def test_every_field_of_a_convolution_is_in_its_source(api: CkTileApi) -> None:
    name = "grouped_conv_bwd_weight_fp16_3d_32x128x64_compv3_intrawave_w2x2x1_wt16x16x32_v2x4x8_gm4"
    text = source(api, name)
    for part in (
        "sequence<32, 128, 64>, sequence<2, 2, 1>, sequence<16, 16, 32>",
        "GroupedConvTraits<3, ConvolutionSpecialization::Default, tensor_layout::convolution::NDHWGC",
        "tensor_layout::convolution::NDHWGK, 2, 4, 8, 4>",
        "using T = half_t;",
        "TileGemmUniversalTraits<true, true, true, false, tensor_layout::gemm::ColumnMajor, "
        "tensor_layout::gemm::RowMajor, tensor_layout::gemm::RowMajor>",
        "GemmPipelineScheduler::Intrawave",
        "GroupedConvolutionBackwardWeightKernel<Conv, Partitioner, Pipeline, Epilogue>",
        "using Args = GroupedConvBwdWeightHostArgs;",
        f'kernel_name[] = "{name}"',
    ):
        assert part in text


@pytest.mark.parametrize(
    ("direction", "image", "filters", "result"),
    [
        ("forward", "in0", "in1", "out"),
        ("bwd_data", "out", "in1", "in0"),
        ("bwd_weight", "in0", "out", "in1"),
    ],
)
def test_operands_and_extents_are_in_ck_tiles_order(
    api: CkTileApi, direction: str, image: str, filters: str, result: str
) -> None:
    text = source(api, FORWARD.replace("forward", direction))
    assert f"p.{image}, p.{filters}, std::vector<const void*>{{}}, p.{result}, 1);" in text
    assert "conv::ConvParam(Conv::NDimSpatial, p.G, p.N, p.K / p.G, p.C / p.G, extents(p.Z, p.Y" in text
    assert "return {h, w};" in text
    three = source(api, FORWARD.replace("2d", "3d"))
    assert "return {d, h, w};" in three


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (FORWARD.replace("compv3", "compv6"), "pipeline compv6 is not in this CK Tile: it has no"),
        (FORWARD.replace("compv3", "compv11"), "pipeline compv11 .*does not know its class"),
        (FORWARD.replace("intrawave", "interwave"), "has no interwave schedule"),
        (FORWARD.replace("compv3", "compv4"), "needs double_smem_buffer"),
        (FORWARD + "_dsb", "takes one LDS buffer"),
        (FORWARD + "_si", "split_image"),
        (FORWARD + "_eg", "GroupedConvTraits has no parameter for explicitgemm"),
        (FORWARD + "_epdefault", "epilogue default is not in this CK Tile"),
        (FORWARD + "_pad110", "padding"),
        (FORWARD + "_f3x3", "specialization: this CK Tile has no Filter3x3"),
        (FORWARD + "_gm2", "num_groups_to_merge: .*forward kernel is launched group by group"),
        (FORWARD.replace("forward", "bwd_weight") + "_2s", "two_stage .*it has no ElementWiseShape"),
        (GEMM.replace("compv3", "preshufflev2"), "shuffled first"),
    ],
)
def test_missing_features_are_refused_with_the_reason(api: CkTileApi, name: str, reason: str) -> None:
    with pytest.raises(KernelError, match=reason):
        source(api, name)


def test_a_pipeline_whose_last_copies_race_with_the_epilogue_is_not_offered(api: CkTileApi) -> None:
    """comp_async with cshuffle, whatever the tile: the reason names the race, and what is safe."""
    for tile in ("64x32x64", "128x64x64"):
        name = f"gemm_bf16_rcr_comp_async_cshuffle_intrawave_False_False_False_False_{tile}_2x2x1_16x16x32"
        problem = GemmProblem("bf16", "rcr", 128, 64, 256)
        said = CkTileSource("gfx950", api).refusal(parse_kernel_name(name), problem)
        assert "races: copies of the last tiles may land on the results" in str(said)
        safe = CkTileSource("gfx950", api).refusal(
            parse_kernel_name(name.replace("cshuffle", "default")), problem
        )
        assert safe is None or "race" not in safe
        known = CkTileSource("gfx950", api, with_races=True).refusal(parse_kernel_name(name), problem)
        assert known == safe, "tools.ck_tile_waits compiles it, to show the race"


def test_an_unknown_parameter_is_named(changed: Path) -> None:
    api = edit(
        changed, "epilogue/double.hpp", "index_t kM_, index_t kN_", "index_t kQuux_, index_t kM_, index_t kN_"
    )
    with pytest.raises(KernelError, match="CShuffleEpilogueProblem asks for kQuux_, which tile-oracle does"):
        source(api, FORWARD)


def test_parameters_may_change_places_and_spelling(changed: Path) -> None:
    api = edit(
        changed,
        "epilogue/double.hpp",
        "index_t kM_, index_t kN_, index_t MWave_,",
        "index_t kMWave_, index_t kN_, index_t M_,",
    )
    text = source(api, FORWARD.replace("64x64x64", "16x64x64"))
    # Tile 16 x 64, waves 1 x 4: M's wave now comes first.
    assert "element_wise::PassThrough, 1, 64, 16, 4, 16, 16, 16" in text


CONV_KERNEL = (
    "struct GroupedConvolutionForwardKernel : "
    "ConvKernelOf<TilePartitioner_, GemmPipeline_, EpiloguePipeline_> {"
)
COMPV3 = "struct GemmPipelineAgBgCrCompV3 {"


def test_a_pipeline_that_goes_along_rows_is_for_one_pair_of_layouts(changed: Path) -> None:
    step = "move_tile_window(as_copy_dram_window, {0, kKPerBlock});"
    api = edit(changed, "gemm/double.hpp", COMPV3, f"{COMPV3} void step() {{ {step} }}")
    assert source(api, FORWARD)
    with pytest.raises(KernelError, match="row-major and B column-major, not ColumnMajor and RowMajor"):
        source(api, FORWARD.replace("forward", "bwd_weight"))
    with pytest.raises(KernelError, match="row-major and B column-major"):
        source(api, GEMM.replace("rcr", "crr"))
    assert source(api, GEMM)


@pytest.mark.parametrize(("one_each", "taken"), [(False, False), (True, True)])
def test_a_pipeline_for_lists_is_not_for_kernels_with_one_operand_each(
    changed: Path, one_each: bool, taken: bool
) -> None:
    run = "void run() { GemmPipeline{}.template operator()(a_block_window, b_block_window, loops); }"
    edit(changed, "grouped_convolution/double.hpp", CONV_KERNEL, CONV_KERNEL + run)
    lists = (
        "template <class A, enable_if_t<{}is_detected<is_tuple, A>::value, bool> = true> auto operator()({});"
    )
    overloads = lists.format("", "const A& as, const B& bs, index_t loops")
    if one_each:
        overloads += lists.format("!", "const A& a, const BWindow& b, index_t loops")
    else:
        overloads += lists.format("!", "const A& a, const Function& f, const BWindow& b, index_t loops")
    api = edit(changed, "gemm/double.hpp", COMPV3, COMPV3 + overloads)
    assert api.pipelines["compv3"].lists_only != taken
    if taken:
        assert source(api, FORWARD)
    else:
        with pytest.raises(KernelError, match="takes lists of operands; its forward kernel passes"):
            source(api, FORWARD)
    assert source(api, FORWARD.replace("forward", "bwd_data"))


def test_a_kernel_that_cannot_have_two_buffers_is_refused_with_them(changed: Path) -> None:
    asks = "void run() { GetLoopNum(gemm_tile_windows.at(I0).get_length(I1)); }"
    api = edit(changed, "grouped_convolution/double.hpp", CONV_KERNEL, CONV_KERNEL + asks)
    two = FORWARD.replace("compv3", "compv4") + "_dsb"
    with pytest.raises(KernelError, match="forward kernel does not compile with two"):
        source(api, two)
    assert source(api, two.replace("forward", "bwd_data"))


def test_other_spellings_of_types_widths_and_layouts_are_noticed(changed: Path) -> None:
    api = edit(changed, "gemm/double.hpp", "typename CDataType_,", "typename EDataType_,")
    assert "<T, T, float, Shape, TileTraits, " in source(api, FORWARD)
    api = edit(changed, "gemm/double.hpp", ", index_t VectorSizeA_ = 1, index_t VectorSizeB_ = 1>", ">")
    with pytest.raises(KernelError, match="has no parameter for vectorsize"):
        source(api, FORWARD)
    assert source(api, GEMM)
    api = edit(changed, "grouped_convolution/double.hpp", "is_same_v<GemmBLayout", "is_like<GemmBLayout")
    assert "does not state which GEMM layouts" in api.missing["forward"]


def test_a_version_names_the_kernel_that_it_lacks(changed: Path) -> None:
    header = "grouped_convolution/double.hpp"
    api = edit(changed, header, "struct GroupedConvolutionBackwardDataKernel", "struct SomethingElse")
    assert dict(api.missing) == {"bwd_data": "it has no GroupedConvolutionBackwardDataKernel"}
    with pytest.raises(KernelError, match=r"CK Tile \(headers \w+\) cannot build bwd_data kernels: it has"):
        source(api, FORWARD.replace("forward", "bwd_data"))
    assert source(api, FORWARD)


@pytest.mark.parametrize(
    ("config", "defined"),
    [
        ("#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT CK_TILE_FLOAT_TO_BFLOAT16_TRUNCATE", "STANDARD"),
        ("#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT CK_TILE_FLOAT_TO_BFLOAT16_STANDARD_ASM", "STANDARD"),
        ("#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT CK_TILE_FLOAT_TO_BFLOAT16_STANDARD", ""),
        ("", ""),
    ],
)
def test_results_are_rounded_to_the_nearest(changed: Path, config: str, defined: str) -> None:
    text = "#define CK_TILE_FLOAT_TO_BFLOAT16_STANDARD 0\n#define CK_TILE_FLOAT_TO_BFLOAT16_STANDARD_ASM 3\n"
    folder = changed / "include" / "ck_tile" / "core"
    folder.mkdir()
    (folder / "config.hpp").write_text(text + config)
    api = detect(find_headers(changed))
    line = f"#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT CK_TILE_FLOAT_TO_BFLOAT16_{defined}\n"
    assert source(api, FORWARD).startswith(line) == bool(defined)
    assert "BFLOAT16" not in source(api, FORWARD.replace("bf16", "fp16"))


def test_a_pipeline_that_reads_no_fragments_leaves_it_to_the_block_gemm(changed: Path) -> None:
    """Like the real basic_v1: it has no schedule. With Intrawave, nothing would read the operands'
    fragments."""
    assert "GemmPipelineScheduler::Intrawave" in source(detect(find_headers(changed)), FORWARD)
    edit(changed, "gemm/double.hpp", "gemm.LocalPrefetch();", "")
    api = edit(changed, "gemm/double.hpp", "GemmPipelineAgBgCrCompV3", "GemmPipelineAGmemBGmemCRegV1")
    text = source(api, FORWARD.replace("compv3", "basic_v1"))
    assert "GemmPipelineScheduler::Default" in text
    assert "GemmPipelineScheduler::Intrawave" not in text


def test_a_pipeline_that_is_not_persistent_is_refused(changed: Path) -> None:
    persistent = GEMM.replace("True_False_True_False", "True_False_True_True")
    assert source(detect(find_headers(changed)), persistent)
    api = edit(changed, "gemm/double.hpp", "bool UsePersistentKernel = ", "bool Other = ")
    with pytest.raises(KernelError, match="persistent: GemmPipelineAgBgCr"):
        source(api, persistent)
    assert source(api, GEMM)
