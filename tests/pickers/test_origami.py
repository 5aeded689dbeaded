"""The picker that asks ROCm's Python module `origami`, here a double with its interface."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from typing import Any

import pytest

from tile_oracle.errors import ModelError
from tile_oracle.kernel import NamedKernel
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.pickers import origami

PROBLEM = GemmProblem("bf16", "rcr", 64, 4096, 512)


def kernel(m: int, n: int, warps: int = 4) -> NamedKernel:
    values = (("BLOCK_M", m), ("BLOCK_N", n), ("BLOCK_K", 64), ("num_warps", warps))
    return NamedKernel(PROBLEM.kind, "triton", "tiles", values)


@dataclass
class Dim:
    m: int
    n: int
    k: int


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module that prefers the tile whose M is nearest to the problem's, and has no GPU."""
    double: Any = types.ModuleType("origami")
    double.__spec__ = types.SimpleNamespace()
    double.asked = []

    def hardware(*figures: object) -> object:
        double.asked.append(figures)
        instructions = [Dim(1, 1, 64), Dim(32, 32, 16), Dim(16, 16, 32), Dim(16, 16, 16)]
        return types.SimpleNamespace(get_valid_matrix_instructions=lambda dtype: instructions)

    def no_gpu(device: int) -> object:
        raise RuntimeError("no ROCm device")

    def rank(problem: Any, hardware: object, configs: list[Any]) -> list[Any]:
        double.asked.append(problem)
        assert {(one.mi.m, one.mi.n, one.mi.k) for one in configs} == {(16, 16, 32)}
        able = [one for one in configs if one.cache_hints_b == 4 and one.mt.m < 512]  # as for few rows
        far = [(abs(one.mt.m - problem.size.m), one) for one in able]
        if not far:
            raise RuntimeError("No valid configs found.")
        return [
            types.SimpleNamespace(config=one, latency=away) for away, one in sorted(far, key=lambda x: x[0])
        ]

    double.dim3_t, double.string_to_datatype = Dim, lambda name: name
    double.problem_t = double.config_t = types.SimpleNamespace
    double.transpose_t = types.SimpleNamespace(T="T", N="N")
    double.architecture_t = types.SimpleNamespace(gfx942="gfx942")
    double.get_hardware_for_arch, double.get_hardware_for_device = hardware, no_gpu
    double.rank_configs = rank
    monkeypatch.setitem(sys.modules, "origami", double)
    return double


def test_the_pool_is_what_it_ranks(module: Any) -> None:
    picker = origami.picker("gfx942")
    pool = (kernel(128, 128), kernel(64, 64, 8), kernel(64, 64, 4))
    assert picker.pick(PROBLEM, pool) == [kernel(64, 64, 4), kernel(64, 64, 8), kernel(128, 128)]
    figures, problem = module.asked
    assert figures == ("gfx942", 304, 65536, 8 * 4 * 2**20, 2_100_000)
    assert (problem.size, problem.a_transpose, problem.b_transpose) == (Dim(64, 4096, 512), "T", "N")
    assert problem.mi_dtype == "bf16"
    assert picker.identity == "origami of unknown version, gfx942, of the architecture table"


def test_a_pool_that_it_finds_no_fit_in_has_no_choice(module: Any) -> None:
    assert origami.picker("gfx942").pick(PROBLEM, (kernel(512, 512),)) == ()


def test_what_has_no_tile_is_not_asked_about(module: Any) -> None:
    other = NamedKernel(PROBLEM.kind, "hipblaslt", "s12")
    assert origami.picker("gfx942").pick(PROBLEM, (other,)) == ()


def test_it_is_refused_without_the_module_or_an_amd_architecture(module: Any) -> None:
    with pytest.raises(ModelError, match="for AMD's architectures, not sm_90"):
        origami.picker("sm_90")
    del sys.modules["origami"]
    with pytest.raises(ModelError, match="needs ROCm's Python module origami"):
        origami.picker("gfx942")
