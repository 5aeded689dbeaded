"""Names from outside are printed as text: no terminal, viewer or CI obeys them."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tile_oracle
from tests.processes import LONGEST_S, wait_until
from tile_oracle.errors import HarnessError
from tile_oracle.terminal import progress_line
from tile_oracle.terminal.did_you_mean import did_you_mean, most_like
from tile_oracle.terminal.help_text import fit
from tile_oracle.terminal.plain_text import as_text
from tile_oracle.terminal.progress_line import ProgressLine, _Wait, clock, steps, wait, waits_shown_on

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


# The line of progress on terminals, in files, and for waits of which a front door shows the long ones.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows waits at once, and every line of them."""
    monkeypatch.setattr(progress_line, "_QUIET_S", 0.0)
    monkeypatch.setattr(progress_line, "_PLAIN_INTERVAL_S", 0.0)
    monkeypatch.setattr(progress_line, "_INTERVAL_S", 0.001)


def test_a_narrow_terminal_gets_a_line_that_does_not_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    ProgressLine(stream).show("reading records of a campaign: 50 %, 0:10 left")
    assert stream.getvalue() == "\r\x1b[K" + "reading records of "


def test_a_terminal_without_control_characters_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with ProgressLine(stream) as line:
        line.show("half")
    assert "\x1b" not in stream.getvalue()


def test_an_erased_line_leaves_the_terminal_as_it_was() -> None:
    stream = Terminal()
    with ProgressLine(stream) as line:
        line.show("half")
        line.erase()
    assert stream.getvalue().endswith("half\r\x1b[K")


def test_the_time_left_shrinks_within_a_step_and_is_never_negative() -> None:
    state = _Wait("reading", 4.0)
    state._started, state._last, state._done = 0.0, 10.0, 1.0
    shown = [state.text(now) for now in (10.0, 25.0, 40.0, 400.0)]
    assert shown == [f"reading: 25 %, {left} left" for left in ("0:30", "0:15", "0:00", "0:00")]


def test_without_a_known_amount_the_time_so_far_is_shown() -> None:
    state = _Wait("compiling", 0.0)
    state._started = 0.0
    assert state.text(3725.9) == "compiling: 1:02:05 so far"


@pytest.mark.usefixtures("no_patience")
def test_a_wait_is_shown_once_and_erased_at_its_end() -> None:
    stream, shown = Terminal(), threading.Event()
    stream.flush = shown.set  # type: ignore[method-assign]
    with waits_shown_on(stream):
        for part in steps("reading", ["a", "b"], [3, 1]):
            if part == "b":
                shown.clear()
                assert shown.wait(LONGEST_S)
        assert stream.getvalue().endswith("\r\x1b[K")
    assert "reading: 75 %, " in stream.getvalue()


@pytest.mark.usefixtures("no_patience")
def test_a_wait_within_a_wait_and_one_without_a_front_door_are_silent() -> None:
    stream, shown = Terminal(), threading.Event()
    stream.flush = shown.set  # type: ignore[method-assign]
    with wait("unseen"):
        pass
    with waits_shown_on(stream), wait("outer"):
        assert shown.wait(LONGEST_S)
        with wait("inner"):
            shown.clear()
            assert shown.wait(LONGEST_S)
    assert "outer" in stream.getvalue()
    assert "inner" not in stream.getvalue()


def test_a_short_wait_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "_QUIET_S", LONGEST_S)
    stream = Terminal()
    with waits_shown_on(stream), wait("reading"):
        pass
    assert stream.getvalue() == ""


def test_a_command_on_a_terminal_is_never_silent(no_patience: None, monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = io.StringIO(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with waits_shown_on(err, "tile-oracle runs merge"):
        wait_until(lambda: re.search(r"tile-oracle runs merge: \d+:\d\d so far", err.getvalue()))
        print("result")
    assert sys.stdout is out
    assert sys.stderr is err
    assert out.getvalue() == "result\n"
    assert err.getvalue().endswith("\r\x1b[K")


def test_what_is_printed_meanwhile_takes_the_place_of_the_line(
    monkeypatch: pytest.MonkeyPatch, no_patience: None
) -> None:
    """On one terminal, each text begins at the start of an empty line."""
    both = Terminal()
    monkeypatch.setattr(sys, "stdout", both)
    monkeypatch.setattr(sys, "stderr", both)
    with waits_shown_on(both, "command"):
        for number in range(20):
            wait_until(lambda: both.getvalue().endswith("so far"))
            print(f"result {number}")
    for number in range(20):
        before = both.getvalue().partition(f"result {number}\n")[0]
        assert before.endswith(("\r\x1b[K", "\n")), repr(before[-80:])


def test_a_wait_within_it_is_shown_in_its_place(no_patience: None, monkeypatch: pytest.MonkeyPatch) -> None:
    err = Terminal()
    monkeypatch.setattr(sys, "stderr", err)
    with waits_shown_on(err, "command"), wait("reading", 4.0) as done:
        done(1.0)
        wait_until(lambda: "reading: 25 %" in err.getvalue())


def test_elsewhere_nothing_is_added() -> None:
    stream = io.StringIO()
    before = sys.stdout
    with waits_shown_on(stream, "command"):
        assert sys.stdout is before
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.9, "0:00"),
        (59.99, "0:59"),
        (61, "1:01"),
        (3_599, "59:59"),
        (3_600, "1:00:00"),
        (90_061, "25:01:01"),
    ],
)
def test_a_time_has_hours_from_the_first_one_on(seconds: float, text: str) -> None:
    assert clock(seconds) == text


# The layout of --help.


def test_paragraphs_are_filled() -> None:
    assert fit("one two three\nfour five\n\nsix", 20) == "one two three four\nfive\n\nsix"


def test_a_comment_goes_on_in_its_column() -> None:
    text = "examples:\n  make x    a comment that is longer than that\n  make yy   short"
    assert fit(text, 40) == (
        "examples:\n  make x    a comment that is longer\n            than that\n  make yy   short"
    )


def test_a_command_stays_whole_and_its_comment_goes_below() -> None:
    command = "  tile-oracle pool list --arch gfx950 --kernel-filter 'tile_n >= 128'"
    text = f"examples:\n{command}   the names that pass\n{' ' * 50}a filter"
    assert fit(text, 60) == f"examples:\n{command}\n      the names that pass a filter"


def test_files_are_shown_as_they_are() -> None:
    text = (
        'a file:\n  # my model, batch 1\n  N,C,K,Hi,Wi,Y,X\n  {"blocks": [{"arch": ["cpu"], "pipeline": []}]}'
    )
    assert fit(text, 30) == text


@given(st.text("ab :,\n-", max_size=200), st.integers(20, 120))
def test_no_word_is_lost(text: str, width: int) -> None:
    assert fit(text, width).split() == text.split()


# Suggestions for misspelt names.

KNOWN = ("pipeline", "scheduler", "tile_n")


def test_the_most_similar_name_is_suggested() -> None:
    assert most_like("pipelines", KNOWN) == "pipeline"
    assert did_you_mean("pipelines", KNOWN) == "did you mean pipeline?"


def test_without_a_similar_name_the_hint_is_the_other_one() -> None:
    assert most_like("waves", KNOWN) is None
    assert did_you_mean("waves", KNOWN) == ""
    assert did_you_mean("waves", KNOWN, "known keys: ...") == "known keys: ..."


def test_the_cutoff_says_how_similar_a_name_must_be() -> None:
    assert most_like("tile", KNOWN, 0.7) == "tile_n"
    assert most_like("tile", KNOWN, 0.9) is None


def test_a_word_of_any_length_is_compared_by_its_start() -> None:
    name = "n" * 100
    assert most_like(name + "x" * 1_000_000, (name,), cutoff=1.0) == name


def test_no_other_module_compares_names_itself() -> None:
    package = Path(tile_oracle.__file__).parent
    comparing = {file.name for file in package.rglob("*.py") if "difflib" in file.read_text("utf-8")}
    assert comparing == {"did_you_mean.py"}
