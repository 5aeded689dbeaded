"""The end of a session: suspects measured again, the verdict, the report, the exit status."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tile_oracle.errors import HarnessError
from tile_oracle.process.collector import leave_to_the_end_of_the_process, paused_collector
from tile_oracle.session.command_line import decide_status, only_shows
from tile_oracle.session.options import option_value
from tile_oracle.session.outcome import Outcome, status_of
from tile_oracle.session.pytest_private import exit_status, terminal_columns
from tile_oracle.session.state import SessionState
from tile_oracle.terminal.plain_text import as_text
from tile_oracle.terminal.progress_line import clock

if TYPE_CHECKING:
    from tile_oracle.session.pytest_private import TerminalReporter


class EndHooks:
    """The steps after the last test."""

    def __init__(self, state: SessionState) -> None:
        self.config, self.session, self.state = state.config, state.session, state

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        interrupted = exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
        try:
            if interrupted and self.state.is_controller:
                self._stop_workers()
            self._settle(session, interrupted)
            self.session.close()
            if self.state.selected and not self.state.is_worker:
                self.state.display.status(_since("judging the picks and writing the report"), always=True)
            if self.state.signals.received:
                self.state.trouble = self._how_to_resume(f"stopped by {self.state.signals.received}")
            elif not self.state.is_worker and not self.config.getoption("collectonly"):
                self._conclude(session, interrupted)
                if interrupted and not self.state.conclusions:
                    self.state.trouble = self._how_to_resume("interrupted")
                self.session.forget_attempts()
                if unsealed := self.session.unsealed():
                    self.state.trouble = unsealed
                if unsealed or self.state.worker_trouble:
                    self.state.outcomes |= {Outcome.FAILED}
        except HarnessError as error:
            self.state.trouble = str(error)
            self.state.outcomes |= {Outcome.FAILED}
        except KeyboardInterrupt:
            self.state.trouble = self._how_to_resume("interrupted again before the report was written")
            exitstatus = session.exitstatus = pytest.ExitCode.INTERRUPTED
        self.state.display.clear()
        if self.state.is_worker:
            self.config.workeroutput["tile_oracle"] = {  # type: ignore[attr-defined]
                "pytest_s": self.session.pytest_s,
                "budget_spent": self.session.budget_spent,
                "device_missing": self.state.device_missing,
                "trouble": Outcome.FAILED in self.state.outcomes,
                "notes": [*self.session.notes, *self.state.notes, self.state.trouble],
            }
        else:
            self._decide(session, exitstatus)
            self._publish(session)
        if self.state.only_suite:  # a user's own tests may count on what a collection finds
            leave_to_the_end_of_the_process()

    def _decide(self, session: pytest.Session, exitstatus: int) -> None:
        """The session's outcomes and exit status. Here alone a session passes: what nothing has judged has an
        outcome that says so."""
        state = self.state
        missing = state.device_missing and exitstatus != pytest.ExitCode.INTERNAL_ERROR
        if missing:  # the test that asked for the device has failed; nothing else is known
            state.outcomes, exitstatus = frozenset({Outcome.DEVICE_MISSING}), pytest.ExitCode.OK
        elif not state.conclusions and not state.outcomes:
            state.outcomes = frozenset({Outcome.NOTHING_MEASURED})
            state.trouble = state.trouble or self._why_nothing()
        if exitstatus == pytest.ExitCode.TESTS_FAILED or (session.testsfailed and not missing):
            state.outcomes |= {Outcome.FAILED}
        elif exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            state.outcomes = state.outcomes - {Outcome.PASSED} or frozenset({Outcome.INCOMPLETE})
        if state.outcomes != {Outcome.PASSED}:
            state.outcomes -= {Outcome.PASSED}
        if not only_shows(self.config):
            session.exitstatus = status_of(state.outcomes, self.session.options.allow, exitstatus)
            decide_status(self.config, session.exitstatus)

    def _why_nothing(self) -> str:
        """Returns why no pair was measured, with the most frequent reason of skipped tests."""
        if only_shows(self.config):
            return ""
        why = "no test of the problem set ran"
        for reason, count in self.state.skipped.most_common(1):
            skipped = self.state.skipped.total()
            why = f"{skipped:,} tests were skipped" + (f", {count:,} of them" if count < skipped else "")
            why += f": {reason}"
        return f"nothing was measured: {why}"

    def _publish(self, session: pytest.Session) -> None:
        """Writes what programs read. A file that cannot be written fails the session."""
        from tile_oracle.session.published import append_step_summary, write_report_json

        state, path = self.state, self.session.options.report_json
        try:
            append_step_summary(state.conclusions, state.trouble)
            if path is not None:
                status = int(session.exitstatus)
                write_report_json(path, state.conclusions, state.outcomes, status, state.trouble)
        except HarnessError as error:
            state.trouble = state.trouble or str(error)
            session.exitstatus = session.exitstatus or Outcome.FAILED

    def _settle(self, session: pytest.Session, interrupted: bool) -> None:
        """Measures suspects again, before the devices close."""
        if self.state.is_worker or self.config.getoption("collectonly") or self.state.signals.received:
            return
        if self._stopped(session, interrupted) or not self.session.remeasures:
            return
        from tile_oracle.session.live import LiveSession
        from tile_oracle.session.settle import settle

        assert isinstance(self.session, LiveSession)

        self.state.display.status(_since("measuring suspects again"), always=True)
        try:
            self.state.analysed, note = settle(self.session, self.state.selected)
        except HarnessError as error:
            # The existing measurements are judged.
            self.state.note(f"suspects were not measured again: {error}")
            return
        self.state.note(note)

    def _conclude(self, session: pytest.Session, interrupted: bool) -> None:
        """Verdicts, their test items and reports. Raises HarnessError."""
        from tile_oracle.session.conclusion import conclude
        from tile_oracle.session.verdict_items import report_items, verdict_items

        stopped = self._stopped(session, interrupted)
        with paused_collector():
            self.state.conclusions = conclude(self.session, stopped, self.state.selected, self.state.analysed)
        self.state.outcomes = frozenset().union(*(one.outcomes for one in self.state.conclusions))
        if stopped and not self.state.conclusions and not interrupted:
            # A session without any measurement must not pass.
            self.state.trouble = f"nothing was measured: {stopped}"
            self.state.outcomes |= {Outcome.INCOMPLETE}
        if not self.state.conclusions or not self.session.is_judged:
            return
        self.state.display.clear()
        ids = self.state.verdict_ids()
        session.testscollected += len(ids)
        share = len(ids) // len(self.state.conclusions)
        for place, one in enumerate(self.state.conclusions):
            own = ids[place * share : (place + 1) * share]
            report_items(self.config, verdict_items(own, one.data, one.accepted))

    def _stop_workers(self) -> None:
        """Ends the workers now. pytest-xdist would do so after the report, which needs their last results."""
        self.session.close()  # so that no worker waits for a device
        controller = self.config.pluginmanager.get_plugin("dsession")
        if controller is not None:
            controller.pytest_sessionfinish()

    def _how_to_resume(self, why: str) -> str:
        """Returns the message of a session that ends without a report."""
        run = self.session.run
        if run is None or not run.measurements.is_dir() or not any(run.measurements.iterdir()):
            again = "compiled kernels are kept, and the same command starts again"
            return f"{why}: nothing was measured; {again}"
        again = self.session.command.resumed()
        return f"{why}: what was measured is in {run.folder}; this continues there:\n  {again}"

    def _stopped(self, session: pytest.Session, interrupted: bool) -> str:
        """Returns why the session ends before its last test, or ""."""
        controller = self.config.pluginmanager.get_plugin("dsession")
        reason = session.shouldstop or session.shouldfail or getattr(controller, "shouldstop", "")
        if reason or interrupted:
            return str(reason or "interrupted")
        if self.session.budget_spent or self.state.budget_spent:
            return f"the budget of {option_value(self.config, '--budget')} is spent"
        return ""

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        def write_line(text: str) -> None:
            terminalreporter.write_line(as_text(text))

        if self.state.trouble:
            terminalreporter.section("tile-oracle", red=True)
            write_line(self.state.trouble)
        from tile_oracle.report.terminal import summary_lines
        from tile_oracle.session.closing import allowing_lines, closing_lines, status_line

        for conclusion in self.state.conclusions:
            open_ones = conclusion.outcomes - self.session.options.allow
            failed = Outcome.FAILED in open_ones
            terminalreporter.section(
                as_text(f"tile-oracle: {conclusion.data.run.problem_set}"),
                red=failed,
                yellow=bool(open_ones) and not failed,
                green=not open_ones,
            )
            columns, note = terminal_columns(terminalreporter), conclusion.baseline_note
            for line in summary_lines(conclusion.data, columns, with_baseline=not note):
                write_line(line)
            if note:
                write_line(note)
            lines = closing_lines(conclusion, self.session.options.allow)
            for line in ["", *lines] if lines else []:
                write_line(line)
        for note in dict.fromkeys([*self.session.notes, *self.state.notes]):
            write_line(f"note: {note}")
        status, allowed = exit_status(terminalreporter), self.session.options.allow
        if self.state.conclusions:
            for line in allowing_lines(self.state.outcomes, allowed, self.session.command, status):
                write_line(line)
        if said := status_line(self.state.outcomes - allowed, status):
            write_line(said)

    def pytest_unconfigure(self) -> None:
        self.state.display.end()
        try:
            self.session.close()
        finally:
            self.state.stop_noting_warnings()
            self.session.release()
        self.state.signals.remove()


def _since(what: str) -> Callable[[int], str]:
    """Returns a live line with the time since now."""
    began_s = time.monotonic()

    def text(columns: int) -> str:
        elapsed_s = time.monotonic() - began_s
        return f"{what}: {clock(elapsed_s)} so far"[:columns] if elapsed_s >= 2 else what

    return text
