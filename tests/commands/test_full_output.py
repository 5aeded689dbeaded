"""A stdout that takes no more text ends a command with one line, whatever it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm_python import run_warm
from tile_oracle.commands.table import called_today, named_command

COMMANDS = (
    *("doctor", "doctor --json", "problems", "kernels --arch cpu --list", "portfolio --help", "--version"),
    "pick forward-bf16-n1-c64-k64-i56x56-f3x3-p1 --arch gfx950 --engine python",
)


def ended(command: str, folder: Path, buffered: bool, shell: str) -> subprocess.CompletedProcess[str]:
    line = f"{sys.executable} -m tile_oracle.cli {command} {shell}"
    environment = {
        **os.environ,
        "PYTHONUNBUFFERED": "" if buffered else "1",
        "TILE_ORACLE_CACHE": str(folder),
    }
    return subprocess.run(
        ["sh", "-c", line],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


FULL = """
import io, os, runpy, sys
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
file = io.FileIO(1, "w", closefd=False)
buffered = sys.argv.pop(1) == "buffered"
stdout = io.TextIOWrapper(io.BufferedWriter(file) if buffered else file, "utf-8", write_through=not buffered)
sys.stdout = sys.__stdout__ = stdout
runpy.run_module("tile_oracle.cli", run_name="__main__", alter_sys=True)
"""
"""A process whose stdout takes nothing, begun without the imports that a warm one has."""


def check(command: str, done: subprocess.CompletedProcess[str]) -> None:
    named = named_command(called_today(command.split()))
    name = f"tile-oracle {named.name}" if named else "tile-oracle"
    told = [line for line in done.stderr.splitlines() if "standard output" in line]
    assert told == [f"{name}: standard output cannot be written: No space left on device"], done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2


def test_a_full_stdout_gets_one_line(tmp_path: Path) -> None:
    check("problems gemm_smoke --json", ended("problems gemm_smoke --json", tmp_path, True, ">/dev/full"))


@pytest.mark.slow
@pytest.mark.parametrize("buffering", ["buffered", "unbuffered"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_stdout_gets_one_line_from_every_command(command: str, buffering: str, tmp_path: Path) -> None:
    (tmp_path / "full.py").write_text(FULL)
    environment = {**os.environ, "TILE_ORACLE_CACHE": str(tmp_path)}
    words = [buffering, *command.split()]
    check(command, run_warm("full", words, cwd=tmp_path, env=environment, timeout_s=300))


@pytest.mark.parametrize("shell", [">&-", ">/dev/full 2>&1"])
def test_there_is_never_a_traceback(shell: str, tmp_path: Path) -> None:
    assert "Traceback" not in ended("problems gemm_smoke", tmp_path, True, shell).stderr
