"""The verifier of waits on CK Tile's own kernels: which are chosen, and what is found in them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast

import pytest

from tile_oracle.compiling.ck_tile.api import detect
from tile_oracle.compiling.ck_tile.headers import find_headers
from tile_oracle.compiling.ck_tile.kernel_source import source_for
from tile_oracle.errors import KernelError
from tile_oracle.kernel import TiledKernel, parse_kernel_name
from tools.ck_tile_waits import OF_EACH, VERSIONS, Bench, Chosen, Outcome, choices, table

PIPELINES = {
    "ck-newer": {
        "gemm": {"basic_v1", "mem", "compv3", "compv4", "compv5", "compv6", "comp_async"},
        "forward": {"basic_v1", "mem", "compv3", "compv4"},
        "bwd_data": {"mem", "compv3"},
        "bwd_weight": {"mem", "compv3", "compv4"},
    },
    "ck": {
        "gemm": {"basic_v1", "mem", "compv3", "compv4", "compv5"},
        "forward": {"basic_v1", "mem", "compv3", "compv4"},
        "bwd_weight": {"basic_v1", "mem", "compv3", "compv4"},
    },
    "ck-older": {"gemm": {"basic_v1"}},
}
"""Folder of headers -> operation -> the pipelines that it builds."""


@pytest.mark.parametrize("folder", VERSIONS)
def test_two_kernels_of_every_pipeline_are_chosen(headers: Path, folder: str) -> None:
    chosen = list(choices(detect(find_headers(headers / folder)), folder))
    counted = Counter((one.operation, one.pipeline) for one in chosen)
    expected = {(op, pipeline) for op, pipelines in PIPELINES[folder].items() for pipeline in pipelines}
    assert set(counted) == expected
    assert set(counted.values()) == {OF_EACH}
    schedules = {one.kernel.scheduler for one in chosen if one.pipeline == "mem"}
    assert folder == "ck-older" or schedules == {"interwave", "intrawave"}
    assert len(table([Outcome(one, rules={}) for one in chosen])) == 2 + len(chosen) // OF_EACH


def test_compv5_needs_an_epilogue_that_is_told_its_waves(headers: Path) -> None:
    """That of November 2025 counts those along m and n, one group of the two, and does not compile."""
    name = "gemm_bf16_rcr_compv5_cshuffle_intrawave_False_False_False_False_64x64x64_1x1x2_32x32x16"
    kernel = parse_kernel_name(name)
    assert source_for(detect(find_headers(headers / "ck")), kernel)
    newer = detect(find_headers(headers / "ck-newer"))
    with pytest.raises(KernelError, match="CShuffleEpilogueProblem has no parameter for blocksize"):
        source_for(newer, kernel)
    assert source_for(newer, parse_kernel_name(name.replace("cshuffle", "default")))


def test_what_is_found_in_comp_async_and_what_not(headers: Path, tmp_path: Path) -> None:
    bench = Bench(headers, "ck-newer", tmp_path)
    for epilogue, rules in (("cshuffle", {"async-write"}), ("default", set())):
        name = (
            f"gemm_bf16_rcr_comp_async_{epilogue}_intrawave_False_False_False_False_64x32x64_2x2x1_16x16x32"
        )
        kernel = cast(TiledKernel, parse_kernel_name(name))
        outcome = bench.verify(Chosen("ck-newer", "gemm", "comp_async", kernel))
        assert outcome.rules is not None, outcome.why_not
        assert set(outcome.rules) == rules
        assert outcome.why_not == "s_swappc_b64 is not followed", "assertions, which count as waits"
