"""docs/pool.md shows what its command prints."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tile_oracle.cli import main
from tile_oracle.compiling.gpu_toolchain import find_gpu_toolchain

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "pool.md").read_text()


def commands_and_tables() -> list[tuple[str, str]]:
    """Every command of the page with the table that follows it."""
    parts = PAGE.split("```sh\n")[1:]
    return [
        (part.split("```")[0].replace("\\\n", " "), part.split("```text\n")[1].split("```")[0].strip())
        for part in parts
    ]


@pytest.mark.parametrize(
    ("command", "rest"),
    commands_and_tables(),
    ids=[f"table {n + 1}" for n in range(len(commands_and_tables()))],
)
def test_a_table_is_what_its_command_prints(
    command: str, rest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler = find_gpu_toolchain("ziglang", "gfx950").identity
    if f"compiled with {compiler}:" not in PAGE:
        pytest.skip(f"the page was made with another compiler than {compiler}")
    program, *words = shlex.split(command)
    assert program == "tile-oracle"
    assert main(words) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.split("\n\n")[0].splitlines()]
    assert rest.splitlines() == printed, "write what the command of docs/pool.md prints into the page"
