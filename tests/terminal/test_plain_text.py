"""Names from outside are printed as text: no terminal, viewer or CI obeys them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.errors import HarnessError
from tile_oracle.terminal.plain_text import as_text

HOSTILE = "::error::no\x1b[2J\u202e##[warning]x"
letters = st.text(
    st.sampled_from("::##[]vso\x1b\x07\x7f\x85\r\n\t \u00a0\u202e\u2066\u200b\ufeffaé-"), max_size=30
)


def obeyed(text: str) -> list[str]:
    """What of a text would be obeyed, found line by line and letter by letter."""
    lines = text.replace("\r\n", "\n").split("\n")
    commands = [line for line in lines if line.lstrip().startswith("::")]
    commands += [line for line in lines if re.search(r"##(\[|vso\[)", line)]
    letters = "".join(lines).replace("\t", "").replace("\u00a0", "")
    return [*commands, *(one for one in letters if not one.isprintable())]


@given(letters)
def test_nothing_of_it_is_obeyed(text: str) -> None:
    shown = as_text(text)
    assert obeyed(shown) == []
    assert as_text(shown) == shown


@given(letters)
def test_json_stays_the_same_document(text: str) -> None:
    document = {text: [text]}
    for as_ascii in (True, False):
        printed = json.dumps(document, ensure_ascii=as_ascii, indent=1)
        assert json.loads(as_text(printed)) == document


@pytest.mark.parametrize(
    "text", ["Größe 4×4, 日本語\tx\r\n", "a::b", "std::vector", "# title\n## [1] x", "  : x", "\n\n:"]
)
def test_harmless_text_stays(text: str) -> None:
    assert as_text(text) == text


def test_messages_of_errors_are_text() -> None:
    assert str(HarnessError(HOSTILE)) == r"\u003a:error::no\u001b[2J\u202e#\u0023[warning]x"


@pytest.fixture
def hostile_set(tmp_path: Path) -> Path:
    path = tmp_path / f"{HOSTILE}.csv"
    path.write_text(f"# {HOSTILE}\nM,N,K,{HOSTILE}\n4,4,4,{HOSTILE}\n")
    return path


@pytest.mark.parametrize("more", [(), ("--json",), ("--ids",), ("missing",)])
def test_commands_print_hostile_names_as_text(
    more: tuple[str, ...], hostile_set: Path, tmp_path: Path
) -> None:
    program = Path(sys.executable).with_name("tile-oracle")
    named = "x.csv/" + HOSTILE if "missing" in more else hostile_set
    command = [program, "problems", named, *(one for one in more if one != "missing")]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert "error" in ended.stdout + ended.stderr or "--ids" in more
    if "--json" in more:
        assert HOSTILE in json.loads(ended.stdout)[0].values()
    assert obeyed(ended.stdout + ended.stderr) == []


@pytest.mark.slow
def test_a_session_prints_a_hostile_name_as_text(hostile_set: Path, tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--problem-set={hostile_set}"),
        *("--target=cpu", "--kernel-set=tiny", "--model=none", "--allow=no-baseline"),
    ]
    summary = tmp_path / "summary.md"
    settings = os.environ | {"GITHUB_STEP_SUMMARY": str(summary)}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=settings)
    assert ended.returncode == 0, ended.stdout
    assert "error" in ended.stdout
    assert obeyed(ended.stdout + ended.stderr) == []
    assert obeyed(summary.read_text("utf-8")) == []
