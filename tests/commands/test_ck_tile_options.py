"""--ck-tile in the commands and the session's options. The CK Tile is the double of tests/compiling."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tile_oracle.cli import main
from tile_oracle.commands import doctor
from tile_oracle.pickers.of_records import no_picker
from tile_oracle.problem_set import load_problem_sets
from tile_oracle.session.kernels_option import GivenKernels
from tile_oracle.session.models import ModelChoice, baseline_file
from tile_oracle.session.options import SessionOptions

DOUBLE = Path(__file__).parents[1] / "compiling" / "ck_tile_double"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No ROCm, and no stored headers for the wheel."""
    monkeypatch.setenv("TILE_ORACLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TILE_ORACLE_HIP_HEADERS", raising=False)
    monkeypatch.setattr(doctor.gpu_toolchain, "rocm_folders", lambda: (tmp_path / "rocm",))
    monkeypatch.setattr("tile_oracle.compiling.ck_tile.toolchain._hipcc", lambda: None)


def test_doctor_shows_what_was_detected(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--ck-tile", str(DOUBLE)])
    shown = capsys.readouterr().out
    section = shown.split(f"CK Tile in {DOUBLE}:")[1].split("\n\n")[0]
    assert re.search(r"ok +headers: CK Tile \(headers [0-9a-f]{12}\), \d+ files", section)
    assert re.search(r"ok +bwd_data: kernels can be made, 20 of the 150 in the default pool", section)
    assert "compv3 (one schedule)" in section
    assert re.search(
        r"note +bwd_data lacks 20: pipeline compv6 is not in this CK Tile: it has no Gemm", section
    )
    assert re.search(
        r"ok +gemm: kernels can be made, \d+ of the 456 in the default pool \(bf16 rcr\)", section
    )
    assert "missing compiler: no compiler for CK Tile was found: no hipcc" in section
    assert "run .ci/ck_tile_headers.py" in section


def test_doctor_warns_of_a_hipcc_that_loses_waits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hipcc = tmp_path / "hipcc"
    monkeypatch.setattr("tile_oracle.compiling.ck_tile.toolchain._hipcc", lambda: str(hipcc))
    for clang, warned in (("20.0.0git", True), ("23.0.0git", False)):
        hipcc = tmp_path / clang / "hipcc"
        hipcc.parent.mkdir()
        hipcc.write_text(f"#!/bin/sh\necho HIP version: 7.0.51831\necho AMD clang version {clang} x\n")
        hipcc.chmod(0o755)
        main(["doctor", "--ck-tile", str(DOUBLE)])
        section = capsys.readouterr().out.split(f"CK Tile in {DOUBLE}:")[1].split("\n\n")[0]
        assert "ok      compiler: hipcc 7.0.51831, CK Tile" in section
        assert (f"--ck-tile {DOUBLE} --verify" in section) == warned


def test_doctor_looks_into_rocm_by_itself(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["doctor"])
    assert "CK Tile in" not in capsys.readouterr().out
    shutil.copytree(DOUBLE / "include", tmp_path / "rocm" / "include")
    main(["doctor"])
    assert f"CK Tile in {tmp_path / 'rocm'}:" in capsys.readouterr().out


def test_doctor_reports_a_folder_without_ck_tile(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["doctor", "--ck-tile", str(tmp_path)])
    assert "missing headers: --ck-tile" in capsys.readouterr().out


def test_build_names_its_architecture_and_a_missing_compiler(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["build", "-o", str(tmp_path / "out"), "--ck-tile", str(DOUBLE)]) == 2
    assert "give --arch gfx950, or leave --ck-tile out" in capsys.readouterr().err
    out = str(tmp_path / "out")
    assert main(["build", "-o", out, "--arch", "gfx950", "--ck-tile", str(DOUBLE)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "HIP's headers in" in said


@pytest.fixture
def options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_command_line: Callable[..., SessionOptions]
) -> SessionOptions:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    return read_command_line("--problem-set=forward_smoke", "--ck-tile=some/ck")


def test_a_folder_is_relative_to_the_shell_and_has_baselines_of_its_own(
    options: SessionOptions, tmp_path: Path
) -> None:
    assert options.ck_tile == tmp_path / "some" / "ck"
    (part,) = load_problem_sets("forward_smoke").parts or (load_problem_sets("forward_smoke"),)
    choice = ModelChoice(no_picker("m", ""))
    theirs = baseline_file(choice, part, "MI355X", options)
    ours = baseline_file(choice, part, "MI355X", replace(options, ck_tile=None, kernels=GivenKernels()))
    assert theirs != ours
