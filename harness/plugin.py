"""The pytest plugin `tile_oracle`: hooks and fixtures that delegate to harness.session.

This module is imported by every pytest run of an environment that has tile-oracle, so it imports nothing
heavy until --problem-set is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.errors import HarnessError
from harness.session.options import add_options, read_options
from harness.session.progress import Progress

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from harness.kernel import GroupedConvKernel
    from harness.measure.measurement import Measurement
    from harness.problem import GroupedConvProblem
    from harness.session.conclusion import Conclusion
    from harness.session.sweep import SweepSession

    Measure = Callable[[GroupedConvProblem, GroupedConvKernel], Measurement]
else:
    Measure = Callable

SUITE = Path(__file__).parent / "suite" / "test_kernels.py"
SUITE_ID = "tile_oracle"
"""What the suite's tests are called, wherever the package lies: tile_oracle::test_kernel[...]."""

_PLUGIN_NAME = "tile_oracle_session"


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tile_oracle: tests of kernels on problems (given by the plugin)")
    if not config.getoption("--problem-set"):
        return
    from harness.session.sweep import SweepSession

    worker_input = getattr(config, "workerinput", {})
    try:
        session = SweepSession(
            read_options(config),
            deadline=worker_input.get("tile_oracle_deadline"),
            run_folder=worker_input.get("tile_oracle_run"),
        )
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from None
    _name_suite(config)
    config.pluginmanager.register(SessionPlugin(config, session), _PLUGIN_NAME)


def _name_suite(config: pytest.Config) -> None:
    """Without test files on the command line the suite runs; its test ids may be given as they are shown."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args[:] = [str(SUITE)]
        return
    prefix = SUITE_ID + "::"
    config.args[:] = [
        str(SUITE) + arg[len(SUITE_ID) :] if arg.startswith(prefix) else arg for arg in config.args
    ]


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if module_path == SUITE:
        module: pytest.Module = pytest.Module.from_parent(parent, path=module_path, nodeid=SUITE_ID)
        return module
    return None


# ---- fixtures ---------------------------------------------------------------------------------------


@pytest.fixture
def problem(request: pytest.FixtureRequest) -> GroupedConvProblem:
    """A problem of --problem-set (harness.problem.GroupedConvProblem); tests run once for each."""
    chosen: GroupedConvProblem = _parameter(request)
    return chosen


@pytest.fixture
def kernel(request: pytest.FixtureRequest) -> GroupedConvKernel:
    """A kernel of --kernel-set that is a candidate for `problem` (harness.kernel.GroupedConvKernel)."""
    chosen: GroupedConvKernel = _parameter(request)
    return chosen


def _parameter(request: pytest.FixtureRequest) -> Any:
    if not hasattr(request, "param"):
        pytest.skip("needs --problem-set, e.g. pytest --problem-set forward_smoke")
    return request.param


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Measure:
    """measure(problem, kernel) -> harness.measure.measurement.Measurement: built, run in isolation, checked,
    timed and recorded; made once a session, however often it is asked for."""
    plugin = request.config.pluginmanager.get_plugin(_PLUGIN_NAME)
    if plugin is None:
        pytest.skip("needs --problem-set, e.g. pytest --problem-set forward_smoke")
    node = request.node
    return lambda problem, kernel: plugin.measure(node, problem, kernel)


def check_outcome(measurement: Measurement) -> None:
    """The outcome of a test that is about one measurement: passes, skips, fails, or is a known failure."""
    __tracebackhide__ = True
    status, detail = measurement.status, measurement.detail
    if status == "ok":
        return
    if status in ("unsupported", "noisy"):
        pytest.skip(f"{status}: {detail}")
    known = getattr(measurement, "known_failure", None)
    if known is not None:
        pytest.xfail(f"known since the baseline ({known}): {status}: {detail}")
    pytest.fail(f"{status}: {detail}", pytrace=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    plugin = metafunc.config.pluginmanager.get_plugin(_PLUGIN_NAME)
    if plugin is not None:
        plugin.parametrize(metafunc)


# ---- one session ------------------------------------------------------------------------------------


class SessionPlugin:
    """The hooks that only matter with --problem-set."""

    def __init__(self, config: pytest.Config, session: SweepSession) -> None:
        from harness.session import benchmark_bridge

        self.config = config
        self.session = session
        self.progress = Progress()
        self.conclusions: list[Conclusion] = []
        self.trouble = ""
        self._selected: Counter[str] = Counter()
        self._is_worker = hasattr(config, "workerinput")
        self._is_controller = not self._is_worker and config.getoption("dist", "no") != "no"
        self._benchmark = benchmark_bridge
        session.keep_samples = benchmark_bridge.wanted(config)

    # -- collection --

    def parametrize(self, metafunc: pytest.Metafunc) -> None:
        names = [name for name in ("problem", "kernel") if self._is_ours(metafunc, name)]
        plan = self.session.plan
        if names == ["problem", "kernel"]:
            pairs = list(plan.pairs())
            ids = [f"{problem.id}-{kernel.short_name}" for problem, kernel in pairs]
            metafunc.parametrize(("problem", "kernel"), pairs, ids=ids)
        elif names == ["problem"]:
            metafunc.parametrize("problem", plan.problems, ids=[problem.id for problem in plan.problems])
        elif names == ["kernel"]:
            kernels = [kernel for pool in plan.pools.values() for kernel in pool]
            metafunc.parametrize("kernel", kernels, ids=[kernel.name for kernel in kernels])

    @staticmethod
    def _is_ours(metafunc: pytest.Metafunc, name: str) -> bool:
        """Whether the test's fixture of this name is the plugin's, not one that its own project defines."""
        if name not in metafunc.fixturenames:
            return False
        definitions = metafunc.definition._fixtureinfo.name2fixturedefs.get(name, ())
        return bool(definitions) and definitions[-1].func.__module__ == __name__

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self.config.getoption("collectonly") or self._is_controller:
            return
        pairs = [
            (params["problem"], params["kernel"])
            for item in session.items
            if (params := _params(item)) is not None and "kernel" in params and "problem" in params
        ]
        self.session.select(list(dict.fromkeys(pairs)), 0)
        self._selected = Counter(problem.id for problem, _ in dict.fromkeys(pairs))
        self.progress.plan(problem.id for problem, _ in pairs)
        if not session.items:
            return
        try:
            self.session.open_run()
        except HarnessError as error:
            raise pytest.UsageError(str(error)) from None
        self.session.build_ahead()

    # -- pytest-xdist --

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        if config.getoption("dist") not in ("load", "worksteal", "loadscope"):
            return None
        from harness.session.scheduler import ProblemScheduling

        return ProblemScheduling(config, log)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["tile_oracle_run"] = str(self.session.open_run().folder)
        node.workerinput["tile_oracle_deadline"] = self.session.deadline

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        from harness.session.scheduler import problem_of

        problems = [problem for nodeid in ids if (problem := problem_of(nodeid)) is not None]
        if not self._selected:
            self._selected = Counter(problems)
            self.progress.plan(problems)

    # -- running --

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        params = _params(item)
        if params is None or "problem" not in params:
            return None
        # Over the budget a test is neither run nor reported: the summary says how many are left.
        return True if self.session.over_budget(params["problem"]) else None

    def measure(
        self, node: pytest.Item, problem: GroupedConvProblem, kernel: GroupedConvKernel
    ) -> Measurement:
        try:
            measurement = self.session.measure(problem, kernel)
        except HarnessError as error:
            pytest.exit(str(error), returncode=pytest.ExitCode.INTERNAL_ERROR)
        facts = {
            "problem": problem.id,
            "kernel": kernel.short_name,
            "status": measurement.status,
            "tflops": measurement.tflops if measurement.tflops > 0 else None,
            "latency_ms": measurement.latency_ms if measurement.latency_ms > 0 else None,
        }
        node.user_properties.extend((name, value) for name, value in facts.items() if value is not None)
        if self.session.keep_samples:
            self._benchmark.report_samples(node, measurement)
        return measurement

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._is_worker or report.when != "call":
            return
        facts = dict(report.user_properties)
        if "problem" in facts and (line := self.progress.finished(facts)) is not None:
            self._show(line)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Passing pairs print no dot: the line a problem says more. -v shows every pair as usual."""
        if report.when == "call" and report.passed and report.nodeid.split("::")[0] == SUITE_ID:
            return "passed", "", "PASSED"
        return None

    def _show(self, line: str) -> None:
        reporter: TerminalReporter | None = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or reporter.verbosity < 0:
            return
        # Not write_line: it would make pytest name the file again before the next test.
        if reporter._tw.width_of_current_line:
            reporter.write("\n")
        reporter.write(line + "\n", flush=True)

    # -- the end --

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        interrupted = exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
        self.session.close(interrupted=interrupted)
        if self._is_worker or self.config.getoption("collectonly") or self.session.run is None:
            return
        from harness.session.conclusion import conclude

        stopped = self._stopped(session, interrupted)
        try:
            self.conclusions = conclude(self.session, stopped, self._selected)
        except HarnessError as error:
            self.trouble = str(error)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            return
        self._tell_junit()
        nothing_failed = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if any(conclusion.data.verdict.failed for conclusion in self.conclusions) and nothing_failed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _stopped(self, session: pytest.Session, interrupted: bool) -> str:
        deadline = self.session.deadline
        if deadline is not None and self.progress.pairs_left and not interrupted:
            return f"the budget of {self.config.getoption('--budget')} is spent"
        if interrupted or session.shouldstop or session.shouldfail:
            return str(session.shouldstop or session.shouldfail or "interrupted")
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
                outcome = {True: "passed", False: "failed", None: "not applied"}[criterion.passed]
                xml.add_global_property(f"{prefix}.{criterion.name}", f"{criterion.value} ({outcome})")
            for name in ("mean_percent", "median_percent", "p10_percent", "min_percent"):
                xml.add_global_property(f"{prefix}.{name}", str(getattr(data.efficiency, name)))

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        if self.trouble:
            terminalreporter.section("tile-oracle", red=True)
            terminalreporter.write_line(self.trouble)
        from harness.report.terminal import summary_lines

        for conclusion in self.conclusions:
            failed = conclusion.data.verdict.failed
            terminalreporter.section(
                f"tile-oracle: {conclusion.data.run.problem_set}", red=failed, green=not failed
            )
            for line in summary_lines(conclusion.data, terminalreporter._tw.fullwidth):
                terminalreporter.write_line(line)
            if conclusion.baseline_note:
                terminalreporter.write_line(conclusion.baseline_note)
        for note in self.session.notes:
            terminalreporter.write_line(f"note: {note}")

    def pytest_report_header(self) -> list[str]:
        session, plan = self.session, self.session.plan
        kernels = sum(len(pool) for pool in plan.pools.values())
        sets = ", ".join(f"{part.name} ({len(part.problems)} problems)" for part in plan.sets)
        lines = [
            f"tile-oracle: {sets} x {session.options.kernel_set} ({kernels} kernels) = "
            f"{plan.pair_count} pairs",
            f"target: {session.target.name} ({session.target_reason}), {session.describe_build()}",
            f"model: {', '.join(dict.fromkeys(choice.name for choice in session.models))}",
        ]
        return lines

    def pytest_unconfigure(self) -> None:
        self.session.close(interrupted=True)


def _params(item: pytest.Item) -> dict[str, Any] | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params
