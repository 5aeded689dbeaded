"""The pytest plugin `tile_oracle`: options, fixtures and registration; the hooks are in session/.

This module is imported by every pytest run of an environment that has tile-oracle, so it imports nothing
heavy until --problem-set or --oracle is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from tile_oracle.errors import DeviceMissingError, HarnessError
from tile_oracle.session.options import add_options, meant_options, option_flags, read_options
from tile_oracle.session.outcome import Outcome, read_allowed
from tile_oracle.session.pytest_private import rewrite_no_module_of
from tile_oracle.session.suite_names import REPLAY_SUITE, SUITE, SUITE_ID, is_only_suite, name_suite

if TYPE_CHECKING:
    from tile_oracle.kernel import Kernel
    from tile_oracle.measure.measurement import Measurement
    from tile_oracle.problem import Problem

    Measure = Callable[[Problem, Kernel], Measurement]
    Replayed = Callable[[Problem], Sequence[Measurement]]
else:
    Measure = Replayed = Callable

_PLUGIN_NAME = "tile_oracle_session"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    rewrite_no_module_of("tile_oracle", pluginmanager)
    add_options(parser)


def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Puts the project's defaults before the arguments, which override them."""
    from tile_oracle.session.project_defaults import default_arguments
    from tile_oracle.session.pytest_private import say_with_usage_errors

    if meant := meant_options(args):
        say_with_usage_errors(early_config, "did you mean", " ".join(meant))
    try:
        args[:0] = default_arguments(early_config.rootpath, option_flags())
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tile_oracle: tests of kernels on problems (given by the plugin)")
    if config.getoption("--problem-set") is None and config.getoption("--oracle") is None:
        return
    if config.getoption("dist", "no") == "each":
        raise pytest.UsageError("--dist each would measure every pair once a worker: use -n with --dist load")
    from tile_oracle.arrow_memory import keep_arrow_small

    keep_arrow_small()
    from tile_oracle.collector import paused_collector
    from tile_oracle.session.collecting import CollectionHooks
    from tile_oracle.session.distributing import DistributionHooks
    from tile_oracle.session.ending import EndHooks
    from tile_oracle.session.opening import open_session
    from tile_oracle.session.running import RunningHooks
    from tile_oracle.session.shown_waits import waits_shown
    from tile_oracle.session.state import SessionState

    worker_input = getattr(config, "workerinput", {})
    try:
        with waits_shown(config), paused_collector():
            session = open_session(
                read_options(config),
                deadline=worker_input.get("tile_oracle_deadline"),
                run_folder=worker_input.get("tile_oracle_run"),
                run_owner=worker_input.get("tile_oracle_owner", ""),
                offers_folder=worker_input.get("tile_oracle_run"),
            )
    except DeviceMissingError as error:
        _end_without_device(config, str(error))
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from None
    name_suite(config, session.suite)
    state = SessionState(config, session, is_only_suite(config.args))
    config.pluginmanager.register(RunningHooks(state), _PLUGIN_NAME)
    for hooks in (CollectionHooks(state), DistributionHooks(state), EndHooks(state)):
        config.pluginmanager.register(hooks)


def _end_without_device(config: pytest.Config, why: str) -> NoReturn:
    """Ends the session before anything runs. Raises UsageError for an invalid --allow."""
    try:
        allowed = Outcome.DEVICE_MISSING in read_allowed(",".join(config.getoption("--allow") or ()))
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from None
    pytest.exit(why, returncode=0 if allowed else Outcome.DEVICE_MISSING)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if module_path in (SUITE, REPLAY_SUITE):
        module: pytest.Module = pytest.Module.from_parent(parent, path=module_path, nodeid=SUITE_ID)
        return module
    return None


# ---- fixtures ---------------------------------------------------------------------------------------


@pytest.fixture
def problem(request: pytest.FixtureRequest) -> Problem:
    """A problem of --problem-set (tile_oracle.problem.Problem); tests run once for each."""
    chosen: Problem = _parameter(request)
    return chosen


@pytest.fixture
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """A kernel of --kernel-set that is a candidate for `problem` (tile_oracle.kernel.Kernel)."""
    chosen: Kernel = _parameter(request)
    return chosen


def _parameter(request: pytest.FixtureRequest) -> Any:
    if not hasattr(request, "param"):
        pytest.skip("needs --problem-set, e.g. pytest --problem-set forward_smoke")
    return request.param


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Measure:
    """measure(problem, kernel) -> measure.measurement.Measurement: builds the kernel, runs it in isolation,
    checks, times and records it. Each pair is measured once per session; further calls return that result."""
    plugin = request.config.pluginmanager.get_plugin(_PLUGIN_NAME)
    if plugin is None:
        pytest.skip("needs --problem-set, e.g. pytest --problem-set forward_smoke")
    node = request.node
    return lambda problem, kernel: plugin.measure(node, problem, kernel)


@pytest.fixture
def replayed(request: pytest.FixtureRequest) -> Replayed:
    """replayed(problem) -> the recorded measurements (measure.measurement.Measurement) of the session's
    kernels on this problem, in a session that replays records."""
    plugin = request.config.pluginmanager.get_plugin(_PLUGIN_NAME)
    if plugin is None or plugin.session.suite != REPLAY_SUITE:
        pytest.skip("needs recorded measurements, e.g. pytest --problem-set forward_smoke --oracle FILE")
    return lambda problem: plugin.replayed(request.node, problem)
