"""The process of one device of this host (host_devices): FD, a socket to the session's process.

It ends with its session, even a killed one.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection

from tile_oracle.errors import HarnessError
from tile_oracle.measure.device_runner import DeviceRunner

_POLL_S = 1.0
"""The process tells something at least as often, in seconds."""
_BATCH_S = 0.05


def _tell(runner: DeviceRunner, pipe: Connection) -> None:
    with suppress(OSError):  # the session has ended
        try:
            pipe.send(runner.open())
        except HarnessError as error:
            pipe.send(error)
            return
        while True:
            pipe.send(runner.take(_POLL_S, _BATCH_S))


def main(fd: int) -> None:
    """Takes calls until one closes the device, or the session ends."""
    pipe = Connection(fd)
    sys.path[:], settings = pipe.recv()
    runner = DeviceRunner(settings)
    threading.Thread(target=_tell, args=(runner, pipe), daemon=True).start()
    with suppress(EOFError, OSError):
        while (call := pipe.recv())[0] != "close":
            getattr(runner, call[0])(*call[1:])
    runner.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
