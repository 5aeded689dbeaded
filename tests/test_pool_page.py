"""docs/pool.md shows what its command prints."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from harness.build.gpu_toolchain import find_gpu_toolchain
from harness.cli import main

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "pool.md").read_text()


def test_the_table_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Sixty kernels, compiled now unless the user's cache has them."""
    compiler = find_gpu_toolchain("ziglang", "gfx950").identity
    if f"compiled with {compiler}:" not in PAGE:
        pytest.skip(f"the page was made with another compiler than {compiler}")
    shown = PAGE.split("```sh\n")[1].split("```")[0].replace("\\\n", " ")
    program, *words = shlex.split(shown)
    assert program == "tile-oracle"
    assert main(words) == 0
    printed = capsys.readouterr().out.strip()
    assert printed.startswith("| tile | waves | warp tile | pipeline |")
    table = PAGE[PAGE.index("| tile |") :].split("\n\n")[0]
    assert table == printed, "write what the command of docs/pool.md prints into the page"
