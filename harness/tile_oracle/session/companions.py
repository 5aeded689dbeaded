"""Other plugins: those that a session cannot run with, and pytest-benchmark, which gets kernel times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tile_oracle.measure.measurement import Measurement
from tile_oracle.session.pytest_private import TerminalReporter, benchmark_session


def check_companions(config: pytest.Config, *, measures: bool) -> None:
    """Raises UsageError with one line about the first that the session cannot run with. measures: whether
    kernels run; a replay opens no socket and runs its tests in any thread."""
    for why in _unsupported(config, measures):
        raise pytest.UsageError(f"tile-oracle does not work with {why}")


def _unsupported(config: pytest.Config, measures: bool) -> Iterator[str]:
    asked = config.getoption
    if asked("forked", False):
        yield (
            "--forked (pytest-forked): what a test records would be lost with its process. Leave it out: "
            "kernels run in a process of their own anyway"
        )
    if measures and asked("disable_socket", False) and not asked("allow_unix_socket", False):
        yield (
            "--disable-socket (pytest-socket): kernels run in a process behind a socket. Add "
            "--allow-unix-socket"
        )
    if measures and asked("parallel_threads", 1) not in (1, "1"):
        yield (
            "--parallel-threads (pytest-run-parallel): each kernel is timed alone. Leave it out, or use -n "
            "of pytest-xdist"
        )
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not isinstance(reporter, TerminalReporter):
        module = type(reporter).__module__
        without = f"-p no:{_name(config, module)}"
        yield f"{module}, which replaces pytest's terminal reporter. Leave it out: {without}"


def _name(config: pytest.Config, module: str) -> str:
    """Returns the name by which `-p no:` leaves the plugin of a module out."""
    for name, plugin in config.pluginmanager.list_name_plugin():
        if getattr(plugin, "__name__", "") == module:
            return name
    return module


_WANTED_BY = ("json", "save", "autosave", "compare", "histogram")


def wants_samples(config: pytest.Config) -> bool:
    """Returns whether an option of pytest-benchmark asks for results; otherwise its table would be noise.

    Decided at the session's start, because pytest-benchmark is configured last.
    """
    return _asked(config) and _is_on(config)


def why_no_samples(config: pytest.Config) -> str:
    """Returns a note for users whose options of pytest-benchmark have no effect; "" if they have one."""
    if not _asked(config) or _is_on(config):
        return ""
    return (
        "pytest-benchmark is switched off (by -n, or by an option): its options have no effect on this run; "
        "the kernels' times are in the run's measurements"
    )


def _asked(config: pytest.Config) -> bool:
    options = (*_WANTED_BY, "enable")
    return any(config.getoption(f"benchmark_{name}", None) for name in options)


def _is_on(config: pytest.Config) -> bool:
    session = getattr(config, "_benchmarksession", None)
    return session is not None and not session.disabled and not session.skip


def report_samples(node: pytest.Item, measurement: Measurement) -> None:
    """Reports a measurement's samples as the benchmark of a test.

    pytest-benchmark runs in pedantic mode with a timer that replays the samples.
    """
    from pytest_benchmark.fixture import BenchmarkFixture
    from pytest_benchmark.utils import NameWrapper

    samples = measurement.sample_ms
    if not samples:
        return
    session: Any = benchmark_session(node.config)
    clock = _replay(samples)

    def kernel_time() -> float:
        return next(clock)

    options = {**session.options, "timer": NameWrapper(kernel_time), "warmup": False}
    fixture = BenchmarkFixture(
        node,
        add_stats=session.benchmarks.append,
        logger=session.logger,
        warner=node.warn,
        disabled=False,
        group=measurement.problem.id,
        **options,
    )
    fixture.params = {"problem": measurement.problem.id, "kernel": measurement.kernel.name}
    fixture.extra_info = {"tflops": measurement.tflops, "status": measurement.status}
    fixture.pedantic(_nothing, rounds=len(samples), iterations=1)


def _nothing() -> None:
    """The function that pytest-benchmark times."""


def _replay(samples_ms: tuple[float, ...]) -> Iterator[float]:
    """Start and end of each sample in seconds, as a timer would return them."""
    now = 0.0
    for sample in samples_ms:
        yield now
        yield now + sample / 1000
        now += sample / 1000 + 1.0
    while True:
        yield now
