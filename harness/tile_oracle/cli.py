"""The command `tile-oracle`, which imports nothing of it before Ctrl-C ends without a traceback."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from threading import current_thread, main_thread


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. Ctrl-C while the program is imported ends with 130."""
    before = signal.getsignal(signal.SIGINT)
    heeded = before is signal.default_int_handler and current_thread() is main_thread()
    if heeded:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from tile_oracle.commands import program

    if heeded:
        signal.signal(signal.SIGINT, before)
    return program.main(argv)


if __name__ == "__main__":
    sys.exit(main())
