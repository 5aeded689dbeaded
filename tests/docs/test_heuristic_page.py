"""The commands of docs/heuristic.md run, in order, and end with the stated status.

Blocks marked gfx950 need the public measurements; `status_1` is the exit status of the block's first command.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.measured_tables import gfx950_folder
from tile_oracle.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "heuristic.md"
_FENCE = re.compile(r"^```(sh|gfx950)(?:_status_(\d))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(line: str) -> int:
    """Runs one command line in this process."""
    program, *words = shlex.split(line)
    if program == "tile-oracle":
        return main(words)
    path = words[1]
    module = importlib.import_module(path)
    parser = argparse.ArgumentParser(prog=f"{program} {path}")
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(words[2:])))


def test_every_command_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path
    monkeypatch.chdir(here)
    public = gfx950_folder()
    at_hand = public is not None
    if public is not None:
        for file in public.glob("*.csv"):
            shutil.copy(file, here)
    ran = 0
    for kind, status, body in _FENCE.findall(PAGE.read_text(encoding="utf-8")):
        for number, line in enumerate(body.splitlines()):
            if kind == "sh" or at_hand:
                found = run(line)
                shown = capsys.readouterr().out
                allowed = {0} if not status else {int(status)} if number == 0 else {0, 1}
                assert found in allowed, line
                assert shown, line
                ran += 1
    assert ran >= 4
    if at_hand:
        figures = json.loads((here / "figures.json").read_text())["headlines_percent"]
        assert figures["mean"]["value"] >= 98.3
