"""Progress on pytest's terminal: one line per problem, and on a TTY one line that is rewritten in place."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TextIO

import pytest

from tile_oracle.session.progress import ProgressLine
from tile_oracle.session.pytest_private import (
    forget_line,
    is_within_line,
    own_terminal,
    show_no_percentages,
    terminal_columns,
)
from tile_oracle.terminal.plain_text import as_text
from tile_oracle.terminal.progress_line import waits_shown_on

if TYPE_CHECKING:
    from tile_oracle.session.pytest_private import TerminalReporter

_LIVE_EVERY_S = 0.1
_AGAIN_EVERY_S = 1.0
"""While nothing happens the live line is written again, with the time that is left now."""

Text = str | Callable[[int], str]
"""A live line, or what makes it for a number of columns."""


class Display:
    """Writes between pytest's own output: nothing with -q; no live line with -v, -s or without a TTY."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._live = False
        self._live_shown = False
        self._last_s = 0.0
        self._text: Text = ""
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._teller: threading.Thread | None = None

    @property
    def _reporter(self) -> TerminalReporter | None:
        reporter: TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        return reporter

    def take_over(self) -> None:
        """Replaces pytest's letters and percentages by a line per problem; for sessions of only the sweep."""
        reporter = self._reporter
        if reporter is None or reporter.verbosity > 0:
            return
        show_no_percentages(reporter)
        self._live = bool(
            reporter.verbosity == 0 and reporter.isatty and self._config.getoption("capture") != "no"
        )
        if self._live and (terminal := own_terminal(reporter)) is not None:
            self._teller = threading.Thread(target=self._tell, args=(terminal,), daemon=True)
            self._teller.start()

    def end(self) -> None:
        """Writes no live line any more."""
        self._ended.set()
        if self._teller is not None:
            self._teller.join()

    def _tell(self, terminal: TextIO) -> None:
        """Writes past pytest, which captures what is written while a test runs."""
        with terminal:
            while not self._ended.wait(_AGAIN_EVERY_S):
                with self._lock:
                    if self._live_shown and time.monotonic() - self._last_s >= _AGAIN_EVERY_S:
                        columns, line = self._fitting(self._text)
                        terminal.write(f"\r{line:<{columns}}")
                        terminal.flush()

    def _fitting(self, text: Text) -> tuple[int, str]:
        """Returns the columns of a live line, and the line. One column is free: a full line makes some
        terminals scroll."""
        columns = 78 if self._reporter is None else terminal_columns(self._reporter) - 2
        return columns, as_text(text if isinstance(text, str) else text(columns))[:columns]

    def line(self, text: str, **markup: bool) -> None:
        """Writes a permanent line."""
        reporter = self._reporter
        if reporter is None or reporter.verbosity < 0:
            return
        with self._lock:
            self.clear()
            # Not write_line, which makes pytest print the file name again before the next test.
            if is_within_line(reporter):
                reporter.write("\n")
            reporter.write(as_text(text) + "\n", flush=True, **markup)

    def problem(self, line: ProgressLine) -> None:
        """Writes the line of a complete problem; red if kernels failed."""
        reporter = self._reporter
        width = terminal_columns(reporter) if reporter is not None and reporter.isatty else None
        self.line(line.fitting(width), red=line.failures > 0)

    def status(self, text: Text, *, always: bool = False) -> None:
        """Rewrites the live line; only on a TTY, and unless `always` at a limited rate."""
        reporter, now = self._reporter, time.monotonic()
        too_soon = now - self._last_s < _LIVE_EVERY_S and not always
        if not self._live or reporter is None or too_soon:
            return
        with self._lock:
            self._last_s, self._text, self._live_shown = now, text, True
            reporter.rewrite(self._fitting(text)[1], erase=True)
            reporter.flush()

    def clear(self) -> None:
        """Erases the live line."""
        reporter = self._reporter
        with self._lock:
            if not self._live_shown or reporter is None:
                return
            self._live_shown = False
            reporter.rewrite("", erase=True)
            reporter.write("\r")
            forget_line(reporter)


@contextmanager
def waits_shown(config: pytest.Config) -> Iterator[None]:
    """Shows the waits of the block on the terminal, past pytest's capture; not with -q, and not in workers of
    pytest-xdist, whose controller waits alike."""
    capture = config.pluginmanager.get_plugin("capturemanager")
    is_quiet = hasattr(config, "workerinput") or config.getoption("verbose", 0) < 0
    with ExitStack() as shown:
        if not is_quiet and capture is not None:
            shown.enter_context(capture.global_and_fixture_disabled())
            if sys.stderr is not None:
                shown.enter_context(waits_shown_on(sys.stderr))
        yield
