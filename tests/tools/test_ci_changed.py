"""What takes minutes runs again when a file that it depends on has changed, and only then."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "changed.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "a.cpp").write_text("a")
    (tmp_path / "other.txt").write_text("b")
    (tmp_path / ".gitignore").write_text("*.o\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "add", "."], check=True)
    return tmp_path


def ran(
    project: Path, *, always: bool = False, fails: bool = False, paths: tuple[str, ...] = ("kernels",)
) -> bool:
    """Whether the command ran; it leaves a line in ran.txt."""
    log = project / "ran.txt"
    before = log.read_text() if log.exists() else ""
    command = f"echo line >> ran.txt; exit {int(fails)}"
    started = [
        sys.executable,
        ".ci/changed.py",
        *["--all"] * always,
        "pool",
        *paths,
        "--",
        "sh",
        "-c",
        command,
    ]
    done = subprocess.run(started, cwd=project, check=False, capture_output=True, text=True)
    assert done.returncode == int(fails), done.stderr
    return log.exists() and log.read_text() != before


def test_it_runs_once_for_the_same_files(project: Path) -> None:
    assert ran(project)
    assert not ran(project)
    assert ran(project, always=True)


@pytest.mark.parametrize("name", ["kernels/a.cpp", "kernels/new.cpp"])
def test_a_changed_or_new_file_makes_it_run(project: Path, name: str) -> None:
    ran(project)
    (project / name).write_text("changed")
    assert ran(project)
    assert not ran(project)


def test_a_file_that_goes_or_moves_makes_it_run(project: Path) -> None:
    ran(project)
    (project / "kernels" / "a.cpp").rename(project / "kernels" / "b.cpp")
    assert ran(project)


@pytest.mark.parametrize("name", ["other.txt", "kernels/made.o"])
def test_other_and_ignored_files_do_not(project: Path, name: str) -> None:
    ran(project)
    (project / name).write_text("changed")
    assert not ran(project)


def test_a_file_that_is_left_out_does_not_make_it_run(project: Path) -> None:
    (project / "kernels" / "cpu").mkdir()
    (project / "kernels" / "cpu" / "c.cpp").write_text("c")
    paths = ("kernels", ":!kernels/*/c.cpp")
    assert ran(project, paths=paths)
    (project / "kernels" / "cpu" / "c.cpp").write_text("changed")
    assert not ran(project, paths=paths)
    (project / "kernels" / "cpu" / "d.cpp").write_text("new")
    assert ran(project, paths=paths)


def test_what_code_makes_counts_and_not_the_code(project: Path) -> None:
    (project / "kernels" / "made.py").write_text("one")
    paths = ("kernels/a.cpp", "units=1")
    assert ran(project, paths=paths)
    (project / "kernels" / "made.py").write_text("two")
    assert not ran(project, paths=paths)
    assert ran(project, paths=("kernels/a.cpp", "units=2"))


def test_what_fails_runs_again(project: Path) -> None:
    assert ran(project)
    (project / "kernels" / "a.cpp").write_text("broken")
    assert ran(project, fails=True)
    assert ran(project, fails=True)
    assert ran(project)


def test_a_path_without_files_is_an_error(project: Path) -> None:
    (project / "gone" / "__pycache__").mkdir(parents=True)
    started = [sys.executable, ".ci/changed.py", "pool", "gone", "--", "true"]
    done = subprocess.run(started, cwd=project, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "there is no gone" in done.stderr
