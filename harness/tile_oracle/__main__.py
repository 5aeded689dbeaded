"""The program `tile-oracle`, and `python -m tile_oracle`."""

from __future__ import annotations

import os
import signal
import sys


def main() -> int:
    """Runs the command line and returns its exit status. Ctrl-C while it is imported ends with 130."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from tile_oracle.cli import main as run

    signal.signal(signal.SIGINT, before)
    return run()


if __name__ == "__main__":
    sys.exit(main())
