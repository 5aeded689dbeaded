"""The pytest plugin `tile_oracle`: options, fixtures and registration; the hooks are in session/.

This module is imported by every pytest run of an environment that has tile-oracle, so it imports nothing
heavy until --problem-set or --oracle is given.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from tile_oracle.errors import DeviceMissingError, HarnessError
from tile_oracle.session.asked_devices import devices_of, take_devices
from tile_oracle.session.command_line import decide_status, final_status, is_decided, only_shows
from tile_oracle.session.items import REPLAY_SUITE, is_only_suite, name_suite
from tile_oracle.session.option_names import OptionNames, is_session, register_all_now
from tile_oracle.session.options import option_value, read_options
from tile_oracle.session.outcome import Outcome, read_allowed
from tile_oracle.session.pytest_private import is_loading_conftests, rewrite_no_module_of

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
    if is_loading_conftests(pluginmanager):
        register_all_now(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None]:
    """Registers the options, and puts the project's defaults before the arguments, which override them."""
    names = OptionNames(early_config, parser, args)
    names.open()
    try:
        yield
    except SystemExit as ended:  # of a conftest
        if ended.code or not names.opens or only_shows(early_config):
            raise
        sys.stderr.write(
            "tile-oracle: a conftest or plugin ended pytest with 0 before anything was measured\n"
        )
        raise SystemExit(int(Outcome.NOTHING_MEASURED)) from None
    names.close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, int | None, int | None]:
    """Makes -n the number of devices, and has the last word on the exit status: whatever else ended pytest
    with 0, the gate stays closed."""
    if is_session(config) and not hasattr(config, "workerinput"):
        take_devices(config)
    try:
        status = yield
    except SystemExit as ended:  # of a hook after the last test: pytest itself catches earlier ones
        if ended.code:
            raise
        status = 0
    if status != 0 or not is_session(config) or hasattr(config, "workerinput"):
        return status
    if closed := final_status(config):
        why = f"pytest was ended with 0 without a verdict: exit status {closed}"
        sys.stderr.write(f"tile-oracle: {why}\n")
        path = option_value(config, "--report-json")
        if path is not None and not is_decided(config):
            from tile_oracle.session.published import write_report_json

            write_report_json(
                config.invocation_params.dir / path, (), frozenset({Outcome(closed)}), closed, why
            )
    return closed


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tile_oracle: tests of kernels on problems (given by the plugin)")
    if not is_session(config):
        return
    if config.getoption("dist", "no") == "each":
        raise pytest.UsageError("--dist each would measure every pair once a worker: use -n with --dist load")
    from tile_oracle.process.arrow_memory import keep_arrow_small

    keep_arrow_small()
    from tile_oracle.process.collector import paused_collector
    from tile_oracle.session.display import waits_shown

    with waits_shown(config), paused_collector():  # what is imported and read here stays
        from tile_oracle.process.optimized import refuse_missing_docstrings
        from tile_oracle.session.collecting import CollectionHooks
        from tile_oracle.session.distributing import DistributionHooks
        from tile_oracle.session.ending import EndHooks
        from tile_oracle.session.opening import open_session
        from tile_oracle.session.running import RunningHooks
        from tile_oracle.session.state import SessionState

        try:
            refuse_missing_docstrings()
            process = getattr(config, "workerinput", {}).get("tile_oracle", {})
            session = open_session(read_options(config), devices=devices_of(config), **process)
        except DeviceMissingError as error:
            _end_without_device(config, str(error))
        except HarnessError as error:
            raise pytest.UsageError(str(error)) from None
    is_beside = name_suite(config, session.suite)
    state = SessionState(config, session, is_only_suite(config.args), is_beside)
    config.pluginmanager.register(RunningHooks(state), _PLUGIN_NAME)
    for hooks in (CollectionHooks(state), DistributionHooks(state), EndHooks(state)):
        config.pluginmanager.register(hooks)


def _end_without_device(config: pytest.Config, why: str) -> NoReturn:
    """Ends the session before anything runs. Raises UsageError for an invalid --allow."""
    try:
        allowed = Outcome.DEVICE_MISSING in read_allowed(",".join(option_value(config, "--allow") or ()))
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from None
    status = 0 if allowed else int(Outcome.DEVICE_MISSING)
    decide_status(config, status)
    pytest.exit(why, returncode=status)


# ---- fixtures ---------------------------------------------------------------------------------------


@pytest.fixture
def problem(request: pytest.FixtureRequest) -> Problem:
    """Returns a problem of --problem-set (tile_oracle.problem.Problem); tests run once for each."""
    chosen: Problem = _parameter(request)
    return chosen


@pytest.fixture
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """Returns a kernel of --kernel-set that is a candidate for `problem` (tile_oracle.kernel.Kernel)."""
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
    return partial(plugin.measure, request.node)


@pytest.fixture
def replayed(request: pytest.FixtureRequest) -> Replayed:
    """replayed(problem) -> the recorded measurements (measure.measurement.Measurement) of the session's
    kernels on this problem, in a session that replays records."""
    plugin = request.config.pluginmanager.get_plugin(_PLUGIN_NAME)
    if plugin is None or plugin.session.suite != REPLAY_SUITE:
        pytest.skip("needs recorded measurements, e.g. pytest --problem-set forward_smoke --oracle FILE")
    return lambda problem: plugin.replayed(request.node, problem)
