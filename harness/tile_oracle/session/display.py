"""Progress on pytest's terminal: one line per problem, and on a TTY one line that is rewritten in place."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tile_oracle.session.progress import ProgressLine
from tile_oracle.session.pytest_private import (
    forget_line,
    is_within_line,
    show_no_percentages,
    terminal_columns,
)

if TYPE_CHECKING:
    from tile_oracle.session.pytest_private import TerminalReporter

_LIVE_EVERY_S = 0.1


class Display:
    """Writes between pytest's own output: nothing with -q; no live line with -v, -s or without a TTY."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._live = False
        self._live_shown = False
        self._last_s = 0.0

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

    def line(self, text: str, **markup: bool) -> None:
        """Writes a permanent line."""
        reporter = self._reporter
        if reporter is None or reporter.verbosity < 0:
            return
        self.clear()
        # Not write_line, which makes pytest print the file name again before the next test.
        if is_within_line(reporter):
            reporter.write("\n")
        reporter.write(text + "\n", flush=True, **markup)

    def problem(self, line: ProgressLine) -> None:
        """Writes the line of a complete problem; red if kernels failed."""
        reporter = self._reporter
        width = terminal_columns(reporter) if reporter is not None and reporter.isatty else None
        self.line(line.fitting(width), red=line.failures > 0)

    def status(self, text: str, *, always: bool = False) -> None:
        """Rewrites the live line; only on a TTY, and unless `always` at a limited rate."""
        reporter, now = self._reporter, time.monotonic()
        too_soon = now - self._last_s < _LIVE_EVERY_S and not always
        if not self._live or reporter is None or too_soon:
            return
        self._last_s = now
        self._live_shown = True
        # Leave one column free: a full line makes some terminals scroll.
        reporter.rewrite(text[: terminal_columns(reporter) - 2], erase=True)
        reporter.flush()

    def clear(self) -> None:
        """Erases the live line."""
        reporter = self._reporter
        if not self._live_shown or reporter is None:
            return
        self._live_shown = False
        reporter.rewrite("", erase=True)
        reporter.write("\r")
        forget_line(reporter)
