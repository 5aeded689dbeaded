"""Hooks while tests run: measuring, replaying, progress."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tile_oracle.errors import DeviceMissingError, HarnessError, KernelError, NotBegunError
from tile_oracle.session.companions import check_companions, report_samples, wants_samples, why_no_samples
from tile_oracle.session.items import FIXTURES, SUITE_ID, pair_of_item, params_of
from tile_oracle.session.pytest_private import fixture_definitions, share_place
from tile_oracle.session.state import SessionState
from tile_oracle.terminal.counts import count
from tile_oracle.terminal.plain_text import as_text

if TYPE_CHECKING:
    from tile_oracle.kernel import Kernel
    from tile_oracle.measure.measurement import Measurement
    from tile_oracle.problem import Problem

PAIR_FACTS = {"problem", "kernel", "status"}
_Status = tuple[str, str, str | tuple[str, dict[str, bool]]]


class RunningHooks:
    """The phase from the header to the last test; the fixtures `measure` and `replayed` call it."""

    def __init__(self, state: SessionState) -> None:
        self.config, self.session, self.state = state.config, state.session, state
        self._left_s = 0.0
        """Since when pytest itself has been at work."""
        self._places: dict[str, tuple[str, int | None]] = {}
        """Name of a test function of the suite -> file and line."""
        self._told: dict[str, str] = {}
        """Failure of several lines -> the test that it is printed for."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        # Here, because some are only in place when all plugins are configured.
        check_companions(self.config, measures=self.session.remeasures)
        if not self.state.is_worker:
            self.state.signals.install()
        self._left_s = time.monotonic()
        self.session.keep_samples = wants_samples(self.config)
        self.state.note(why_no_samples(self.config))
        if self.state.only_suite:
            self.state.display.take_over()
        self.session.show = self.state.display.status
        self.state.progress.builds = self.session.builds
        self.state.progress.devices = self.session.devices_line

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if item.nodeid == self.state.first_later:
            for line in self.session.end_first():
                self.state.display.line(line)
        if item.nodeid.startswith(SUITE_ID):
            share_place(item, self._places)
        if not hasattr(params_of(item).get("problem"), "op"):
            return None  # not about a problem, or `problem` is a fixture of the project's own
        # After the budget is spent a test is neither run nor reported; the summary counts the tests left.
        return True if self.session.over_budget(pair_of_item(item)) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Gives a test of a pair what its fixtures would, since pytest takes long to set them up."""
        if (pair := pair_of_item(item)) is None or self.config.getoption("setupshow", False):
            return
        if fixture_definitions(item, "measure")[-1].func.__module__ == FIXTURES:
            given = {"problem": pair[0], "kernel": pair[1], "measure": partial(self.measure, item)}
            item.funcargs.update(given)  # type: ignore[attr-defined]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        from tile_oracle.session.pair_id import pair_of

        if not nodeid.startswith(f"{SUITE_ID}::verdict["):
            subject = pair_of(nodeid)[0] or nodeid
            self.state.display.status(lambda columns: self.state.progress.status(subject, columns))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if nodeid.startswith(f"{SUITE_ID}::test_problem["):
            self.state.progress.ended()

    def measure(self, node: pytest.Item, problem: Problem, kernel: Kernel) -> Measurement:
        __tracebackhide__ = True
        self.session.pytest_s += time.monotonic() - self._left_s
        try:
            if self.session.unrecorded(problem, (kernel,)):
                pytest.skip("this pair was never recorded")
            measurement = self.session.measure(problem, kernel)
        except KernelError:
            raise  # an error of the test itself
        except NotBegunError as error:
            self.session.budget_spent = True
            pytest.skip(str(error))
        except HarnessError as error:
            self.state.device_missing |= isinstance(error, DeviceMissingError)
            # Nothing can be measured or recorded any more: all other tests would fail in the same way.
            node.session.shouldstop = str(error)
            pytest.fail(str(error), pytrace=False)
        finally:
            self._left_s = time.monotonic()
        facts = {
            "problem": problem.id,
            "kernel": kernel.short_name,
            "status": measurement.status,
            "tflops": measurement.tflops if measurement.tflops > 0 else None,
            "latency_ms": measurement.latency_ms if measurement.latency_ms > 0 else None,
            "known_failure": measurement.known_failure or None,
            "resumed": measurement.resumed or None,
        }
        node.user_properties.extend((name, value) for name, value in facts.items() if value is not None)
        if self.session.keep_samples:
            report_samples(node, measurement)
        return measurement

    def replayed(self, node: pytest.Item, problem: Problem) -> Sequence[Measurement]:
        __tracebackhide__ = True
        from tile_oracle.session.replay_session import ReplaySession

        try:
            assert isinstance(self.session, ReplaySession)
            return self.session.replayed(problem, self.state.pairs_by_name.kernels(problem))
        except HarnessError as error:
            node.session.shouldstop = str(error)
            pytest.fail(str(error), pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None]:
        facts = {} if self.state.is_worker else dict(report.user_properties)
        if report.failed and facts.keys() >= PAIR_FACTS and "\n" in (text := report.longreprtext):
            # A kernel that does not build fails with the same message on each problem.
            first = self._told.setdefault(text, report.nodeid)
            if first != report.nodeid:
                report.longrepr = f"{text.splitlines()[0]} (in full: {first})"
        yield  # pytest prints the outcome, with -v on a line that is still open
        if self.state.is_worker:
            return
        if report.skipped and report.nodeid.startswith(f"{SUITE_ID}::test_"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.state.skipped[reason.removeprefix("Skipped: ")] += 1
        if report.when != "call" or not facts.keys() >= PAIR_FACTS:
            return
        if (line := self.state.progress.finished(facts)) is not None:
            self.state.display.problem(line)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Generator[None, _Status, _Status]:
        """Prints no letters for the sweep's pairs, because each problem has a line. -v shows every pair."""
        category, letter, word = yield
        if self.state.only_suite and report.when == "call":
            return category, "", word
        return category, letter, word

    def pytest_report_header(self) -> list[str]:
        session, plan = self.session, self.session.plan
        kernels = count(len(plan.all_kernels), "kernel")
        sets = ", ".join(f"{part.name} ({count(len(part.problems), 'problem')})" for part in plan.sets)
        listed = "" if plan.listed_count is None else f", {plan.listed_count:,} of them listed in --pairs"
        lines = [
            f"tile-oracle: {sets} x {session.options.pool_name} ({kernels}) = "
            f"{count(plan.pair_count, 'pair')}{listed}",
            *session.header(),
        ]
        chosen = [line for choice, part in session.judged for line in choice.lines(part)]
        return [as_text(line) for line in (*lines, *dict.fromkeys(chosen))]
