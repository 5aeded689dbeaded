"""What the harness itself costs: a measured pair (goal: under 1.5 ms), a collection of 90,000 pairs
(goal: under 8 s and 1 GB), beside what plain pytest costs, and what pytest itself takes for 136,200 tests.

Own time of a pair: wall time minus what the worker spent inside kernels; all binaries come from the cache.
Any other load on the machine is counted as the harness's own, so run this on an idle one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.measure.own_driver import own_driver
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.measure.timing_plan import TimingPlan
from tile_oracle.operation import Kind
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.pool import pool_of_kind
from tile_oracle.record.run import RunLog, open_run
from tile_oracle.targets import TargetOptions, resolve_target

CHECKOUT = Path(__file__).parents[1]
PAIRS, LAYERS_TIMES_KERNELS = 90_000, 136_200
KIND = Kind.of("grouped_conv", direction="forward", dtype="fp32", ndim=2)

PROBE = '''
"""Says how long the tests took, and how much of it in kernels and compilers."""
import json, os, time
import pytest

taken = {}

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session):
    began = time.monotonic()
    try:
        return (yield)
    finally:
        taken["tests_s"] = time.monotonic() - began

@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure(config):
    session = config.pluginmanager.get_plugin("tile_oracle_session").session
    taken["kernels_s"] = session.driver()._engine._supervisor.kernel_seconds
    taken["compiled"] = session.target.builder.stats().compiled
    with open(os.environ["OVERHEAD_PROBE"], "w") as file:
        json.dump(taken, file)
'''


INSTANT = '''
"""Every pair is measured at once, so that what is left is pytest's."""
import json, os
from tile_oracle.measure.measurement import Measurement
from tile_oracle.session.live import LiveSession

def instant(self, problem, kernel):
    return Measurement(problem, kernel, "ok", "", 0, 1.0, 1.0, 0.0, 1, "full", 1)

LiveSession.build_ahead = lambda self: None
LiveSession.measure = instant

def pytest_sessionfinish(session):
    own = session.config.pluginmanager.get_plugin("tile_oracle_session").session
    with open(os.environ["OVERHEAD_PROBE"], "w") as file:
        json.dump({"pytest_s": own.pytest_s, "wall_s": own.elapsed_s}, file)
'''


def tiny_problems(count: int) -> list[GroupedConvProblem]:
    """Distinct problems of some thousand operations."""
    return [
        GroupedConvProblem("forward", "fp32", 2, 1, 8, 8, 1, 4 + i % 16, 4 + i // 16, 3, 3, pad_h=1, pad_w=1)
        for i in range(count)
    ]


def write_set(path: Path, problems: list[GroupedConvProblem]) -> Path:
    rows = [",".join(str(value) for value in problem.as_row().values()) for problem in problems]
    path.write_text("\n".join([",".join(GroupedConvProblem.field_names()), *rows]) + "\n")
    return path


@dataclass(frozen=True)
class Ended:
    """A pytest process that ended: wall time, processor time with all its children, peak memory."""

    wall_s: float
    cpu_s: float
    peak_rss_mib: float


def run_pytest(folder: Path, *arguments: str, **environment: str) -> Ended:
    """Runs pytest in a folder of its own, away from the checkout's configuration."""
    began = time.monotonic()
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, [CHECKOUT / "harness", CHECKOUT, folder])),
                **environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (folder / "output.txt").read_text()[-2000:]
    return Ended(time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def test_own_time_a_pair_of_a_session(benchmark: Any, tmp_path: Path) -> None:
    """`pytest --problem-set`: the tests' part, and the whole process with its start and its report."""
    problems = tiny_problems(60)
    pairs = len(problems) * len(pool_of_kind(KIND, "cpu"))
    (tmp_path / "overhead_probe.py").write_text(PROBE)
    arguments = ["--kernel-set", "default", "--target", "cpu", "--model", "none", "-p", "overhead_probe"]
    arguments += ["--report-dir", str(tmp_path / "reports"), "--build-dir", str(tmp_path / "build")]
    probe = tmp_path / "probe.json"
    warm = write_set(tmp_path / "warm.csv", problems[:1])
    run_pytest(tmp_path, "--problem-set", str(warm), *arguments, OVERHEAD_PROBE=str(probe))
    whole = write_set(tmp_path / "whole.csv", problems)

    def session() -> Ended:
        return run_pytest(tmp_path, "--problem-set", str(whole), *arguments, OVERHEAD_PROBE=str(probe))

    ended = benchmark.pedantic(session, rounds=1)
    taken = json.loads(probe.read_text())
    assert taken["compiled"] == 0
    benchmark.extra_info |= {
        "pairs": pairs,
        "kernels_ms_a_pair": round(1e3 * taken["kernels_s"] / pairs, 3),
        "own_ms_a_pair": round(1e3 * (taken["tests_s"] - taken["kernels_s"]) / pairs, 3),
        "own_ms_a_pair_with_start_and_report": round(1e3 * (ended.wall_s - taken["kernels_s"]) / pairs, 3),
        "own_cpu_ms_a_pair_with_start_and_report": round(1e3 * (ended.cpu_s - taken["kernels_s"]) / pairs, 3),
    }


def test_own_time_a_pair_of_the_driver(benchmark: Any, tmp_path: Path) -> None:
    """The driver without pytest: worker, protocol, check, record."""
    target, _ = resolve_target("cpu", TargetOptions(build_dir=tmp_path / "build"))
    kernels = pool_of_kind(KIND, "cpu")
    for kernel in kernels:
        assert target.build(kernel).result().binary
    run = open_run(tmp_path / "reports", {}, stem="overhead", name=None, resume=False)
    log = RunLog(run, "main")
    supervisor = Supervisor(target, SweepSettings(timing=TimingPlan(budget_ms=20.0)), run.measurements)
    warm, *problems = tiny_problems(61)
    driver = own_driver(supervisor, [warm, *problems], kernels, log)
    for kernel in kernels:
        assert driver.measure(warm, kernel).status in ("ok", "noisy")
    before = supervisor.kernel_seconds

    def sweep() -> None:
        for problem in problems:
            for kernel in kernels:
                driver.measure(problem, kernel)

    began = time.monotonic()
    benchmark.pedantic(sweep, rounds=1)
    wall_s, kernels_s = time.monotonic() - began, supervisor.kernel_seconds - before
    log.close()
    supervisor.close()
    target.close()
    pairs = len(problems) * len(kernels)
    benchmark.extra_info |= {
        "pairs": pairs,
        "kernels_ms_a_pair": round(1e3 * kernels_s / pairs, 3),
        "own_ms_a_pair": round(1e3 * (wall_s - kernels_s) / pairs, 3),
    }


def test_pytests_own_time_for_136200_pairs(benchmark: Any, tmp_path: Path) -> None:
    """Collecting, and between measurements that take no time: as much as 300 layers x 454 kernels."""
    pool = len(pool_of_kind(KIND, "cpu", "full"))
    problems = tiny_problems(-(-LAYERS_TIMES_KERNELS // pool))
    whole, probe = write_set(tmp_path / "whole.csv", problems), tmp_path / "probe.json"
    (tmp_path / "instant.py").write_text(INSTANT)
    arguments = ["--problem-set", str(whole), "--kernel-set", "full", "--target", "cpu", "--model", "none"]
    arguments += ["-p", "instant", "--report-dir", str(tmp_path / "reports"), "--allow=nothing-measured"]
    ended = benchmark.pedantic(lambda: run_pytest(tmp_path, *arguments, OVERHEAD_PROBE=str(probe)), rounds=1)
    taken = json.loads(probe.read_text())
    benchmark.extra_info |= {
        "pairs": len(problems) * pool,
        "pytest_s": round(taken["pytest_s"], 1),
        "pytest_us_a_pair": round(1e6 * taken["pytest_s"] / (len(problems) * pool)),
        "wall_s": round(ended.wall_s, 1),
        "cpu_s": round(ended.cpu_s, 1),
        "peak_rss_mib": round(ended.peak_rss_mib),
    }


@pytest.mark.parametrize("who", ["tile-oracle", "plain pytest"])
def test_collecting_90000_pairs(who: str, benchmark: Any, tmp_path: Path) -> None:
    pool = len(pool_of_kind(KIND, "cpu", "full"))
    count = -(-PAIRS // pool)
    if who == "tile-oracle":
        whole = write_set(tmp_path / "whole.csv", tiny_problems(count))
        arguments = ["--problem-set", str(whole), "--kernel-set", "full", "--target", "cpu"]
    else:
        test = f"import pytest\n@pytest.mark.parametrize('n', range({count * pool}))\ndef test(n): pass\n"
        (tmp_path / "test_plain.py").write_text(test)
        arguments = ["-p", "no:tile_oracle", "test_plain.py"]
    ended = benchmark.pedantic(
        lambda: run_pytest(tmp_path, *arguments, "--collect-only"), rounds=1, warmup_rounds=1
    )
    collected = (tmp_path / "output.txt").read_text().count("::test")
    assert collected >= PAIRS
    benchmark.extra_info |= {
        "items": collected,
        "wall_s": round(ended.wall_s, 2),
        "peak_rss_mib": round(ended.peak_rss_mib),
    }
