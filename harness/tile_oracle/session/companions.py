"""Other plugins of pytest that a session cannot run with, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tile_oracle.session.pytest_private import TerminalReporter


def check_companions(config: pytest.Config, *, measures: bool) -> None:
    """Raises UsageError with one line about the first that the session cannot run with. measures: whether
    kernels run; a replay opens no socket and runs its tests in any thread."""
    for why in _unsupported(config, measures):
        raise pytest.UsageError(f"tile-oracle does not work with {why}")


def _unsupported(config: pytest.Config, measures: bool) -> Iterator[str]:
    asked = config.getoption
    if asked("forked", False):
        yield (
            "--forked (pytest-forked): what a test records would be lost with its process. Leave it out: "
            "kernels run in a process of their own anyway"
        )
    if measures and asked("disable_socket", False) and not asked("allow_unix_socket", False):
        yield (
            "--disable-socket (pytest-socket): kernels run in a process behind a socket. Add "
            "--allow-unix-socket"
        )
    if measures and asked("parallel_threads", 1) not in (1, "1"):
        yield (
            "--parallel-threads (pytest-run-parallel): each kernel is timed alone. Leave it out, or use -n "
            "of pytest-xdist"
        )
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not isinstance(reporter, TerminalReporter):
        module = type(reporter).__module__
        without = f"-p no:{_name(config, module)}"
        yield f"{module}, which replaces pytest's terminal reporter. Leave it out: {without}"


def _name(config: pytest.Config, module: str) -> str:
    """Returns the name by which `-p no:` leaves the plugin of a module out."""
    for name, plugin in config.pluginmanager.list_name_plugin():
        if getattr(plugin, "__name__", "") == module:
            return name
    return module
