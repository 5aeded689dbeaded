"""What signals do to a session: it stops in order, and so do its workers when it is killed.

SIGTERM (a container that is stopped, a batch system) and SIGHUP (a terminal that is closed) would end pytest
on the spot. They interrupt it like Ctrl-C instead, so that journals are sealed and workers and compilers end.
Only the report is left out, because whoever sends SIGTERM mostly sends SIGKILL ten seconds later.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from contextlib import suppress
from types import FrameType

_PR_SET_PDEATHSIG = 1
_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """pytest was told to end by a signal; the message names it."""


class StopSignals:
    """While installed, the first SIGTERM or SIGHUP raises Stopped; later ones do nothing.

    received: the name of that signal, or "". A signal that is ignored (nohup) or that somebody else handles
    is left alone.
    """

    def __init__(self) -> None:
        self.received = ""
        self._installed: list[signal.Signals] = []

    def install(self) -> None:
        """Only the main thread can, and elsewhere this does nothing."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._stop)
                self._installed.append(number)

    def remove(self) -> None:
        """Back to what was before."""
        while self._installed:
            signal.signal(self._installed.pop(), signal.SIG_DFL)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            return
        self.received = signal.Signals(number).name
        raise Stopped(f"stopped by {self.received}")


def end_with_parent() -> None:
    """Have this process interrupted when the one that started it dies, however it dies.

    A worker of pytest-xdist would otherwise measure on for up to 15 s, while the run may be resumed already.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So it is in the background of a shell, and no Ctrl-C comes there.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    parent = os.getppid()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != parent:
        raise Stopped("the pytest that started this worker has died")
