"""The pytest plugin `tile_oracle`: hooks and fixtures that delegate to tile_oracle.session.

This module is imported by every pytest run of an environment that has tile-oracle, so it imports nothing
heavy until --problem-set is given.
"""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from tile_oracle.errors import DeviceMissingError, HarnessError, KernelError
from tile_oracle.session.options import add_options, read_options
from tile_oracle.session.outcome import Outcome, gravest, read_allowed

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from tile_oracle.kernel import Kernel
    from tile_oracle.measure.measurement import Measurement
    from tile_oracle.problem import Problem
    from tile_oracle.record.run import Run
    from tile_oracle.report.data import ReportData
    from tile_oracle.session.conclusion import Conclusion
    from tile_oracle.session.scheduler import ProblemScheduling
    from tile_oracle.session.stopped_workers import StoppedWorkers
    from tile_oracle.session.sweep import SweepSession

    Measure = Callable[[Problem, Kernel], Measurement]
    Replayed = Callable[[Problem], list[Measurement]]
else:
    Measure = Replayed = Callable

SUITE = Path(__file__).parent / "suite" / "test_kernels.py"
REPLAY_SUITE = SUITE.with_name("test_replay.py")
SUITE_ID = "tile_oracle"
"""What the suite's tests are called, wherever the package lies: tile_oracle::test_kernel[...], and in a
replay tile_oracle::test_problem[...]."""

_PLUGIN_NAME = "tile_oracle_session"
_PAIR_FACTS = {"problem", "kernel", "status"}
_Status = tuple[str, str, str | tuple[str, dict[str, bool]]]


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tile_oracle: tests of kernels on problems (given by the plugin)")
    if config.getoption("--problem-set") is None:
        return
    if config.getoption("dist", "no") == "each":
        raise pytest.UsageError("--dist each would measure every pair once a worker: use -n with --dist load")
    from tile_oracle.session.sweep import SweepSession

    worker_input = getattr(config, "workerinput", {})
    try:
        session = SweepSession(
            read_options(config),
            deadline=worker_input.get("tile_oracle_deadline"),
            run_folder=worker_input.get("tile_oracle_run"),
            run_owner=worker_input.get("tile_oracle_owner", ""),
        )
    except DeviceMissingError as error:
        _end_without_device(config, str(error))
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from None
    _name_suite(config, REPLAY_SUITE if session.replay is not None else SUITE)
    only_suite = all(arg.split("::")[0] in (str(SUITE), str(REPLAY_SUITE)) for arg in config.args)
    config.pluginmanager.register(SessionPlugin(config, session, only_suite), _PLUGIN_NAME)


def _end_without_device(config: pytest.Config, why: str) -> NoReturn:
    """End before anything runs. Raises UsageError for an --allow that cannot be read."""
    try:
        allowed = Outcome.DEVICE_MISSING in read_allowed(",".join(config.getoption("--allow") or ()))
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from None
    pytest.exit(why, returncode=0 if allowed else Outcome.DEVICE_MISSING)


def _name_suite(config: pytest.Config, suite: Path) -> None:
    """Without test files on the command line the suite runs; its test ids may be given as they are shown."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args[:] = [str(suite)]
        return

    def meant(arg: str) -> str:
        name, _, test = arg.partition("::")
        if name != SUITE_ID:
            return arg
        if test.startswith("verdict["):
            return str(suite)  # a verdict is about all pairs
        # A pair's own test is there in a replay too, for who asks for it.
        of_pair, of_problem = test.startswith("test_kernel"), test.startswith("test_problem")
        module = SUITE if of_pair else REPLAY_SUITE if of_problem else suite
        return f"{module}::{test}" if test else str(module)

    config.args[:] = [meant(arg) for arg in config.args]


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if module_path in (SUITE, REPLAY_SUITE):
        module: pytest.Module = pytest.Module.from_parent(parent, path=module_path, nodeid=SUITE_ID)
        return module
    return None


# ---- fixtures ---------------------------------------------------------------------------------------


@pytest.fixture
def problem(request: pytest.FixtureRequest) -> Problem:
    """A problem of --problem-set (tile_oracle.problem.GroupedConvProblem); tests run once for each."""
    chosen: Problem = _parameter(request)
    return chosen


@pytest.fixture
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """A kernel of --kernel-set that is a candidate for `problem` (tile_oracle.kernel.GroupedConvKernel)."""
    chosen: Kernel = _parameter(request)
    return chosen


def _parameter(request: pytest.FixtureRequest) -> Any:
    if not hasattr(request, "param"):
        pytest.skip("needs --problem-set, e.g. pytest --problem-set forward_smoke")
    return request.param


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Measure:
    """measure(problem, kernel) -> measure.measurement.Measurement: built, run in isolation, checked,
    timed and recorded; made once a session, however often it is asked for."""
    plugin = request.config.pluginmanager.get_plugin(_PLUGIN_NAME)
    if plugin is None:
        pytest.skip("needs --problem-set, e.g. pytest --problem-set forward_smoke")
    node = request.node
    return lambda problem, kernel: plugin.measure(node, problem, kernel)


@pytest.fixture
def replayed(request: pytest.FixtureRequest) -> Replayed:
    """replayed(problem) -> the recorded measurements (measure.measurement.Measurement) of the kernels
    that the session asks for on it; in a session that replays records."""
    plugin = request.config.pluginmanager.get_plugin(_PLUGIN_NAME)
    if plugin is None or plugin.session.replay is None:
        pytest.skip("needs recorded measurements, e.g. pytest --problem-set forward_smoke --oracle FILE")
    return lambda problem: plugin.replayed(request.node, problem)


def check_outcome(measurement: Measurement) -> None:
    """The outcome of a test that is about one measurement: passes, skips, fails, or is a known failure."""
    __tracebackhide__ = True
    status, known = measurement.status, measurement.known_failure
    said = f"{status}: {measurement.detail}" if measurement.detail else status
    if status == "ok":
        return
    if status in ("unsupported", "noisy"):
        pytest.skip(said)
    if known and status != "device_lost":
        pytest.xfail(f"known since the baseline ({known}): {said}")
    pytest.fail(said, pytrace=False)


def check_outcomes(measurements: Sequence[Measurement]) -> None:
    """The outcome of a test that replays a problem with all its kernels.

    What failed when it was recorded is no news, and fails no test: whether it is new to the baseline is the
    gate's to say. A problem none of whose kernels is ok is a known failure, or skipped where none failed.
    """
    __tracebackhide__ = True
    if any(one.ok for one in measurements):
        return
    if not measurements:
        pytest.skip("never recorded")
    failed = [one for one in measurements if one.status not in ("unsupported", "noisy")]
    first = (failed or measurements)[0]
    said = f"no kernel is ok: {first.kernel.short_name} is {first.status}"
    if first.detail:
        said += f": {first.detail}"
    if len(measurements) > 1:
        said += f", and {len(measurements) - 1} more"
    if failed:
        pytest.xfail(said)
    pytest.skip(said)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    plugin = metafunc.config.pluginmanager.get_plugin(_PLUGIN_NAME)
    if plugin is not None:
        plugin.parametrize(metafunc)


# ---- one session ------------------------------------------------------------------------------------


class SessionPlugin:
    """The hooks that only matter with --problem-set."""

    def __init__(self, config: pytest.Config, session: SweepSession, only_suite: bool) -> None:
        """only_suite: no tests but the plugin's own were asked for."""
        from tile_oracle.session import benchmark_bridge
        from tile_oracle.session.display import Display
        from tile_oracle.session.pairs_by_name import PairsByName
        from tile_oracle.session.progress import Progress
        from tile_oracle.session.record_warnings import RecordWarnings
        from tile_oracle.session.signals import StopSignals

        self.config = config
        self.session = session
        self.progress = Progress()
        self.display = Display(config)
        self.conclusions: list[Conclusion] = []
        self._analysed: Mapping[str, ReportData] = {}
        self.trouble = ""
        self._only_suite = only_suite
        self._selected: Counter[str] = Counter()
        self._planned = False
        self._budget_spent = False
        self._device_missing = False
        self._outcomes: frozenset[Outcome] = frozenset()
        self._notes: dict[str, None] = {}
        self._record_warnings = RecordWarnings(self._notes.setdefault)
        self._worker_trouble = False
        self._pairs_by_name = PairsByName(session.plan, str(config.getoption("keyword", "") or ""))
        self._is_worker = hasattr(config, "workerinput")
        self._is_controller = not self._is_worker and config.getoption("dist", "no") != "no"
        self._benchmark = benchmark_bridge
        self._scheduler: ProblemScheduling | None = None
        self._signals = StopSignals()
        self._stopped_workers: StoppedWorkers | None = None

    # -- collection --

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Tens of thousands of items are made here and none is thrown away: looking for garbage among
        them, again and again, would take a tenth of the time."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return (yield)
        finally:
            if was_enabled:
                gc.enable()

    def parametrize(self, metafunc: pytest.Metafunc) -> None:
        from tile_oracle.session.pair_id import pair_id

        names = [name for name in ("problem", "kernel") if _is_ours(metafunc, name)]
        plan = self.session.plan
        # Indirect: the values go through the fixtures, so that a project may build its own upon them.
        if names == ["problem", "kernel"]:
            pairs = list(plan.pairs())
            ids = [pair_id(problem, kernel) for problem, kernel in pairs]
            metafunc.parametrize(names, pairs, ids=ids, indirect=True)
        elif names == ["problem"]:
            of_suite = metafunc.definition.path == REPLAY_SUITE
            problems = [problem for problem in plan.problems if not of_suite or plan.asked(problem)]
            ids = [problem.id for problem in problems]
            metafunc.parametrize("problem", problems, ids=ids, indirect=True)
        elif names == ["kernel"]:
            kernels = [kernel for pool in plan.pools.values() for kernel in pool]
            ids = [kernel.name for kernel in kernels]
            metafunc.parametrize("kernel", kernels, ids=ids, indirect=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """-k chooses pairs in a replay as it does elsewhere, though a test there is about all kernels."""
        if not items or not all(map(_is_replay, items)) or not self._pairs_by_name.chooses:
            return
        kept = [item for item in items if self._pairs_by_name.kernels(_params(item)["problem"])]
        left_out = [item for item in items if not self._pairs_by_name.kernels(_params(item)["problem"])]
        if left_out:
            self.config.hook.pytest_deselected(items=left_out)
            items[:] = kept
        # It is done: pytest would look for the kernels' names in the names of tests.
        self.config.option.keyword = ""

    def replayed(self, node: pytest.Item, problem: Problem) -> list[Measurement]:
        __tracebackhide__ = True
        try:
            return self.session.replayed(problem, self._pairs_by_name.kernels(problem))
        except HarnessError as error:
            node.session.shouldstop = str(error)
            pytest.fail(str(error), pytrace=False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self.config.getoption("collectonly") or self._is_controller:
            return
        self._select_problems(_params(item)["problem"] for item in session.items if _is_replay(item))
        if self._selected:
            self._open_run()
        pairs = dict.fromkeys(pair for item in session.items if (pair := _pair(item)) is not None)
        self.session.select(pairs)
        self._plan((problem.id, kernel.short_name) for problem, kernel in pairs)
        if any("measure" in getattr(item, "fixturenames", ()) for item in session.items):
            self._open_run()
            self.session.build_ahead()

    def _select_problems(self, problems: Iterable[Problem]) -> None:
        """What is left to replay after selection."""
        for problem in problems:
            self._selected[problem.id] = len(self._pairs_by_name.kernels(problem))

    def _plan(self, pairs: Iterable[tuple[str, str]]) -> None:
        """pairs: problem id and kernel name, those that are left after selection, each once."""
        listed = list(pairs)
        self._selected.update(Counter(problem for problem, _ in listed))
        self.progress.plan(listed)

    def _open_run(self) -> Run:
        try:
            return self.session.open_run()
        except HarnessError as error:
            raise pytest.UsageError(str(error)) from None

    def pytest_report_collectionfinish(self) -> str | None:
        run = self.session.run
        quiet = self.config.get_verbosity() < 0
        if self.config.getoption("collectonly") and not quiet and self.session.is_judged:
            return f"reported after them: {', '.join(self._verdict_ids())}"
        return None if run is None or quiet else self.session.describe_run(run)

    def _verdict_ids(self) -> list[str]:
        from tile_oracle.session.verdict_items import item_ids

        return item_ids(SUITE_ID, self.session.set_names)

    # -- pytest-xdist --

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from tile_oracle.session.expected_time import expected_times
        from tile_oracle.session.scheduler import ProblemScheduling

        # Where a budget may end it, what is measured until then is what comes first in the problem set.
        by_time = self.session.deadline is None
        self._scheduler = ProblemScheduling(
            config, log, (lambda counts: expected_times(counts, self.session.run)) if by_time else None
        )
        return self._scheduler

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        from tile_oracle.record.owner import name_of_owner

        node.workerinput["tile_oracle_run"] = str(self._open_run().folder)
        node.workerinput["tile_oracle_owner"] = name_of_owner()
        node.workerinput["tile_oracle_deadline"] = self.session.deadline

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        from tile_oracle.session.pair_id import pair_of

        if self._planned:
            return  # every worker collects the same
        self._planned = True
        if self.session.replay is not None:
            named = {problem.id: problem for problem in self.session.plan.problems}
            self._select_problems(named[problem] for problem in _replayed_problems(ids) if problem in named)
        pairs = dict.fromkeys(map(pair_of, ids))
        self._plan((problem, kernel) for problem, kernel in pairs if problem and kernel)
        self.display.line(self.session.describe_run(self._open_run()))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        # A worker that was killed has no output.
        output = getattr(node, "workeroutput", {})
        self._budget_spent |= output.get("tile_oracle_budget_spent", False)
        self._device_missing |= output.get("tile_oracle_device_missing", False)
        self._worker_trouble |= output.get("tile_oracle_trouble", False)
        for note in output.get("tile_oracle_notes", ()):
            self._notes.setdefault(note)

    # -- running --

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        self._prepare_for_the_end()
        self.session.keep_samples = self._benchmark.wanted(self.config)
        if note := self._benchmark.why_not(self.config):
            self._notes.setdefault(note)
        if self._only_suite:
            self.display.take_over()

    def _prepare_for_the_end(self) -> None:
        """Whoever ends first, this session, its controller or its workers: the others end in order."""
        if self._is_worker:
            from tile_oracle.session.signals import end_with_parent

            end_with_parent()
            return
        self._signals.install()
        if self._is_controller:
            from tile_oracle.session.stopped_workers import StoppedWorkers

            self._stopped_workers = StoppedWorkers(lambda note: self._notes.setdefault(note))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        problem = _params(item).get("problem")
        if problem is None or not hasattr(problem, "op"):
            return None  # not about a problem, or about something of the project's own that is called so
        # Over the budget a test is neither run nor reported: the summary says how many are left.
        return True if self.session.over_budget(problem) else None

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        from tile_oracle.session.pair_id import pair_of

        if self._scheduler is not None:
            self._scheduler.begun(nodeid)
        self.display.status(self.progress.status(pair_of(nodeid)[0] or nodeid))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self._scheduler is not None:
            self._scheduler.ended(nodeid)

    def measure(self, node: pytest.Item, problem: Problem, kernel: Kernel) -> Measurement:
        __tracebackhide__ = True
        try:
            if self.session.replay is not None and self.session.replay.unrecorded(problem, (kernel,)):
                pytest.skip("this pair was never recorded")
            measurement = self.session.measure(problem, kernel)
        except KernelError:
            raise  # the test's own mistake
        except HarnessError as error:
            self._device_missing |= isinstance(error, DeviceMissingError)
            # Nothing can be measured or recorded any more: the other tests would all say the same.
            node.session.shouldstop = str(error)
            pytest.fail(str(error), pytrace=False)
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
            self._benchmark.report_samples(node, measurement)
        return measurement

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._is_worker or report.when != "call":
            return
        facts = dict(report.user_properties)
        if facts.keys() >= _PAIR_FACTS and (line := self.progress.finished(facts)) is not None:
            self.display.problem(line)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Generator[None, _Status, _Status]:
        """The sweep's pairs print no letters: the line a problem says more. -v shows every pair as usual."""
        category, letter, word = yield
        if self._only_suite and report.when == "call":
            return category, "", word
        return category, letter, word

    # -- the end --

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        interrupted = exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
        try:
            if interrupted and self._is_controller:
                self._stop_workers()
            self._settle(session, interrupted)
            self.session.close(interrupted=interrupted)
            self.display.clear()
            if self._signals.received:
                self.trouble = self._how_to_go_on(f"stopped by {self._signals.received}")
            elif not self._is_worker and not self.config.getoption("collectonly"):
                self._conclude(session, interrupted)
                if unsealed := self.session.unsealed():
                    self.trouble = unsealed
                if unsealed or self._worker_trouble:
                    self._outcomes |= {Outcome.FAILED}
        except HarnessError as error:
            self.trouble = str(error)
            self._outcomes |= {Outcome.FAILED}
        except KeyboardInterrupt:
            self.trouble = self._how_to_go_on("interrupted again before the report was written")
            exitstatus = session.exitstatus = pytest.ExitCode.INTERRUPTED
        if self._is_worker:
            output: dict[str, Any] = self.config.workeroutput  # type: ignore[attr-defined]
            output["tile_oracle_budget_spent"] = self.session.budget_spent
            output["tile_oracle_device_missing"] = self._device_missing
            output["tile_oracle_trouble"] = Outcome.FAILED in self._outcomes
            told = [*self.session.notes, *self._notes, *([self.trouble] if self.trouble else [])]
            output["tile_oracle_notes"] = told
        elif self._device_missing and exitstatus != pytest.ExitCode.INTERNAL_ERROR:
            session.exitstatus = gravest({Outcome.DEVICE_MISSING} - self.session.options.allowed)
        elif exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            # pytest's own 1 to 4 say more of the session than a verdict does.
            ended = gravest(self._outcomes - self.session.options.allowed)
            session.exitstatus = ended or exitstatus

    def _settle(self, session: pytest.Session, interrupted: bool) -> None:
        """Measure suspects again, before the worker goes; pytest-xdist's controller starts one for it."""
        if self._is_worker or self.config.getoption("collectonly") or self._signals.received:
            return
        if self._stopped(session, interrupted):
            return
        from tile_oracle.session.settle import settle

        self.display.status("measuring suspects again")
        try:
            settled = settle(self.session, self._selected)
        except HarnessError as error:
            # What is measured is judged as it is.
            self._notes.setdefault(f"suspects were not measured again: {error}")
            return
        self._analysed = settled.analysed
        if settled.note:
            self._notes.setdefault(settled.note)

    def _conclude(self, session: pytest.Session, interrupted: bool) -> None:
        """Verdicts, their test items and reports. Raises HarnessError."""
        from tile_oracle.session.conclusion import conclude
        from tile_oracle.session.verdict_items import report_items, verdict_items

        stopped = self._stopped(session, interrupted)
        self.conclusions = conclude(self.session, stopped, self._selected, self._analysed)
        self._tell_junit()
        self._outcomes = frozenset().union(*(one.outcomes for one in self.conclusions))
        if self._left_behind() > 0:
            self._outcomes |= {Outcome.FAILED}
        if stopped and not self.conclusions and not interrupted:
            # No verdict is no pass: a gate that is given no time must not look as if it held.
            self.trouble = f"nothing was measured: {stopped}"
            self._outcomes |= {Outcome.INCOMPLETE}
        if not self.conclusions or not self.session.is_judged:
            return
        ids = self._verdict_ids()
        session.testscollected += len(ids)
        share = len(ids) // len(self.conclusions)
        for place, one in enumerate(self.conclusions):
            own = ids[place * share : (place + 1) * share]
            report_items(self.config, verdict_items(own, one.data, one.accepted))

    def _stop_workers(self) -> None:
        """pytest-xdist does it too, but later: what they finish until then belongs to the report."""
        controller = self.config.pluginmanager.get_plugin("dsession")
        if controller is not None:
            if self._signals.received:
                # Ctrl-C reaches the workers by itself; a signal to the controller alone does not.
                from tile_oracle.session.worker_processes import worker_processes

                for pid in worker_processes():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGINT)
            controller.pytest_sessionfinish()

    def _left_behind(self) -> int:
        """Tests that no worker of pytest-xdist was left to run."""
        return 0 if self._scheduler is None else self._scheduler.unfinished

    def _how_to_go_on(self, why: str) -> str:
        """What a session says that ends without a report."""
        run = self.session.run
        if run is None or not run.measurements.is_dir():
            return f"{why}: nothing was measured"
        return (
            f"{why}: what was measured is in {run.folder}; the same command with --resume goes on from there"
        )

    def _stopped(self, session: pytest.Session, interrupted: bool) -> str:
        """Why the session ends before its last test, or ""."""
        controller = self.config.pluginmanager.get_plugin("dsession")
        reason = session.shouldstop or session.shouldfail or getattr(controller, "shouldstop", "")
        if reason or interrupted:
            return str(reason or "interrupted")
        if self.session.budget_spent or self._budget_spent:
            return f"the budget of {self.config.getoption('--budget')} is spent"
        if left := self._left_behind():
            return f"the workers of pytest-xdist died, and {left:,} tests were not run; --resume goes on"
        return ""

    def _tell_junit(self) -> None:
        """The verdict as properties of the JUnit test suite, when --junitxml is given."""
        from _pytest.junitxml import xml_key

        xml = self.config.stash.get(xml_key, None)
        if xml is None:
            return
        for conclusion in self.conclusions:
            data = conclusion.data
            prefix = f"tile_oracle.{data.run.problem_set}"
            xml.add_global_property(f"{prefix}.verdict", data.verdict.state)
            for criterion in data.verdict.criteria:
                outcome = {"pass": "passed", "fail": "failed"}.get(criterion.outcome, criterion.outcome)
                shown = outcome if criterion.value is None else f"{criterion.value:.6g} ({outcome})"
                xml.add_global_property(f"{prefix}.{criterion.name}", shown)
            for name in ("mean_percent", "median_percent", "p10_percent", "min_percent", "coverage_percent"):
                value = getattr(data.efficiency, name)
                if value is not None:
                    xml.add_global_property(f"{prefix}.{name}", f"{value:.6g}")

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        if self.trouble:
            terminalreporter.section("tile-oracle", red=True)
            terminalreporter.write_line(self.trouble)
        from tile_oracle.report.terminal import summary_lines
        from tile_oracle.session.closing import status_line

        for conclusion in self.conclusions:
            open_ones = conclusion.outcomes - self.session.options.allowed
            failed = Outcome.FAILED in open_ones
            terminalreporter.section(
                f"tile-oracle: {conclusion.data.run.problem_set}",
                red=failed,
                yellow=bool(open_ones) and not failed,
                green=not open_ones,
            )
            for line in summary_lines(conclusion.data, terminalreporter._tw.fullwidth):
                terminalreporter.write_line(line)
            if conclusion.baseline_note:
                terminalreporter.write_line(conclusion.baseline_note)
            self._say_outcomes(terminalreporter, conclusion)
        for note in dict.fromkeys([*self.session.notes, *self._notes]):
            terminalreporter.write_line(f"note: {note}")
        status = int(getattr(terminalreporter._session, "exitstatus", 0))
        if said := status_line(self._outcomes - self.session.options.allowed, status):
            terminalreporter.write_line(said)

    def _say_outcomes(self, terminalreporter: TerminalReporter, conclusion: Conclusion) -> None:
        from tile_oracle.session.closing import closing_lines

        lines = closing_lines(
            conclusion,
            self.session.options.allowed,
            list(self.config.invocation_params.args),
            self.session.replay is not None,
        )
        if lines:
            terminalreporter.write_line("")
        for line in lines:
            terminalreporter.write_line(line)

    def pytest_report_header(self) -> list[str]:
        session, plan = self.session, self.session.plan
        kernels = sum(len(pool) for pool in plan.pools.values())
        sets = ", ".join(f"{part.name} ({len(part.problems)} problems)" for part in plan.sets)
        listed = "" if plan.listed_count is None else f", {plan.listed_count} of them listed in --pairs"
        lines = [
            f"tile-oracle: {sets} x {session.options.kernel_set} ({kernels} kernels) = "
            f"{plan.pair_count} pairs{listed}",
            f"target: {session.target.name} ({session.target_reason}), {session.describe_build()}",
            *(session.replay.recording.lines() if session.replay is not None else ()),
            f"model: {', '.join(dict.fromkeys(choice.name for choice in session.models))}",
        ]
        return lines

    def pytest_unconfigure(self) -> None:
        try:
            self.session.close(interrupted=True)
        finally:
            self._record_warnings.stop()
            self.session.release()
        if self._stopped_workers is not None:
            self._stopped_workers.close()
        self._signals.remove()


def _is_ours(metafunc: pytest.Metafunc, name: str) -> bool:
    """Whether the values of a test's fixture are the plugin's to give.

    They are not where the test's project has a fixture of this name (unless that one asks for the plugin's
    own, to build upon it), nor where the test itself is parametrized by this name.
    """
    definitions = metafunc.definition._fixtureinfo.name2fixturedefs.get(name, ())
    places = [place for place, one in enumerate(definitions) if one.func.__module__ == __name__]
    if name not in metafunc.fixturenames or not places:
        return False
    if any(name not in one.argnames for one in definitions[places[-1] + 1 :]):
        return False
    for mark in metafunc.definition.iter_markers("parametrize"):
        named = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        if name in ([word.strip() for word in named.split(",")] if isinstance(named, str) else named):
            return False
    return True


def _is_replay(item: pytest.Item) -> bool:
    """Whether a test is the replay suite's own."""
    return item.path == REPLAY_SUITE and "problem" in _params(item)


def _replayed_problems(ids: Iterable[str]) -> list[str]:
    """The problems of the replay suite's tests."""
    begin = f"{SUITE_ID}::test_problem["
    return [one[len(begin) : -1] for one in ids if one.startswith(begin)]


def _params(item: pytest.Item) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else callspec.params


def _pair(item: pytest.Item) -> tuple[Problem, Kernel] | None:
    """The problem and kernel that a test will surely ask for: it is parametrized by them, and measures."""
    params = _params(item)
    if not {"problem", "kernel"} <= params.keys() or "measure" not in getattr(item, "fixturenames", ()):
        return None
    for name in ("problem", "kernel"):
        last = item._fixtureinfo.name2fixturedefs[name][-1]  # type: ignore[attr-defined]
        # A fixture of the project's own may turn the value into another one.
        if not hasattr(params[name], "op") or last.func.__module__ not in (__name__, "_pytest.python"):
            return None
    return params["problem"], params["kernel"]
