"""--target NAME, and what the target `cpu` knows without touching a device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.pools import kernel_pool
from tests.targets.conftest import Resolve
from tile_oracle.arch.arch import Arch
from tile_oracle.compiling.triton.kernel_source import open_triton
from tile_oracle.errors import BuildError, DeviceMissingError, TargetError
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.targets import TargetOptions, gpu_presence, resolve_target

PROBLEM = GroupedConvProblem("forward", "bf16", 2, 1, 16, 16, 1, 8, 8, 3, 3)


@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_the_cpu_is_found(name: str, resolve: Resolve) -> None:
    target, why = resolve(name)
    assert (target.name, target.arch) == ("cpu", "cpu")
    assert bool(why) == (name == "auto"), "what was asked for needs no reason"
    kernel = kernel_pool("forward", "bf16", 2, arch="cpu", rules="tiny")[0]
    assert target.refusal(kernel, PROBLEM) is None
    assert len(target.source_identity()) == 64


@pytest.mark.parametrize("name", ["gfx950", "sm_90"])
def test_kernels_for_a_gpu_elsewhere_are_built_without_one(
    name: str, options: TargetOptions, resolve: Resolve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for place in ("KFD", "_DEV", "_KFD_NODES"):
        monkeypatch.setattr(gpu_presence, place, tmp_path / "none")
    with pytest.raises(DeviceMissingError, match="cannot run here"):
        resolve(name)
    assert resolve(name, replace(options, elsewhere=True))[0].arch == name


@pytest.mark.parametrize("name", ["", "gpu", "CPU", "../cpu", "cpu "])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str, resolve: Resolve) -> None:
    with pytest.raises(TargetError, match=r"is not one of auto, gfx950, gfx942, gfx90a, sm_90, cpu"):
        resolve(name)


@pytest.mark.parametrize("name", ["sm_86", "sm_89", "sm_100", "sm_120"])
def test_what_only_compiles_kernels_in_triton_says_so(name: str, resolve: Resolve) -> None:
    with pytest.raises(
        BuildError, match=f"kernels in Triton: tile-oracle pool list --kernels FILE.py --arch {name}"
    ):
        resolve(name)
    with pytest.raises(BuildError, match="the kernels that ship are for gfx950, gfx942, gfx90a, sm_90, not"):
        open_triton(name, "")


def test_a_file_of_kernels_that_is_not_there_is_no_missing_device(
    options: TargetOptions, resolve: Resolve, tmp_path: Path
) -> None:
    sources = (f"triton={tmp_path / 'typo.py'}",)
    with pytest.raises(BuildError, match=r"typo\.py: there is no such Python file"):
        resolve("auto", replace(options, sources=sources))


def test_ck_tile_is_for_its_own_gpus(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="--kernels ck_tile is for --target gfx950 or gfx942 or gfx90a"):
        resolve_target("cpu", TargetOptions(sources=(f"ck_tile={tmp_path}",)))
    with pytest.raises(BuildError, match="holds no CK Tile"):
        resolve_target("auto", TargetOptions(sources=(f"ck_tile={tmp_path}",)))


def test_options_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="toolchain 'no-such-compiler' is not a program"):
        resolve_target("cpu", TargetOptions(toolchain="no-such-compiler", build_dir=tmp_path))


def test_a_kernel_that_this_arch_lacks_is_refused_with_a_reason(resolve: Resolve) -> None:
    foreign = GroupedConvKernel("forward", "bf16", 2, 64, 64, 64, 1, 1, 1, 4, 16, 1, pipeline="preshufflev2")
    assert "preshufflev2" in (resolve("cpu")[0].refusal(foreign, PROBLEM) or "")


def test_a_refusal_is_found_once(resolve: Resolve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds and devices ask about every pair of a session."""
    kernel, asked = kernel_pool("forward", "bf16", 2, arch="cpu", rules="tiny")[0], list[str]()

    def count(name: str) -> None:
        find = getattr(Arch, name)
        monkeypatch.setattr(Arch, name, lambda *of: asked.append(name) or find(*of))

    count("refusal")
    count("problem_refusal")
    target = resolve("cpu")[0]
    for problem in (PROBLEM, PROBLEM, replace(PROBLEM, N=2)):
        assert target.refusal(kernel, problem) is None
    assert asked == ["refusal", "problem_refusal", "problem_refusal"]


def test_the_limit_grows_with_the_work(resolve: Resolve) -> None:
    target, _ = resolve("cpu")
    large = GroupedConvProblem("forward", "bf16", 2, 64, 256, 256, 1, 56, 56, 3, 3)
    slowest_flops_per_s = 0.5e9
    assert target.timeout_s(large) > 6 * large.flops / slowest_flops_per_s
    assert target.timeout_s(PROBLEM) < 60
