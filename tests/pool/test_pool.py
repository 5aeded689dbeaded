"""Pools: what the shipped rule sets produce, and how a user's own rules are handled."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.pools import kernel_pool
from tests.samples import sampled, slow
from tile_oracle.arch import load_arch
from tile_oracle.errors import RuleError
from tile_oracle.operation import Kind
from tile_oracle.operations.grouped_conv.kernel import PUBLISHED_TILES, GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, DTYPES
from tile_oracle.pool import explain_pool_of_kind, load_rule_set
from tile_oracle.pool.kernel_filter import KernelFilter

CONVOLUTION = Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2)

KINDS = tuple(itertools.product(DIRECTIONS, DTYPES, (2, 3)))
KIND_IDS = [f"{direction}-{dtype}-{ndim}d" for direction, dtype, ndim in KINDS]
ARCHS = ("cpu", "gfx908", "gfx90a", "gfx942", "gfx950")

Words = tuple[str, str, int]


def words(value: str | Words) -> str:
    return value if isinstance(value, str) else "-".join(map(str, value))


# ---- the shipped sets ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [k for k in KINDS if k[1] != "fp32"], ids=str)
def test_default_on_gfx950_is_the_published_pool(kind: Words) -> None:
    pool = kernel_pool(*kind, "gfx950")
    tiles = {kernel.tile for kernel in pool}
    variants = {(k.pipeline, k.scheduler, k.double_smem_buffer, k.split_image) for k in pool}
    assert tiles == set(PUBLISHED_TILES)
    assert len(pool) == len(tiles) * len(variants)
    assert len(variants) == (30 if kind[0] == "forward" else 15)  # split_image is only for forward
    assert all((k.waves, k.warp_tile) == PUBLISHED_TILES[k.tile] for k in pool)
    # Only the published tokens: exactly the names that published models know.
    assert not [k.name for k in pool if "_w" in k.short_name or "_v" in k.short_name.replace("basic_v1", "")]


@pytest.mark.parametrize(("arch", "kind"), sampled(itertools.product(ARCHS, KINDS), every=7), ids=words)
def test_each_smaller_set_is_a_subset_of_the_larger(arch: str, kind: Words) -> None:
    full, tests, tiny = (set(kernel_pool(*kind, arch, rules)) for rules in ("full", "full-tests", "tiny"))
    assert tiny < tests < full
    assert len(tiny) == 8
    if arch == "cpu":
        assert tiny < set(kernel_pool(*kind, arch)) < tests


@pytest.mark.parametrize("kind", KINDS, ids=KIND_IDS)
def test_on_cpu_the_default_kernels_differ_in_published_features(kind: Words) -> None:
    pool = kernel_pool(*kind, "cpu")
    assert 20 <= len(pool) <= 30
    seen = {(k.tile, k.pipeline, k.scheduler, k.double_smem_buffer, k.split_image) for k in pool}
    assert len(seen) == len(pool)
    assert {k.pipeline for k in pool} == {"basic_v1", "mem", "compv3", "compv4"}
    assert any((k.tile, k.pipeline) == ((64, 64, 64), "compv3") for k in pool)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("ndim", [2, 3])
def test_on_gfx950_the_default_kernels_of_fp32_are_few_and_half_as_deep(direction: str, ndim: int) -> None:
    pool = kernel_pool(direction, "fp32", ndim, "gfx950")
    assert len(pool) == 50
    assert {k.tile_k for k in pool} == {32, 64}
    assert any(k.two_stage for k in pool) == (direction == "bwd_weight")


@pytest.mark.parametrize("rules", ["tiny", *slow("default", "full", "full-tests")])
@pytest.mark.parametrize("arch", ["cpu", "gfx942", "gfx950"])
def test_a_pool_is_sorted_unique_and_allowed(arch: str, rules: str) -> None:
    for kind in KINDS:
        if kind[2] == 3:
            continue
        pool = kernel_pool(*kind, arch, rules)
        keys = [tuple(kernel.as_row().values()) for kernel in pool]
        assert keys == sorted(set(keys))
        assert len({kernel.name for kernel in pool}) == len(pool) > 0
        refused = [
            k.name for k in pool if load_arch(arch).refusals(k) or (k.direction, k.dtype, k.ndim) != kind
        ]
        assert not refused


def test_full_on_gfx950_has_thousands_and_uses_every_option() -> None:
    pool = kernel_pool("bwd_weight", "bf16", 2, "gfx950", "full")
    forward = kernel_pool("forward", "bf16", 2, "gfx950", "full")
    assert len(forward) > 5000
    assert len(pool) > 3000
    assert {k.pipeline for k in forward} == set(load_arch("gfx950").pipelines("grouped_conv"))
    assert {k.two_stage for k in pool} == {True, False}
    for name in ("split_image", "explicit_gemm", "double_smem_buffer", "scheduler", "epilogue"):
        assert len({getattr(k, name) for k in forward}) == 2, name
    assert {k.num_groups_to_merge for k in forward} == {1, 2, 4, 8, 16, 32}
    assert {k.vector_b for k in forward} == {1, 2, 4, 8}
    assert {k.warp_tile[:2] for k in forward} == {(16, 16), (32, 32), (4, 64), (64, 4)}


# ---- explanations -------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["gfx950", "gfx942", "cpu"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_proposed_kernel_is_accounted_for(arch: str, direction: str) -> None:
    explained = explain_pool_of_kind(Kind.of("grouped_conv", direction=direction, dtype="fp32", ndim=2), arch)
    kind = Kind.of("grouped_conv", direction=direction, dtype="fp32", ndim=2)
    proposed = sum(block.candidates for block in load_rule_set("default").covering(kind, arch))
    assert len(explained.accepted) + len(explained.refused) == proposed
    assert not set(explained.accepted) & {refused.kernel for refused in explained.refused}
    assert sum(explained.reasons.values()) == sum(explained.rules.values()) == len(explained.refused)
    for refused in explained.refused:
        assert refused.reason == load_arch(arch).refusal(refused.kernel)
        assert refused.reason.startswith(f"{refused.rule}: ")


def test_refusals_of_the_default_set_are_counted_by_rule() -> None:
    explained = explain_pool_of_kind(
        Kind.of("grouped_conv", direction="bwd_data", dtype="bf16", ndim=2), "gfx950"
    )
    assert explained.rules == {"scheduler": 160, "split_image": 150, "double_smem_buffer": 20}
    assert explained.reasons["scheduler: compv3 on gfx950 is intrawave, not interwave"] == 40
    on_gfx942 = explain_pool_of_kind(CONVOLUTION, "gfx942")
    assert on_gfx942.rules["waves"] == 60  # 128x128x64 and 128x64x128 need waves that it lacks
    assert len(on_gfx942.accepted) == 8 * 30


def test_a_filter_splits_the_pool_and_reports_the_rest() -> None:
    where = KernelFilter("tile_n >= 128 and pipeline == 'compv5'")
    whole = explain_pool_of_kind(CONVOLUTION, "gfx950")
    part = explain_pool_of_kind(CONVOLUTION, "gfx950", where=where)
    wanted = tuple(k for k in whole.accepted if k.tile_n >= 128 and k.pipeline == "compv5")
    assert part.accepted == wanted == kernel_pool("forward", "bf16", 2, "gfx950", where=where)
    assert len(wanted) == 12
    assert set(part.filtered_out) == set(whole.accepted) - set(wanted)
    assert part.refused == whole.refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sideways", "bf16", 2, "cpu"), "direction 'sideways' is not one of forward, bwd_data, bwd_weight"),
        (("forward", "fp64", 2, "cpu"), "dtype 'fp64' is not one of bf16, fp16, fp32"),
        (("forward", "bf16", 1, "cpu"), "ndim '1' is not one of 2, 3"),
        (("forward", "bf16", 2, "gfx951"), r"did you mean gfx950\?"),
        (("forward", "bf16", 2, "gfx1250"), "kernel set 'default' has no rules for gfx1250, only for"),
        (("forward", "bf16", 2, "cpu", "fulll"), r"kernel set 'fulll' is not known; did you mean full\?"),
        (("forward", "bf16", 2, "cpu", "../rules/full"), "kernel set '../rules/full' is not known"),
        (("forward", "bf16", 2, "cpu", "no/such.json"), "kernel set 'no/such.json': there is no such file"),
        (("forward", "bf16", 2, "cpu", "a\0b.json"), "there is no such file"),
        (("forward", "bf16", 2, "cpu", "x" * 100_000 + ".json"), "there is no such file"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:50],
)
def test_unknown_names_give_one_line(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(RuleError, match=message) as caught:
        kernel_pool(*arguments)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


# ---- a user's own rules -------------------------------------------------------------------------

BLOCK: dict[str, Any] = {
    "arch": ["cpu"],
    "tiles": [{"tile": "64x64x64", "waves": "1x1x1", "warp_tile": "4x32x1"}],
    "pipeline": ["mem"],
}


def own(folder: Path, *blocks: dict[str, Any], **top: Any) -> str:
    path = folder / "mine.json"
    path.write_text(json.dumps({"blocks": [BLOCK | block for block in blocks], **top}))
    return str(path)


def gpu_tile(tile: str, waves: str = "2x2x1", warp_tile: str = "16x16") -> dict[str, str]:
    return {"tile": tile, "waves": waves, "warp_tile": warp_tile}


def pool_of(rules: str, arch: str = "gfx950", direction: str = "forward") -> tuple[GroupedConvKernel, ...]:
    return kernel_pool(direction, "bf16", 2, arch, rules)


def test_a_file_of_rules_makes_a_pool(tmp_path: Path) -> None:
    rules = own(tmp_path, {"pipeline": ["mem", "compv4"]})
    assert [kernel.short_name for kernel in pool_of(rules, "cpu")] == [
        "64x64x64_compv4_intrawave_dsb_w1x1x1_wt4x32x1",
        "64x64x64_mem_intrawave_w1x1x1_wt4x32x1",
    ]


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    rules = own(tmp_path, {})
    assert len(pool_of(rules, "cpu")) == 1
    own(tmp_path, {"pipeline": ["mem", "compv3"]})
    assert len(pool_of(rules, "cpu")) == 2


def test_the_same_kernel_of_two_blocks_counts_once(tmp_path: Path) -> None:
    assert len(pool_of(own(tmp_path, {}, {"pipeline": ["mem", "compv3"]}), "cpu")) == 2


def test_a_block_applies_to_the_kinds_that_it_names(tmp_path: Path) -> None:
    rules = own(tmp_path, {"direction": ["bwd_data"], "dtype": ["fp16"], "ndim": [3]})
    assert len(kernel_pool("bwd_data", "fp16", 3, "cpu", rules)) == 1
    for kind in set(KINDS) - {("bwd_data", "fp16", 3)}:
        with pytest.raises(RuleError, match=f"no rules for {kind[0]} {kind[1]} {kind[2]}D on cpu"):
            kernel_pool(*kind, "cpu", rules)


@pytest.mark.parametrize(
    ("strategy", "direction", "widths"),
    [
        ("max", "forward", (4, 8, 8)),
        ("channels_multiple_of_4", "forward", (4, 4, 4)),
        ("channels_multiple_of_1", "bwd_weight", (1, 1, 1)),
        # A and B of forward run along the input channels, C along the output channels; and so on.
        ("input_channels_multiple_of_2", "forward", (2, 2, 8)),
        ("output_channels_multiple_of_2", "forward", (4, 8, 2)),
        ("input_channels_multiple_of_2", "bwd_data", (4, 2, 2)),
        ("output_channels_multiple_of_2", "bwd_data", (2, 8, 8)),
        ("output_channels_multiple_of_1", "bwd_weight", (1, 8, 8)),
        ("2x4x8", "forward", (2, 4, 8)),
    ],
)
def test_vector_widths_follow_from_the_channels(
    strategy: str, direction: str, widths: tuple[int, int, int], tmp_path: Path
) -> None:
    tile = gpu_tile("16x64x64", "1x4x1", "16x16x16")
    rules = own(tmp_path, {"arch": ["gfx950"], "tiles": [tile], "vectors": [strategy]})
    assert [kernel.vectors for kernel in pool_of(rules, direction=direction)] == [widths]


def test_vector_strategies_change_nothing_where_widths_are_fixed(tmp_path: Path) -> None:
    rules = own(tmp_path, {"vectors": ["max", "channels_multiple_of_1", "4x8x8"]})
    assert [kernel.vectors for kernel in pool_of(rules, "cpu")] == [(4, 8, 8)]


def test_an_impossible_warp_tile_without_depth_is_refused_not_dropped(tmp_path: Path) -> None:
    rules = own(
        tmp_path, {"arch": ["gfx950"], "tiles": [gpu_tile("64x64x8"), gpu_tile("64x64x64", warp_tile="8x8")]}
    )
    explained = explain_pool_of_kind(CONVOLUTION, "gfx950", rules)
    assert explained.accepted == ()
    assert [refused.rule for refused in explained.refused] == ["tile", "warp tile"]


def test_depths_and_lists_multiply(tmp_path: Path) -> None:
    tile = {"tile": "64x64", "waves": ["2x2x1", "4x1x1"], "warp_tile": ["16x16", "16x16x16"]}
    rules = own(
        tmp_path,
        {
            "arch": ["gfx950"],
            "tiles": "squares",
            "tile_k": [32, 64],
            "vectors": ["max"],
            "padding": ["111", "011"],
        },
        tile_lists={"squares": [tile]},
    )
    pool = pool_of(rules)
    assert load_rule_set(rules).blocks["grouped_conv"][0].candidates == len(pool) == 2 * 2 * 2 * 2
    assert {kernel.pad_m for kernel in pool} == {True, False}


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"arch": []}, r"blocks\[0\].arch: an empty list makes no kernels"),
        ({"arch": ["gfx95"]}, r"arch\[0\]: 'gfx95' is not one of .*; did you mean gfx950\?"),
        ({"arch": "cpu"}, r"arch: 'cpu' is not a list \[...\]"),
        ({"direction": ["fwd"]}, r"direction\[0\]: 'fwd' is not one of forward"),
        ({"dtype": ["bf16", "bf16"]}, "dtype: 'bf16' is listed twice"),
        ({"ndim": [2, 4]}, "ndim: ndim is 2 or 3"),
        ({"pipelines": ["mem"]}, r"blocks\[0\]: unknown key 'pipelines'; did you mean pipeline\?"),
        ({"pipeline": ["compV3"]}, r"pipeline\[0\]: 'compV3' is not a pipeline"),
        ({"scheduler": ["both"]}, r"scheduler\[0\]: 'both' is not one of intrawave, interwave"),
        ({"tiles": []}, "tiles: an empty list makes no kernels"),
        ({"tiles": "mine"}, "tiles: 'mine' is not one of"),
        ({"tiles": [{"tile": "64x64x64"}]}, r"tiles\[0\]: the key 'waves' is missing"),
        ({"tiles": [gpu_tile("64")]}, r"tiles\[0\].tile: '64' is not of the form 64x64x64 or 64x64"),
        ({"tiles": [gpu_tile("64x64")]}, r"tiles\[0\].tile: '64x64' needs a third number, or a list"),
        ({"tiles": [gpu_tile("64x64x64", "2x2")]}, r"tiles\[0\].waves: '2x2' is not of the form 64x64x64$"),
        ({"tiles": [gpu_tile("9999999x1x1")]}, r"mine.json: blocks\[0\]: tile_m = 9999999 is not an integer"),
        ({"vectors": ["min"]}, r"vectors\[0\]: 'min' is neither three widths \(4x8x8\) nor 'max'"),
        ({"vectors": ["channels_multiple_of_3"]}, r"vectors\[0\]: 'channels_multiple_of_3' is neither"),
        ({"padding": ["11"]}, r"padding\[0\]: '11' is not three digits 0 or 1"),
        ({"split_image": [1]}, r"split_image\[0\]: 1 is not true or false"),
        ({"two_stage": [True]}, r"mine.json: blocks\[0\]: two_stage is for bwd_weight, not forward"),
        ({"num_groups_to_merge": [0]}, r"num_groups_to_merge\[0\]: 0 is not an integer from 1"),
        (
            {
                "num_groups_to_merge": list(range(1, 100_002)),
                "scheduler": ["intrawave", "interwave"],
                "ndim": [2],
                "epilogue": ["cshuffle", "default"],
            },
            "mine.json: blocks: the blocks propose 400,004 kernels for each kind .* the limit is 250,000",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:60],
)
def test_a_mistake_in_the_rules_is_reported_with_its_place(
    block: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(RuleError, match=message) as caught:
        pool_of(own(tmp_path, block), "cpu")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("mine.json: ")


def test_files_that_are_not_rules_are_refused(tmp_path: Path) -> None:
    for content, message in (
        ("[]", "this list is not an object"),
        ('{"blocks": []}', "blocks: a rule set needs at least one block"),
        ('{"rules": []}', "unknown key 'rules'; known keys: blocks, about"),
        ("{}", "the key 'blocks' is missing"),
        ('{"blocks": [', "'mine.json' is not JSON: line 1, column"),
    ):
        (tmp_path / "mine.json").write_text(content)
        with pytest.raises(RuleError, match=message):
            load_rule_set(str(tmp_path / "mine.json"))


def test_a_folder_or_pipe_is_refused_as_a_rule_file(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    for name in ("folder.json", "pipe.json"):
        with pytest.raises(RuleError, match="is not a file"):
            load_rule_set(str(tmp_path / name))


def test_a_relative_path_in_a_removed_folder_gives_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(RuleError, match=r"kernel set 'mine\.json': there is no such file"):
        load_rule_set("mine.json")
