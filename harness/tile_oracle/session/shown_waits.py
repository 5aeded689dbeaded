"""Shows the waits before pytest writes its header: reading records, loading models."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tile_oracle.terminal.progress_line import waits_shown_on


@contextmanager
def waits_shown(config: pytest.Config) -> Iterator[None]:
    """Shows the waits of the block on the terminal, past pytest's capture; not with -q, and not in workers of
    pytest-xdist, whose controller waits alike."""
    capture = config.pluginmanager.get_plugin("capturemanager")
    if hasattr(config, "workerinput") or config.getoption("verbose", 0) < 0 or capture is None:
        yield
        return
    with capture.global_and_fixture_disabled():
        if sys.stderr is None:
            yield
            return
        with waits_shown_on(sys.stderr):
            yield
