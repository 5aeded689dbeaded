"""The state that the hooks of one session share, and the signals that end it.

SIGTERM (a stopped container, a batch system) and SIGHUP (a closed terminal) would end pytest at once. Here
they interrupt it like Ctrl-C, so that journals are sealed and workers and compilers end. The report is left
out, because SIGKILL usually follows SIGTERM after ten seconds.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from tile_oracle.errors import HarnessError
from tile_oracle.session.display import Display
from tile_oracle.session.pair_id import PairsByName
from tile_oracle.session.progress import Progress

if TYPE_CHECKING:
    from tile_oracle.problem import Problem
    from tile_oracle.record.run import Run
    from tile_oracle.report.data import ReportData
    from tile_oracle.session.conclusion import Conclusion
    from tile_oracle.session.outcome import Outcome
    from tile_oracle.session.session import Session


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


_RECORD_LOG = logging.getLogger("tile_oracle.record")
"""Warns about damaged and unsealed records."""


class SessionState:
    """The session with --problem-set of one process, which may be a worker of pytest-xdist or its controller.

    only_suite: only the plugin's own tests were requested. beside: they run beside the tests that were named,
    unless one of these measures (others_measure). selected: number of requested pairs by problem id.
    notes: lines for the end of the session, without duplicates. trouble: why the session ends without a
    verdict. skipped: reason -> number of skipped tests of the problem set.
    """

    def __init__(self, config: pytest.Config, session: Session, only_suite: bool, beside: bool) -> None:
        self.config = config
        self.session = session
        self.only_suite = only_suite
        self.beside = beside
        self.others_measure = False
        self.progress = Progress()
        self.display = Display(config)
        self.signals = StopSignals()
        self.pairs_by_name = PairsByName(session.plan, str(config.getoption("keyword", "") or ""))
        self.is_worker = hasattr(config, "workerinput")
        self.is_controller = not self.is_worker and config.getoption("dist", "no") != "no"
        self.planned = False
        self.first_later = ""
        """The first test after those of --first."""
        self.selected: Counter[str] = Counter()
        self.notes: dict[str, None] = {}
        warnings = logging.Handler(logging.WARNING)
        warnings.emit = lambda record: self.note(record.getMessage())  # type: ignore[method-assign]
        _RECORD_LOG.addHandler(warnings)
        self.stop_noting_warnings = partial(_RECORD_LOG.removeHandler, warnings)
        self.budget_spent = False
        self.device_missing = False
        self.worker_trouble = False
        self.trouble = ""
        self.skipped: Counter[str] = Counter()
        self.outcomes: frozenset[Outcome] = frozenset()
        self.analysed: Mapping[str, ReportData] = {}
        self.conclusions: list[Conclusion] = []

    def note(self, text: str) -> None:
        """Adds a line for the end of the session, unless it is there already or empty."""
        if text:
            self.notes.setdefault(text)

    def select_problems(self, problems: Iterable[Problem]) -> None:
        """Sets the problems to replay, after pytest's selection."""
        for problem in problems:
            self.selected[problem.id] = len(self.pairs_by_name.kernels(problem))
        if self.selected:
            self.progress.replay(len(self.selected))

    def plan_pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Sets the pairs to measure, after pytest's selection: distinct pairs of problem id and kernel
        name."""
        listed = list(pairs)
        self.selected.update(Counter(problem for problem, _ in listed))
        if listed:
            from tile_oracle.problem import problem_from_id

            self.progress.plan(listed, {name: problem_from_id(name).flops for name in self.selected})

    def open_run(self) -> Run:
        """Returns the run's folder, made or found at the first call. Raises UsageError."""
        try:
            return self.session.open_run()
        except HarnessError as error:
            raise pytest.UsageError(str(error)) from None

    def verdict_ids(self) -> list[str]:
        """Returns the test ids of the session's criteria."""
        from tile_oracle.session.plan import set_name
        from tile_oracle.session.verdict_items import item_ids

        sets = self.session.plan.sets
        return item_ids([set_name(part, sets) for part in sets])
