"""Kernel lists of the dispatcher and of tile_engine: read as kernel sets, and written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pools import kernel_pool
from tile_oracle.arch import load_arch
from tile_oracle.cli import main
from tile_oracle.errors import KernelError, RuleError
from tile_oracle.operations.grouped_conv.kernel import PUBLISHED_TILES, SPECIALIZATIONS, GroupedConvKernel
from tile_oracle.operations.grouped_conv.kernel_lists import instances_json
from tile_oracle.pool import load_rule_set, rules_of

# ROCm/rocm-libraries (MIT): what Composable Kernel's dispatcher and tile_engine read.
INSTANCE = {
    "id": 0, "tile_m": 256, "tile_n": 128, "tile_k": 32, "warp_m": 2, "warp_n": 2, "warp_k": 1,
    "warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 8,
    "vector_size_a": 1, "vector_size_b": 1, "vector_size_c": 8,
    "pipeline": "compv1", "scheduler": "intrawave", "epilogue": "cshuffle", "double_smem_buffer": False,
    "num_groups_to_merge": 1, "num_wave_groups": 1, "specialization": "default", "two_stage": False,
    "explicit_gemm": False, "split_image": False,
}  # fmt: skip
HEAD = {"variant": "forward", "ndim_spatial": 2, "layout": "nhwgc", "datatype": "bf16"}

_NUMBERS = st.one_of(st.sampled_from((1, 2, 4, 8, 16, 32, 64, 128)), st.integers(1, 1 << 20))
_TRIPLES = st.tuples(_NUMBERS, _NUMBERS, _NUMBERS)
_NUMBERED_PIPELINES = st.builds(
    "{}{}".format, st.sampled_from(("compv", "basic_v", "basic_async_v", "preshufflev")), st.integers(0, 99)
)
_PIPELINES = st.one_of(
    st.sampled_from(("mem", "comp_async", "compv3", "compv4", "basic_v1")), _NUMBERED_PIPELINES
)


@st.composite
def kernels(draw: st.DrawFn) -> GroupedConvKernel:
    """Any kernel with all paddings, as lists have them; often near the published ones."""
    direction = draw(st.sampled_from(("forward", "bwd_data", "bwd_weight")))
    tile = draw(st.one_of(st.sampled_from(sorted(PUBLISHED_TILES)), _TRIPLES))
    waves, warp_tile = PUBLISHED_TILES.get(tile, ((1, 4, 1), (16, 16, 16)))
    flag = st.booleans()
    return GroupedConvKernel(
        direction,
        draw(st.sampled_from(("bf16", "fp16", "fp32"))),
        draw(st.sampled_from((2, 3))),
        *tile,
        *draw(st.one_of(st.just(waves), _TRIPLES)),
        *draw(st.one_of(st.just(warp_tile), _TRIPLES)),
        *draw(st.one_of(st.just((4, 8, 8)), _TRIPLES)),
        draw(_PIPELINES),
        draw(st.sampled_from(("intrawave", "interwave"))),
        draw(st.sampled_from(("cshuffle", "default"))),
        double_smem_buffer=draw(flag),
        split_image=draw(flag),
        num_groups_to_merge=draw(st.one_of(st.just(1), _NUMBERS)),
        explicit_gemm=draw(flag),
        two_stage=draw(flag) if direction == "bwd_weight" else False,
        specialization=draw(st.sampled_from(SPECIALIZATIONS)),
    )


def write(folder: Path, document: Any) -> str:
    path = folder / "list.json"
    path.write_text(json.dumps(document))
    return str(path)


def instances(*changes: dict[str, Any]) -> dict[str, Any]:
    return {**HEAD, "instances": [{**INSTANCE, **change} for change in changes]}


def test_an_instance_is_a_kernel(tmp_path: Path) -> None:
    (kernel,) = kernel_pool("forward", "bf16", 2, "gfx950", write(tmp_path, instances({})))
    assert kernel.name == "grouped_conv_forward_bf16_2d_256x128x32_basic_v1_intrawave_w2x2x1_wt32x32x8_v1x1x8"


def test_an_instance_without_stream_k_is_todays_kernel(tmp_path: Path) -> None:
    """Every instance of the dispatcher's newer lists has these three keys."""
    off = {"streamk_enabled": False, "streamk_reduction_strategy": "atomic", "streamk_persistent": False}
    assert kernel_pool("forward", "bf16", 2, "gfx950", write(tmp_path, instances(off))) == kernel_pool(
        "forward", "bf16", 2, "gfx950", write(tmp_path, instances({}))
    )
    listed = load_rule_set(write(tmp_path, instances({}, {**off, "streamk_enabled": True})))
    assert listed.left_out == (
        (
            "list.json: instances[1]",
            "instances[1].streamk_enabled: stream-K: kernels here do not share tiles among workgroups",
        ),
    )


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("direct_conv", "a direct convolution, not an implicit GEMM"),
        ("wavelet", "waves that only load"),
        ("new", "new"),
    ],
)
def test_rows_of_another_kind_say_what_they_are(tmp_path: Path, kind: str, what: str) -> None:
    listed = load_rule_set(write(tmp_path, instances({}, {"kind": kind, "config_idx": 3})))
    ((place, why),) = listed.left_out
    assert place == "list.json: instances[1]"
    assert what in why
    assert "kernels here are implicit GEMMs" in why


def test_specializations_are_written_as_the_dispatcher_spells_them(tmp_path: Path) -> None:
    path = write(tmp_path, instances({"specialization": "filter1x1_stride1_pad0"}))
    kernels = kernel_pool("forward", "bf16", 2, "gfx950", rules_of(path, tmp_path))
    assert [kernel.specialization for kernel in kernels] == ["Filter1x1Stride1Pad0"]
    (written,) = json.loads(instances_json(kernels))["instances"]
    assert written["specialization"] == "filter1x1_stride1_pad0"


def test_with_a_checkout_instances_may_have_unlisted_waves(tmp_path: Path) -> None:
    path = write(tmp_path, instances({"warp_m": 1, "warp_n": 1}))
    assert kernel_pool("forward", "bf16", 2, "gfx950", path) == ()
    assert len(kernel_pool("forward", "bf16", 2, "gfx950", rules_of(path, tmp_path))) == 1


def test_an_invalid_instance_is_left_out_with_its_place(tmp_path: Path) -> None:
    bad = (
        {"pipeline": "warp9"},
        {"num_wave_groups": 2},
        {"specialization": "odd"},
        {"tile_m": 0},
        {"tile_q": 1},
    )
    rule_set = load_rule_set(write(tmp_path, instances({}, *bad)))
    places, reasons = zip(*rule_set.left_out, strict=True)
    assert places == tuple(f"list.json: instances[{n}]" for n in range(1, 6))
    for reason, expected in zip(
        reasons,
        ("pipeline 'warp9'", "num_wave_groups is 1, or 2", "'odd' is not one of", "tile_m", "tile_q"),
        strict=True,
    ):
        assert expected in reason
    assert rule_set.notes[0] == "5 of 6 instances were left out, the first:"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({**HEAD, "instances": []}, "no instance is a kernel"),
        ({**HEAD, "layout": "ngchw", "instances": [INSTANCE]}, "layout: 'ngchw' is not one of nhwgc"),
        ({**HEAD, "variant": "sideways", "instances": [INSTANCE]}, "variant: 'sideways' is not one of"),
        ({**HEAD, "ndim_spatial": 4, "instances": [INSTANCE]}, "ndim_spatial is 2 or 3"),
        (
            {"variant": "forward", "trait_config": {"pipeline": {"values": ["mem"]}}},
            "--kernel-filter narrows a kernel set",
        ),
    ],
)
def test_an_unusable_list_gives_one_line(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(RuleError, match=message) as raised:
        load_rule_set(write(tmp_path, document))
    assert "\n" not in str(raised.value)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kernels())
def test_a_written_list_gives_back_the_kernel(tmp_path: Path, kernel: GroupedConvKernel) -> None:
    if kernel.pipeline == "compv1":  # the lists' word for basic_v1
        return
    path = tmp_path / "written.json"
    path.write_text(instances_json([kernel]))
    (block,) = load_rule_set(str(path)).blocks["grouped_conv"]
    assert list(block.kernels(kernel.kind, load_arch("gfx950"))) == [kernel]


def test_the_command_writes_what_it_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = ["--arch", "gfx950", "--direction", "forward", "--dtype", "bf16", "--ndim", "2"]
    filtered = ["--kernel-filter", "pipeline == 'compv3' or pipeline == 'mem'"]
    pool = [k for k in kernel_pool("forward", "bf16", 2, "gfx950") if k.pipeline in ("compv3", "mem")]
    for name in ("instances.json", "names.txt"):
        path = str(tmp_path / name)
        assert main(["kernels", *kind, *filtered, "-o", path]) == 0
        assert capsys.readouterr().out == f"{path}: 120 kernels\n"
        if name.endswith(".json"):
            assert list(kernel_pool("forward", "bf16", 2, "gfx950", path)) == pool
        else:
            assert Path(path).read_text().split() == [kernel.name for kernel in pool]


def test_what_a_list_cannot_express_is_not_written() -> None:
    pool = kernel_pool("forward", "bf16", 2, "gfx950")
    with pytest.raises(KernelError, match="has one direction, data type and rank"):
        instances_json([pool[0], replace(pool[0], dtype="fp16")])
    with pytest.raises(KernelError, match="cannot express paddings"):
        instances_json([replace(pool[0], pad_m=False)])
