"""The exported folder: built by the available compilers, run without Python, compared with Predictor."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.selector.made_problems import random_problems
from tests.training.test_gemm_training import make_records as make_gemm_records
from tile_oracle.cli import main
from tile_oracle.errors import ModelError
from tile_oracle.files.data_files import data_folder
from tile_oracle.model.predictor import Predictor
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import Kind, Problem, problem_from_id
from tile_oracle.selector.export import export_model, file_stem
from tile_oracle.selector.ranker import NativeSelector
from tile_oracle.selector.selector_file import NativeModel, problem_fields, selector_bytes
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train

MODEL = data_folder("models") / "grouped_conv_forward_bf16_gfx950"
FORWARD: Kind = Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2)
SELECTOR = "forward_bf16_2d.selector"


def compilers() -> dict[str, list[str]]:
    """The machine's own, else the wheel's, which compiles the same sources for all tests of NativeRanker
    and takes most of a minute to make its C++ library first."""
    found = {name: [name] for name in ("clang++", "g++") if shutil.which(name)}
    if not found and importlib.util.find_spec("ziglang"):
        found["ziglang"] = [sys.executable, "-m", "ziglang", "c++"]
    return found


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "selector"
    assert main(["export", MODEL.name, "-o", str(folder), "--kernel-set", "tiny"]) == 0
    return folder


def made(folder: Path, compiler: str, *goals: str) -> None:
    """Uses the folder's own Makefile without optimisation; the answers are the same."""
    command = " ".join(compilers()[compiler])
    done = subprocess.run(
        ["make", "-s", "-j2", "-C", str(folder), f"CXX={command}", "CXXFLAGS=-O0 -w", *goals],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def linked(folder: Path, compiler: str, to: Path, *more: str) -> Path:
    """The program of rank_lines.cpp with the folder's library, and what is put before it."""
    program = to / "rank_lines"
    done = subprocess.run(
        [*compilers()[compiler], "-std=c++20", "-O0", "-ffp-contract=off", "-w", f"-I{folder / 'include'}",
         str(Path(__file__).parent / "rank_lines.cpp"), *more,
         str(folder / "build" / "libtile_oracle_selector.a"), "-pthread", "-o", str(program)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return program


def answers(program: Path, selector: Path, problems: Sequence[Problem]) -> list[str]:
    fields = problem_fields("grouped_conv")
    lines = "".join(" ".join(str(getattr(p, name)) for name in fields) + "\n" for p in problems)
    done = subprocess.run(
        [program, selector], input=lines, capture_output=True, text=True, check=False, env={}
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "G must divide C and K, which count the channels of all groups",
        "this selector is not for GEMM",
    ]
    return done.stdout.splitlines()


needs_make = pytest.mark.skipif(
    not shutil.which("make") or not compilers(), reason="needs make and a C++ compiler"
)


@pytest.mark.slow
@needs_make
@pytest.mark.parametrize("compiler", compilers())
def test_a_separate_program_agrees_with_predictor(exported: Path, tmp_path: Path, compiler: str) -> None:
    """Built, and called by four threads at once, without Python."""
    kernels, problems = pool_of_kind(FORWARD, "gfx950", "tiny"), random_problems(FORWARD, 60, seed=4)
    folder = tmp_path / "e"
    shutil.copytree(exported, folder)
    made(folder, compiler, "build/pick")
    said = answers(linked(folder, compiler, tmp_path), folder / SELECTOR, problems)
    predictor = Predictor.load(MODEL)
    for problem, line in zip(problems, said, strict=True):
        pick, *ranked = line.split()
        expected = predictor.rank(problem, kernels)
        assert kernels[int(pick)] == expected[0][0]
        found = [word.split(":") for word in ranked]
        assert [(kernels[int(number)], float.fromhex(tflops)) for number, _, tflops in found] == expected
        times = [float.fromhex(time) for _, time, _ in found]
        assert times == sorted(times)
    if compiler == next(reversed(compilers())):
        plain = [str(folder / "src" / name) for name in ("program.cpp", "selector.cpp")]
        program = linked(folder, compiler, tmp_path, "-DTILE_ORACLE_PLAIN_LANES", *plain)
        assert answers(program, folder / SELECTOR, problems) == said  # what compilers without vectors take
    check_the_example(folder)


def check_the_example(folder: Path) -> None:
    """The command of the folder's README.md, and its messages for bad input."""
    readme = (folder / "README.md").read_text().splitlines()
    command = next(line.strip() for line in readme if line.strip().startswith("build/pick "))
    done = subprocess.run(command.split(), cwd=folder, capture_output=True, text=True, check=True)
    problem = problem_from_id("forward-bf16-n8-c64-k64-i56x56-f3x3-p1")
    kernels = pool_of_kind(FORWARD, "gfx950", "tiny")
    best = [f"{tflops:9.2f} TFLOPS  {k.name}" for k, tflops in Predictor.load(MODEL).rank(problem, kernels)]
    assert done.stdout.splitlines()[1:6] == best[:5]
    for words, message in (
        (["nowhere.selector"], "pick: nowhere.selector: cannot be read"),
        (["README.md"], "pick: README.md: not a whole selector: it does not begin as one of this version"),
        ([SELECTOR, "H=1"], "pick: H=1 is not FIELD=VALUE with a field of forward bf16 2D"),
    ):
        done = subprocess.run(["build/pick", *words], cwd=folder, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.strip()) == (2, message)


def test_the_folders_contents_and_its_replacement(records: pd.DataFrame, tmp_path: Path) -> None:
    train(records, recipe_named("log_time").with_trees(3), n_splits=2).save(tmp_path / "m")
    kernels = pool_of_kind(FORWARD, "gfx950", "tiny")
    folder = tmp_path / "out"
    first = export_model(tmp_path / "m", kernels, folder)
    assert first.kernels == {FORWARD: len(kernels)}
    assert (folder / "forward_bf16_2d.kernels.txt").read_text().split() == [k.name for k in kernels]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["selectors"]["forward_bf16_2d.selector"] == {
        "problems": "forward bf16 2D",
        "kernels": len(kernels),
    }
    again = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    export_model(tmp_path / "m", kernels, folder)
    assert {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == again
    assert str(tmp_path).encode() not in b"".join(again.values())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "out"]
    (tmp_path / "photos").mkdir()
    with pytest.raises(ModelError, match="is not an export of a model"):
        export_model(tmp_path / "m", kernels, tmp_path / "photos")
    with pytest.raises(ModelError, match="no kernels to export"):
        export_model(tmp_path / "m", [], folder)


def test_a_model_of_several_kinds_has_a_selector_for_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(make_gemm_records(), recipe_named("published").with_trees(3), n_splits=2).save(tmp_path / "m")
    assert main(["export", str(tmp_path / "m"), "-o", str(tmp_path / "o"), "--kernel-set", "tiny"]) == 0
    names = sorted(path.stem for path in (tmp_path / "o").glob("*.selector"))
    assert names == sorted(
        file_stem(Kind.of("gemm", dtype="bf16", layout=layout)) for layout in ("rcr", "rrr", "crr", "ccr")
    )
    assert "GemmProblem problem{.M = 1" in (tmp_path / "o" / "README.md").read_text()
    assert main(["export", str(tmp_path / "m"), "-o", str(tmp_path / "o"), "--kernel-set", "nothing"]) == 2
    assert "nothing" in capsys.readouterr().err


def test_damaged_files_are_refused_or_harmless() -> None:
    """Any byte may be wrong: native code refuses the file, or answers without leaving its memory."""
    data = selector_bytes(NativeModel.load(MODEL), pool_of_kind(FORWARD, "gfx950", "tiny"))
    with pytest.raises(ModelError, match="not a whole selector: it ends too early"):
        NativeSelector(data[:-10])
    with pytest.raises(ModelError, match="not a whole selector: bytes are left over"):
        NativeSelector(data + b"1234")
    with pytest.raises(ModelError, match="it does not begin as one of this version"):
        NativeSelector(b"")
    random, refused = np.random.default_rng(0), 0
    for _ in range(60):
        damaged = bytearray(data)
        damaged[int(random.integers(24, 12_000))] ^= 1 << int(random.integers(8))
        try:
            NativeSelector(bytes(damaged)).pick([8, 64, 64, 1, 56, 56, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1])
        except ModelError:
            refused += 1
    assert refused > 8


@pytest.mark.parametrize("how", [("-o", "out"), ("--check",)])
def test_two_lists_of_kernels_are_refused(how: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "export", MODEL.name, *how, "--kernel-set", "tiny", "--kernels", "names.txt"]) == 2
    assert "--kernels goes without --kernel-set" in capsys.readouterr().err
