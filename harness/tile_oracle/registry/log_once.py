"""The registry's log, which omits repeated lines."""

from __future__ import annotations

import logging

_LOG = logging.getLogger("tile_oracle.registry")


class LogOnce:
    """Logs each distinct line once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def warn(self, line: str) -> None:
        self._once(logging.WARNING, line)

    def info(self, line: str) -> None:
        self._once(logging.INFO, line)

    def _once(self, level: int, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            _LOG.log(level, "%s", line)
