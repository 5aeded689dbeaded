"""benchmarks/gpu: what it computes from records, and the kit for a machine with a GPU."""

from __future__ import annotations

import math
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks.gpu import alternatives, make_kit, run
from benchmarks.gpu.figures import agreement, best_over_median, geometric_mean, numerics, oracles, throughput
from tests.report.records_factory import frame, record, some_kernels, some_problems
from tile_oracle.arch import load_arch
from tile_oracle.compiling.toolchain import zig_folder
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem_set import load_problem_sets

ROOT = Path(__file__).resolve().parents[2]
GPU = ROOT / "benchmarks" / "gpu"
PROBLEMS = some_problems(2)
A, B, C = some_kernels(3, PROBLEMS[0])


def test_numerics_find_results_that_are_neither_correct_nor_refused() -> None:
    one, two = PROBLEMS
    rows = [
        record(one, A),
        record(one, A, status="wrong", detail="1 of 9", round=1),
        record(one, B, status="unsupported", detail="the rules say so"),
        record(two, B, status="noisy"),
        record(one, C, status="unsupported"),
    ]
    found = numerics(frame(rows))
    assert (found.pairs, found.kernels) == (4, 3)
    assert [(status, kernel) for status, kernel, _, _ in found.bad] == [
        ("wrong", A.name),
        ("unsupported", C.name),
    ]
    assert found.never_ran == (C.name,)
    assert numerics(frame([record(one, A)])).bad == ()


def test_throughput_is_of_the_wall() -> None:
    rows = [record(PROBLEMS[0], kernel, minute=i) | {"busy_ms": 6000.0} for i, kernel in enumerate((A, B))]
    rows.append(record(PROBLEMS[0], A, minute=2, round=1) | {"busy_ms": 3000.0})
    found = throughput(frame(rows), 150.0)
    assert found.busy_s == 15.0
    assert found.busy_share == pytest.approx(0.1)
    assert found.recording_busy_share == pytest.approx(15 / 120)
    assert found.pairs_per_s == pytest.approx(2 / 150)


def test_agreement_and_choice() -> None:
    def run_of(*tflops: float):  # type: ignore[no-untyped-def]
        rows = [record(p, A, best) for p, best in zip(PROBLEMS, tflops, strict=True)]
        rows += [record(p, B, best / 4) for p, best in zip(PROBLEMS, tflops, strict=True)]
        return oracles(frame([*rows, *(record(p, C, 0.5) for p in PROBLEMS)]))

    one = run_of(100.0, 8.0)
    assert agreement(one, run_of(101.0, 8.4)).share == 0.5
    assert agreement(one, run_of(101.0, 8.4)).worst_percent == pytest.approx(5.0)
    assert agreement(one, one.iloc[:0]).problems == 0
    assert best_over_median(one) == pytest.approx(4.0)
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert math.isnan(geometric_mean([]))


def test_the_awkward_set_has_every_awkward_thing() -> None:
    problems = load_problem_sets(str(GPU / "awkward.csv")).problems
    for direction in DIRECTIONS:
        of_one = [p for p in problems if p.direction == direction]  # type: ignore[union-attr]
        assert {1, 3, 7, 443} <= {p.C for p in of_one}  # type: ignore[union-attr]
        assert any(p.G == p.C == p.K > 1 for p in of_one)  # type: ignore[union-attr]
        assert 3 in {p.G for p in of_one}  # type: ignore[union-attr]
        assert any(3 in p.stride for p in of_one)  # type: ignore[union-attr]
        assert any(4 in p.dilation for p in of_one)  # type: ignore[union-attr]
        assert any(len(set(p.filter)) > 1 for p in of_one)  # type: ignore[union-attr]
        assert any(set(p.input_spatial) == {1} for p in of_one)  # type: ignore[union-attr]
    assert len(problems) >= 40
    large = load_problem_sets(str(GPU / "large.csv")).problems
    assert {p.direction for p in large} == set(DIRECTIONS)  # type: ignore[union-attr]
    assert all(p.bytes > 2 * 2**31 for p in large)


@pytest.mark.parametrize("arch", ["gfx950", "sm_90"])
def test_every_kernel_can_run_some_awkward_problem(arch: str) -> None:
    """Otherwise the benchmark could not tell whether the result is correct."""
    problems = load_problem_sets(str(GPU / "awkward.csv")).problems
    judge = load_arch(arch)
    for kind in {problem.kind for problem in problems}:
        of_kind = [problem for problem in problems if problem.kind == kind]
        for kernel in pool_of_kind(kind, arch):
            assert any(judge.problem_refusal(kernel, problem) is None for problem in of_kind), kernel.name


def test_a_kit_is_unpacked_once(tmp_path: Path) -> None:
    (tmp_path / "made" / "inner").mkdir(parents=True)
    (tmp_path / "made" / "inner" / "file").write_text("one")
    archive = tmp_path / "made.tar.xz"
    make_kit.pack(tmp_path / "made", archive)
    with tarfile.open(archive) as tar:
        assert tar.getnames() == ["inner/file"]
    run.unpack(archive, tmp_path / "there")
    file = tmp_path / "there" / "inner" / "file"
    assert file.read_text() == "one"
    file.write_text("kept")
    run.unpack(archive, tmp_path / "there")
    assert file.read_text() == "kept"


def test_an_empty_archive_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    with pytest.raises(SystemExit, match=r"nothing in .*made to pack"):
        make_kit.pack(tmp_path / "made", tmp_path / "made.tar.xz")


@pytest.mark.slow
@pytest.mark.skipif(zig_folder() is None, reason="needs the ziglang wheel")
def test_a_kit_for_a_gpu_has_the_kernels_that_misbehave_too(tmp_path: Path) -> None:
    """In a folder named as by `make gpu-kit`: relative to the current folder."""
    command = [sys.executable, str(GPU / "make_kit.py"), "kit", "--arch", "sm_90", "--no-packages"]
    command += ["--direction=forward", "--ndim=2", "--dtype=bf16", "--build-dir", str(tmp_path / "cache")]
    command.append("--kernel-filter=tile_m == 16 and tile_k == 64 and vector_a == 8 and pipeline == 'mem'")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / "kit" / "evil.tar.xz") as tar:
        assert "manifest.json" in tar.getnames()
        assert sum(name.startswith("binaries/") for name in tar.getnames()) > 10


@pytest.mark.parametrize(
    ("steps", "said"), [(["speeed"], "'speeed' is not one of numerics, speed"), ([], "holds no kit.json")]
)
def test_steps_that_cannot_run_are_reported(steps: list[str], said: str, tmp_path: Path) -> None:
    command = [sys.executable, str(GPU / "run.py"), str(tmp_path), *steps]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.slow
def test_a_step_runs_from_a_kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run on the CPU, with one kernel set and one direction, of what a GPU machine runs in full."""
    kit = tmp_path / "kit"
    command = [sys.executable, str(GPU / "make_kit.py"), str(kit), "--arch", "cpu", "--no-packages"]
    command += [
        "--direction",
        "forward",
        "--ndim",
        "2",
        "--dtype",
        "bf16",
        "--build-dir",
        str(tmp_path / "cache"),
    ]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    monkeypatch.setitem(run.STEPS, "numerics", [*run.STEPS["numerics"], "-k", "forward-2 and not fp16"])
    monkeypatch.setattr(sys, "argv", ["run.py", str(kit), "numerics"])
    assert run.main() == 0
    assert '"pairs": 16' in (tmp_path / "out" / "figures.json").read_text()


def test_alternatives_are_compared_with_our_pick_where_both_have_a_time() -> None:
    rows = [
        {"problem": "a", alternatives.PICK: 2.0, "leader 0": 1.0, alternatives.EAGER: 4.0},
        {"problem": "b", alternatives.PICK: 2.0, "leader 0": 4.0, alternatives.EAGER: 1.0},
        {"problem": "c", alternatives.PICK: 2.0, "leader 0": 2.0},
    ]
    found = alternatives.summary(alternatives.with_best(rows), {}, frame([])["latency_ms"])
    assert found["problems"].tolist() == [3, 3, 2]
    assert found.set_index("contender")["time"].to_dict() == {
        alternatives.PICK: 1.0,
        alternatives.BEST: pytest.approx(0.5 ** (1 / 3), abs=1e-3),
        alternatives.EAGER: 1.0,
    }
    assert found["faster"].tolist() == [0.0, pytest.approx(33.3), 50.0]


def test_a_longer_sample_begins_with_the_shorter_one() -> None:
    longer = alternatives.sample("forward_smoke", 8, 1)
    assert alternatives.sample("forward_smoke", 3, 1) == longer[:3]
    assert all(problem.ndim == 2 for problem in longer)
