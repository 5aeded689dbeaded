"""The harness's own processor time a pair on the CPU, and its ratio to that of another version.

    python benchmarks/own_time.py --against CHECKOUT

Both versions measure the same small problems with the same kernels, which run for microseconds, so nearly all
of the processor time is the harness's: of this process and of its worker, without their start. Versions take
turns, and the medians of the rounds are compared. Processor time depends less on other load than wall time.
The cost of comparing the clock's code, once a pair, is timed in this version's process.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SAMPLES = 7


def _module(name: str) -> Any:
    """A module of the version in PYTHONPATH's first folder."""
    return importlib.import_module(f"tile_oracle.{name}")


def _processes() -> Iterator[int]:
    """This process and its descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
        children.setdefault(parent, []).append(int(path.parent.name))
    left = [os.getpid()]
    while left:
        yield (one := left.pop())
        left += children.get(one, [])


def _cpu_s() -> float:
    """Processor time of this process and its descendants, all threads."""
    spent = 0
    for process in _processes():
        for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
            spent += int(path.read_text().split()[0])
    return spent / 1e9


def measure(problem_count: int, build_dir: Path) -> dict[str, float]:
    """Sweeps small problems; returns own_ms_a_pair, clock_check_us and pairs."""
    problem_type = _module("operations.grouped_conv.problem").GroupedConvProblem
    problems = [
        problem_type("forward", "fp32", 2, 1, 8, 8, 1, 4 + i % 16, 4 + i // 16, 3, 3, pad_h=1, pad_w=1)
        for i in range(problem_count + 1)
    ]
    targets, run = _module("targets"), _module("record.run")
    target, _ = targets.resolve_target("cpu", targets.TargetOptions(build_dir=build_dir))
    kind = _module("operation").Kind.of("grouped_conv", direction="forward", dtype="fp32", ndim=2)
    kernels = _module("pool").pool_of_kind(kind, "cpu", "tiny")
    with tempfile.TemporaryDirectory() as reports:
        opened = run.open_run(Path(reports), {}, stem="own", name=None, resume=False)
        log = run.RunLog(opened, "main")
        timing = _module("measure.timing_plan").TimingPlan(budget_ms=0.2, exact_samples=_SAMPLES)
        settings = _module("measure.sweep_settings").SweepSettings(timing=timing)
        supervisor_type = _module("measure.supervisor").Supervisor
        supervisor = supervisor_type(target, settings, opened.measurements)
        pair = _measure(supervisor, problems, kernels, log)
        importlib.import_module("pandas")  # as in a session; pyarrow would import it in the first part
        for kernel in kernels:  # compiles, starts the worker and loads the kernels
            assert pair(problems[0], kernel).status in ("ok", "noisy")
        before = _cpu_s()
        for problem in problems[1:]:
            for kernel in kernels:
                pair(problem, kernel)
        spent = _cpu_s() - before
        log.close()
        supervisor.close()
        target.close()
    pairs = problem_count * len(kernels)
    return {"own_ms_a_pair": 1e3 * spent / pairs, "clock_check_us": _clock_check_us(), "pairs": pairs}


def _measure(supervisor: Any, problems: Any, kernels: Any, log: Any) -> Any:
    """`measure(problem, kernel)` of the version's driver."""
    builds = _module("measure.builds").Builds(supervisor.target)
    engine = _module("measure.own_device").OwnDevice(supervisor, log.run.name, builds)
    driver_of = _module("measure.driver")
    asked: tuple[Any, ...] = (lambda kind: lambda problem: (), supervisor.row_of, supervisor.settings)
    driver = driver_of.Driver(engine, builds, log, *asked, in_order=True, in_turn=True)
    driver.start(driver_of.ProblemTask(problem, kernels, 1.0) for problem in problems)
    return driver.measure


def _clock_check_us() -> float:
    clock = _module("device.native_clock").NativeClock()
    taken = []
    for _ in range(2000):
        began = time.thread_time_ns()
        clock.changed()
        taken.append(time.thread_time_ns() - began)
    return statistics.median(taken) / 1e3


def _in(checkout: Path, problem_count: int, build_dir: Path) -> dict[str, float]:
    """`measure` with the version in this checkout."""
    command = [sys.executable, __file__, "--measure", str(problem_count), "--build-dir", str(build_dir)]
    path = os.pathsep.join([str(checkout / "harness"), str(checkout)])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, cwd=build_dir, stdout=subprocess.PIPE, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Prints the medians of both versions and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another version")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--measure", type=int, metavar="N", help="only this version, N problems, as JSON")
    parser.add_argument("--build-dir", type=Path, metavar="DIR")
    options = parser.parse_args()
    if options.measure:
        sys.path[:] = [one for one in sys.path if Path(one or ".").resolve() != Path(__file__).parent]
        print(json.dumps(measure(options.measure, options.build_dir)))
        return
    versions = {"this version": Path(__file__).parents[1]}
    if options.against:
        versions["the other"] = options.against.resolve()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in versions}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(options.rounds):
            for name, checkout in versions.items():
                build = Path(scratch) / name.replace(" ", "-")
                build.mkdir(exist_ok=True)
                found[name].append(_in(checkout, options.problems, build))
    own = {name: statistics.median(one["own_ms_a_pair"] for one in rows) for name, rows in found.items()}
    for name, rows in found.items():
        each = ", ".join(f"{one['own_ms_a_pair']:.2f}" for one in rows)
        print(f"{name}: {own[name]:.3f} ms of processor time a pair, {rows[0]['pairs']:.0f} pairs ({each})")
    check_us = statistics.median(one["clock_check_us"] for one in found["this version"])
    share = 100 * check_us / 1e3 / own["this version"]
    print(f"the clock's code compared once a pair: {check_us:.1f} us, {share:.2f} % of the own time")
    if options.against:
        print(f"ratio: {own['this version'] / own['the other']:.2f}")


if __name__ == "__main__":
    main()
