"""nvMatmulHeuristics as a picker of Triton kernels."""

from __future__ import annotations

import importlib.util

import pytest

from tile_oracle.errors import ModelError
from tile_oracle.kernel import NamedKernel
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.pickers import nvmatmul
from tile_oracle.pickers.picker import Configuration, nearest

PROBLEM = GemmProblem("bf16", "rcr", 64, 6400, 1600)


def kernels(function: str) -> tuple[NamedKernel, ...]:
    return tuple(
        NamedKernel(PROBLEM.kind, "triton", function, (("BLOCK_M", m), ("BLOCK_N", n), ("BLOCK_K", 64)))
        for m in (16, 64, 128)
        for n in (64, 128)
    )


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'tile-oracle\[nvmatmul\]'"):
        nvmatmul.picker("sm_90")


class TestWithThePackage:
    pytest.importorskip("nvMatmulHeuristics")

    def test_its_choices_are_tiles_of_the_functions_that_have_them(self) -> None:
        picker = nvmatmul.picker("sm_90")
        pool = (*kernels("persistent"), *kernels("tiles"))
        choices = picker.pick(PROBLEM, pool)
        assert choices
        assert all(isinstance(choice, Configuration) for choice in choices)
        assert set(choices[0].values) == {"tile_m", "tile_n", "tile_k", "split_k", "warps", "stages"}
        found = nearest(choices[0], pool)
        assert getattr(found[0], "function", "") == "tiles"
        assert "target TRITON" in picker.identity
        assert "H200_SXM" in picker.identity
        assert nearest(picker.pick(PROBLEM, kernels("mine"))[0], kernels("mine")) is not None

    def test_few_rows_get_a_flat_tile(self) -> None:
        few = nvmatmul.picker("sm_90").pick(GemmProblem("bf16", "rcr", 4, 7168, 2560), ())
        many = nvmatmul.picker("sm_90").pick(GemmProblem("bf16", "rcr", 4096, 4096, 4096), ())
        assert few[0].values["tile_m"] == 16
        assert many[0].values["tile_m"] in (128, 256)

    def test_it_has_no_answer_for_what_it_does_not_know(self) -> None:
        assert nvmatmul.picker("sm_90").pick(GemmProblem("fp8", "rcr", 64, 64, 64), ()) == ()

    def test_a_gpu_that_it_does_not_know_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(ModelError, match="knows no GPU 'gfx950': set TILE_ORACLE_NVMATMUL_GPU to one of"):
            nvmatmul.picker("gfx950")
        monkeypatch.setenv("TILE_ORACLE_NVMATMUL_GPU", "H100_SXM")
        assert "H100_SXM" in nvmatmul.picker("gfx950").identity
