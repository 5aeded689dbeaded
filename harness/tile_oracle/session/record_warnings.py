"""What the records' modules log while a session runs becomes notes of its summary: pytest hides logs."""

from __future__ import annotations

import logging
from collections.abc import Callable


class RecordWarnings(logging.Handler):
    """Hands each warning on damaged or unsealed records to `tell`, until `stop`."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._logger = logging.getLogger("tile_oracle.record")
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """One warning."""
        self._tell(record.getMessage())

    def stop(self) -> None:
        """No more warnings are handed on."""
        self._logger.removeHandler(self)
