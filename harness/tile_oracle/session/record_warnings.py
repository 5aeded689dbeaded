"""Turns log messages of the record modules into notes of the session's summary, because pytest hides logs."""

from __future__ import annotations

import logging
from collections.abc import Callable


class RecordWarnings(logging.Handler):
    """Passes each warning about damaged or unsealed records to `tell`, until `stop`."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._logger = logging.getLogger("tile_oracle.record")
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Passes one warning on."""
        self._tell(record.getMessage())

    def stop(self) -> None:
        """Stops passing warnings on."""
        self._logger.removeHandler(self)
