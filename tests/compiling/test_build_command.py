from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import cast

import pytest

from tests.pools import kernel_pool
from tile_oracle.commands import build
from tile_oracle.commands.kinds import KINDS, own_kernels
from tile_oracle.compiling import native
from tile_oracle.compiling.kernel_source import KernelSource
from tile_oracle.compiling.prebuild import Progress
from tile_oracle.compiling.source import read_headers
from tile_oracle.errors import BuildError, HarnessError, RuleError
from tile_oracle.kernel import Kernel
from tile_oracle.kernel.named import NamedKernel
from tile_oracle.operation import operation_named, operation_names
from tile_oracle.problem import Kind
from tile_oracle.terminal.argument_table import add_arguments, argument_table


@pytest.fixture(autouse=True)
def quick_kernels(monkeypatch: pytest.MonkeyPatch, include: Path, tmp_path: Path) -> None:
    """The pool is the shipped one; its kernels are quick to compile."""
    monkeypatch.setattr(native, "headers_for", lambda arch: read_headers(include))
    monkeypatch.setenv("TILE_ORACLE_CACHE", str(tmp_path / "cache"))


def tile_oracle_build(*words: object) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser, build.ARGUMENTS)
    return build.run(parser.parse_args([str(word) for word in words]))


def names_in(folder: Path) -> list[str]:
    return list(json.loads((folder / "manifest.json").read_text())["kernels"])


def test_a_pool_becomes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tile_oracle_build("-o", tmp_path / "made", "--kernel-set", "tiny") == 0
    pool = kernel_pool("forward", "bf16", 2, "cpu", "tiny")
    assert names_in(tmp_path / "made") == sorted(kernel.name for kernel in pool)
    out = capsys.readouterr().out
    assert f"{len(pool)} kernels built ({len(pool)} compiled, 0 from the cache), 0 failed" in out
    assert f"made: {len(pool)} kernels; use it with --build-dir" in out


def test_kinds_come_from_words_or_from_problem_sets(tmp_path: Path) -> None:
    two = ("--direction", "forward, bwd_data", "--dtype", "fp32", "--ndim", "2,3")
    two = (*two, "--kernel-filter", "pipeline == 'compv3' and tile_m == 16")
    assert tile_oracle_build("-o", tmp_path / "a", "--kernel-set", "tiny", *two) == 0
    kinds = {tuple(name.split("_fp32_")[0].split("conv_")[1:]) for name in names_in(tmp_path / "a")}
    assert kinds == {("forward",), ("bwd_data",)}
    assert {name.split("_fp32_")[1][:2] for name in names_in(tmp_path / "a")} == {"2d", "3d"}
    assert all("_16x" in name and "_compv3_" in name for name in names_in(tmp_path / "a"))
    (tmp_path / "mine.csv").write_text(
        "# mine\ndirection,dtype,ndim,N,C,K,Hi,Wi,Y,X\nbwd_weight,fp16,2,1,8,8,8,8,1,1\n"
    )
    wanted = ("--kernel-set", "tiny", "--problem-set", tmp_path / "mine.csv")
    assert tile_oracle_build("-o", tmp_path / "b", *wanted) == 0
    assert names_in(tmp_path / "b")
    assert all("_bwd_weight_fp16_2d_" in name for name in names_in(tmp_path / "b"))


def test_compile_failures_are_listed_and_give_status_1(
    tmp_path: Path, include: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = include / "grouped_conv.hpp"
    headers.write_text(
        "#define TO_PACK_AB 7\n#if TO_PIPELINE == 7\n#error no packing today\n#endif\n" + headers.read_text()
    )
    assert tile_oracle_build("-o", tmp_path / "made", "--kernel-set", "tiny") == 1
    out = capsys.readouterr().out
    failed = [
        kernel for kernel in kernel_pool("forward", "bf16", 2, "cpu", "tiny") if kernel.pipeline == "compv3"
    ]
    assert failed
    for kernel in failed:
        assert f"{kernel.name}: build_error\n" in out
        assert kernel.name not in names_in(tmp_path / "made")
    assert out.count("no packing today") >= len(failed)
    assert f"{len(failed)} failed" in out


@pytest.mark.parametrize(
    ("words", "error", "says"),
    [
        (("--direction", "sideways"), RuleError, "--direction 'sideways' is not one of forward"),
        (("--dtype", "bf16,int4"), RuleError, "'int4'"),
        (("--ndim", "4"), RuleError, "--ndim '4'"),
        (("--problem-set", "forward_smoke", "--ndim", "2"), BuildError, "not both"),
        (("--problem-set", "gemm_smoke", "--op", "gemm"), BuildError, "not both"),
        (("--op", "gemm", "--direction", "forward"), RuleError, "--direction is not for --op gemm"),
        (("--layout", "rcr"), RuleError, "--layout is not for --op grouped_conv"),
        (("--op", "gemm", "--layout", "rrc"), RuleError, "--layout 'rrc' is not one of rcr"),
        (("--jobs", "0"), BuildError, "jobs = 0"),
        (("--isa", "pentium"), BuildError, "'pentium' is not known"),
        (("--toolchain", "no-such-compiler"), BuildError, "not a program"),
        (("--kernel-filter", "tile_m > 100000"), BuildError, "no kernel to build"),
        (("--kernel-filter", "tile_m >"), RuleError, "tile_m >"),
        (("--kernel-set", "no such set"), RuleError, "no such set"),
        (("--problem-set", "no_such_set"), HarnessError, "no_such_set"),
        (("--arch", "z80"), HarnessError, "z80"),
    ],
)
def test_invalid_requests_give_one_line(
    tmp_path: Path, words: tuple[str, ...], error: type[HarnessError], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        tile_oracle_build("-o", tmp_path / "made", *words)
    assert "\n" not in str(caught.value)


def test_progress_shows_counts_rate_and_a_time_left_that_does_not_grow() -> None:
    assert (
        build.describe_progress(Progress(30, 90, 2, 10.0))
        == "built 30/90, 2 failed, 3.0 kernels/s, 0:20 left"
    )
    assert build.describe_progress(Progress(0, 90, 0, 0.0)) == "built 0/90, 0.0 kernels/s"
    assert (
        build.describe_progress(Progress(50, 90, 0, 20.0, cached=40))
        == "built 50/90, 40 from the cache, 0.5 kernels/s, 1:20 left"
    )
    assert build.describe_progress(Progress(90, 90, 0, 1.0, cached=90)) == "built 90/90, 90 from the cache"
    assert build.describe_progress(Progress(90, 90, 0, 45.0)) == "built 90/90, 2.0 kernels/s"
    left = [Progress(2, 6, 0, elapsed_s, last_s=10.0).left_s for elapsed_s in (10.0, 15.0, 30.0, 60.0)]
    assert left == [20.0, 15.0, 0.0, 0.0]


def test_a_source_with_kernels_of_its_own_has_those_of_the_asked_operation() -> None:
    """Without further words, too: else all operations' kernels in Triton were compiled for one."""

    class Source:
        kinds = (*operation_named("gemm").kinds({}), *operation_named("softmax").kinds({}))

        def pool(self, kind: Kind, kernel_set: str) -> list[Kernel]:
            return [NamedKernel(kind, "triton", "one")]

    parser = argparse.ArgumentParser()
    add_arguments(parser, argument_table(KINDS, op=operation_names()))
    for op in ("gemm", "softmax", None):
        args = parser.parse_args([] if op is None else ["--op", op])
        args.kernel_set, args.kernels, args.problem_set = "default", "triton", None
        found = own_kernels(cast(KernelSource, Source()), args, None)
        kinds = {kernel.kind for kernel in found}
        assert kinds == {kind for kind in Source.kinds if op in (None, kind.op)}


def test_a_large_build_says_first_how_long_it_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_LARGE", 7)
    monkeypatch.setattr(build, "_LEAST_LOOKED_AT", 3)
    words = ("--kernel-set", "tiny", "--jobs", 1)
    assert tile_oracle_build("-o", tmp_path / "made", *words) == 0
    first, then, *_ = capsys.readouterr().err.splitlines()
    assert first == "8 kernels to compile: 3 of them first, to see how long they take"
    assert re.fullmatch(
        r"this will take about 0:\d\d to 0:\d\d with 1 compiler at once; --problem-set SETS builds what .*",
        then,
    )
    assert len(names_in(tmp_path / "made")) == 8
    assert tile_oracle_build("-o", tmp_path / "again", *words) == 0
    assert "this will take" not in capsys.readouterr().err, "all are in the cache"
