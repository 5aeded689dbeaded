"""The line of progress on terminals, in files, and for waits of which a front door shows the long ones."""

from __future__ import annotations

import io
import re
import sys
import threading

import pytest

from tests.processes import LONGEST_S, wait_until
from tile_oracle.terminal import progress_line
from tile_oracle.terminal.progress_line import ProgressLine, _Wait, clock, steps, wait, waits_shown_on


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
