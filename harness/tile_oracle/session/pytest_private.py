"""All uses of private names of pytest and its plugins."""

from __future__ import annotations

import argparse
import copy
import os
from collections.abc import Sequence
from typing import Any, TextIO

import pytest
from _pytest._code.code import TerminalRepr
from _pytest._io import TerminalWriter
from _pytest.mark.expression import Expression
from _pytest.terminal import TerminalReporter

__all__ = ["Expression", "TerminalReporter", "TerminalRepr", "TerminalWriter"]

PYTEST_FIXTURES = "_pytest.python"
"""The module of the fixtures that pytest makes for values of `parametrize`."""


def rewrite_no_module_of(package: str, manager: pytest.PytestPluginManager) -> None:
    """pytest parses each module of a plugin's package to rewrite its assertions, at every start where nothing
    may write bytecode. Those of this package are for type checkers. Files of tests are rewritten by their
    names."""
    hook = getattr(manager, "rewrite_hook", None)
    marked: set[str] = getattr(hook, "_must_rewrite", set())
    marked.discard(package)
    known: dict[str, bool] = getattr(hook, "_marked_for_rewrite_cache", {})
    known.clear()


def fixture_definitions(item: pytest.Item, name: str) -> Sequence[Any]:
    """Returns the fixtures of this name that a test sees, those that override others last."""
    found: Sequence[Any] = item._fixtureinfo.name2fixturedefs.get(name, ())  # type: ignore[attr-defined]
    return found


def share_place(item: pytest.Item, places: dict[str, tuple[str, int | None]]) -> None:
    """Gives a test of a module's function the file and line of the function's other tests, which pytest takes
    long to find."""
    name = item.name.partition("[")[0]
    if name in places:
        vars(item)["location"] = (*places[name], item.name)
    else:
        places[name] = item.location[:2]


def exit_status(reporter: TerminalReporter) -> int:
    """Returns the session's exit status so far."""
    return int(getattr(reporter._session, "exitstatus", 0))


def terminal_columns(reporter: TerminalReporter) -> int:
    """Returns the terminal's width."""
    return reporter._tw.fullwidth


def say_with_usage_errors(config: pytest.Config, name: str, value: str) -> None:
    """A line that pytest prints below a message about its options."""
    getattr(config._parser, "extra_info", {})[name] = value


def registered_names(parser: pytest.Parser) -> set[str]:
    """Returns all spellings of all options so far."""
    groups = {id(group): group for group in (*parser._groups, parser._anonymous)}
    return {name for group in groups.values() for option in group.options for name in option.names()}


def look_for_conftests_by(
    config: pytest.Config, parser: pytest.Parser, args: Sequence[str]
) -> argparse.Namespace:
    """Tells pytest which of these arguments are files of tests, before it loads their conftests; returns all
    that they say."""
    found = parser.parse_known_args(list(args), copy.copy(config.option))
    config.known_args_namespace.file_or_dir = found.file_or_dir
    return found


def is_loading_conftests(manager: pytest.PytestPluginManager) -> bool:
    """Returns whether the first conftests are being loaded, or are already."""
    return getattr(manager, "_confcutdir", None) is not None


def own_terminal(reporter: TerminalReporter) -> TextIO | None:
    """Returns another stream to the reporter's terminal, which pytest does not capture; None without one."""
    try:
        return os.fdopen(os.dup(reporter._tw._file.fileno()), "w", encoding="utf-8", errors="replace")
    except (OSError, ValueError, AttributeError):
        return None


def is_within_line(reporter: TerminalReporter) -> bool:
    """Returns whether something has been written to the terminal's current line."""
    return reporter._tw.width_of_current_line > 0


def forget_line(reporter: TerminalReporter) -> None:
    """Tells pytest's writer that the current line was erased, because it counts overwritten characters."""
    reporter._tw._current_line = ""


def show_no_percentages(reporter: TerminalReporter) -> None:
    """No file names and no progress in percent between the tests' letters."""
    reporter.showfspath = False
    reporter._show_progress_info = False


def benchmark_session(config: pytest.Config) -> Any:
    """Returns the session of pytest-benchmark."""
    return config._benchmarksession  # type: ignore[attr-defined]
