"""Signals: SIGTERM and SIGHUP end a session cleanly, and workers end when their controller is killed.

SIGTERM (a stopped container, a batch system) and SIGHUP (a closed terminal) would end pytest at once. Here
they interrupt it like Ctrl-C, so that journals are sealed and workers and compilers end. The report is left
out, because SIGKILL usually follows SIGTERM after ten seconds.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """A signal ended pytest; the message names it."""


class StopSignals:
    """While installed, the first SIGTERM or SIGHUP raises Stopped; later ones do nothing.

    received: the name of that signal, or "". A signal that is ignored (nohup) or has a handler already is
    left as it is.
    """

    def __init__(self) -> None:
        self.received = ""
        self._installed: list[signal.Signals] = []

    def install(self) -> None:
        """Installs the handlers; does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._stop)
                self._installed.append(number)

    def remove(self) -> None:
        """Restores the previous handlers."""
        while self._installed:
            signal.signal(self._installed.pop(), signal.SIG_DFL)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            return
        self.received = signal.Signals(number).name
        raise Stopped(f"stopped by {self.received}")
