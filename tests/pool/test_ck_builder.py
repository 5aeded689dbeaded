"""The rule sets `profiler` and `tests`, read from a checkout's CK Builder config files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pools import kernel_pool
from tile_oracle.errors import RuleError
from tile_oracle.pool import load_rule_set, rules_of
from tile_oracle.pool.ck_builder import read_builder_configs

FORWARD = """
    std::string GetTypeString() const override
    {
        auto str = std::stringstream();
        str << "DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle_V3"
            << "<"
            << BlockSize << ", "
            << MPerBlock << ", "
            << NPerBlock << ", "
            << KPerBlock << ", "
            << getConvForwardSpecializationString(ConvForwardSpecialization) << ", "
            << MPerXDL << ", "
            << NPerXDL << ", "
            << MXdlPerWave << ", "
            << NXdlPerWave << ", "
            << ABlockTransferSrcScalarPerVector << ", "
            << BBlockTransferSrcScalarPerVector << ", "
            << CDEBlockTransferScalarPerVector_NPerBlock << ", "
            << "BlkGemmPipelineScheduler: "
            << BlkGemmPipelineSchedulerToString[BlkGemmPipeSched] << ", "
            << "BlkGemmPipelineVersion: "
            << BlkGemmPipelineVersionToString[BlkGemmPipelineVer]
            << ">";
        return str.str();
    }
"""
WEIGHTS = """
        str << "DeviceGroupedConvBwdWeightTwoStage_Xdl_CShuffle"
            << "<" << BlockSize << ", " << MPerBlock << ", " << NPerBlock << ", " << KPerBlock << ", "
            << getConvBackwardWeightSpecializationString(ConvBackwardWeightSpecialization) << ", "
            << MXdlPerWave << ", " << NXdlPerWave << ">";
"""
NAME = "DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle_V3"
GOOD = (
    f"{NAME}<256, 128, 128, 64, Default, 32, 32, 2, 2, 8, 8, 8, "
    "BlkGemmPipelineScheduler: Intrawave, BlkGemmPipelineVersion: v3>"
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    impl = tmp_path / "include" / "ck" / "tensor_operation" / "gpu" / "device" / "impl"
    impl.mkdir(parents=True)
    (impl / "device_grouped_conv_fwd.hpp").write_text(FORWARD)
    (impl / "device_grouped_conv_bwd_weight.hpp").write_text(WEIGHTS)
    return tmp_path


def write(checkout: Path, *lines: str, name: str = "forward/profiler/nhwgc_bf16.conf") -> Path:
    path = checkout / "experimental" / "configs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_line_is_a_kernel(checkout: Path) -> None:
    write(checkout, "# instances", "", GOOD)
    pool = kernel_pool("forward", "bf16", 2, "gfx950", rules_of("profiler", checkout))
    assert [kernel.name for kernel in pool] == [
        "grouped_conv_forward_bf16_2d_128x128x64_compv3_intrawave_w2x2x1_v8x8x8"
    ]


def test_pipeline_scheduler_vectors_and_rank_are_read(checkout: Path) -> None:
    line = GOOD.replace("Intrawave", "Interwave").replace("v3>", "v2>").replace("8, 8, 8", "1, 2, 4")
    write(checkout, line, name="forward/tests/ndhwgc_fp16.config")
    (kernel,) = kernel_pool("forward", "fp16", 3, "gfx950", rules_of("tests", checkout))
    assert kernel.name == "grouped_conv_forward_fp16_3d_128x128x64_mem_interwave_w2x2x1_v1x2x4"


def test_a_name_may_be_printed_in_parts(checkout: Path) -> None:
    header = next(checkout.rglob("device_grouped_conv_fwd.hpp"))
    begin = 'str << "DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle_V3"'
    parts = (
        ';\n        if constexpr(DirectLoad) {\n            str << "_DirectLoad";\n        }\n        str '
    )
    text = header.read_text().replace(begin, begin + parts)
    assert parts in text
    header.write_text(text)
    write(checkout, GOOD, GOOD.replace("_V3<", "_V3_DirectLoad<"))
    configs = read_builder_configs("profiler", checkout)
    assert [line.pipeline for line in configs.lines] == ["compv3"]
    ((_, reason),) = configs.left_out
    assert "_V3_DirectLoad loads directly to LDS" in reason


def test_sets_are_kept_apart(checkout: Path) -> None:
    write(checkout, GOOD)
    with pytest.raises(RuleError, match=r"no config file .* in a folder tests below"):
        load_rule_set(rules_of("tests", checkout))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nonsense", "not of the form"),
        (GOOD[:-1], "not of the form"),
        (GOOD.replace("Fwd", "Fwd2"), "not among the headers' grouped convolutions"),
        (GOOD.replace("256, ", "", 1), "has 14 values, not 13"),
        (GOOD.replace("Default", "Filter5x5"), "specialization Filter5x5 is not one of"),
        (GOOD.replace("128, 128", "128, many"), "NPerBlock is not a positive integer"),
        (GOOD.replace("128, 128", "-128, 128"), "MPerBlock is not a positive integer"),
        (GOOD.replace("v3>", "v9>"), "pipeline version v9"),
        (GOOD.replace("Intrawave", "Sidewave"), "scheduler sidewave"),
        (GOOD.replace("32, 32, 2, 2", "32, 32, 3, 2"), "do not divide a tile of 128"),
        (GOOD.replace("<256", "<192"), "192 threads are not 2 x 2 waves"),
        (
            "DeviceGroupedConvBwdWeightTwoStage_Xdl_CShuffle<256, 128, 128, 64, Default, 2, 2>",
            "does not give MPerXDL",
        ),
    ],
)
def test_a_line_without_a_kernel_is_counted_with_its_reason(checkout: Path, line: str, reason: str) -> None:
    write(checkout, GOOD, line)
    configs = read_builder_configs("profiler", checkout)
    assert len(configs.lines) == 1
    ((place, said),) = configs.left_out
    assert place == "experimental/configs/forward/profiler/nhwgc_bf16.conf:2"
    assert reason in said
    assert configs.notes[0] == "kernel set profiler: 1 of 2 lines in 1 config files were left out"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("forward/profiler/nhwgc.conf", "does not name exactly one data type"),
        ("forward/profiler/nhwgc_bf16_fp16.conf", "does not name exactly one data type"),
        ("forward/profiler/nhwgc_ndhwgc_bf16.conf", "names both layouts, nhwgc and ndhwgc"),
        ("forward/profiler/ngchw_bf16.conf", "layout ngchw: problems here have nhwgc or ndhwgc"),
    ],
)
def test_an_ambiguous_path_is_a_reason(checkout: Path, name: str, reason: str) -> None:
    write(checkout, GOOD)
    write(checkout, GOOD, name=name)
    ((_, said),) = read_builder_configs("profiler", checkout).left_out
    assert reason in said


def test_a_path_without_layout_is_of_nhwgc_and_says_so(checkout: Path) -> None:
    write(checkout, GOOD, name="forward/profiler/bf16.conf")
    configs = read_builder_configs("profiler", checkout)
    assert [line.ndim for line in configs.lines] == [2]
    assert configs.notes[1:] == ("  1 lines do not give their layout: nhwgc is assumed",)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("8,8,3,1,1,1,1,8,2,2,2,2", "a depthwise convolution of images in NGCHW"),
        ("16, 16, 5, 1, 2, 1, 1, 4, 2, 2, 2, 2", "a depthwise convolution of images in NGCHW"),
        ("direct_tile_conv_fwd_fp16_c4_w1x1", "a direct convolution, not an implicit GEMM"),
    ],
)
def test_lines_of_other_kernels_are_refused_by_name(checkout: Path, line: str, what: str) -> None:
    write(checkout, line, name="forward/profiler/ngchw_depthwise.conf")
    with pytest.raises(RuleError, match=f"no line makes a kernel; .*1 lines: {what}: no operation here has"):
        load_rule_set(rules_of("profiler", checkout))


def test_a_folder_that_is_not_a_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="is not a checkout of Composable Kernel"):
        load_rule_set(rules_of("profiler", tmp_path))


def test_without_a_checkout_the_option_is_named() -> None:
    with pytest.raises(RuleError, match=r"name it with --ck-tile DIR"):
        load_rule_set(rules_of("profiler", None))
    assert rules_of("default", Path("anywhere")) == "default"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(
        alphabet=st.characters(codec="utf-8", exclude_characters="\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"),
        max_size=80,
    )
)
def test_any_line_is_read_or_refused(checkout: Path, text: str) -> None:
    write(checkout, GOOD, text, f"{NAME}<{text}>")
    configs = read_builder_configs("profiler", checkout)
    assert 1 <= len(configs.lines) <= 3
    assert all(reason for _, reason in configs.left_out)
