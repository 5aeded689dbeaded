"""A user's project: a folder with problem sets and tests, in which pytest runs as a process of its own.

Kernels are those of kernels/cpu, really compiled and really run; only a few, and on very small problems.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

from tests.processes import LONGEST_S
from tests.warm_python import can_run_warm, run_warm

SHORTLY = ("--kernel-budget", "1ms", "--samples", "5", "--settle-budget", "0")
"""As short as can be, and too few samples for other work on this machine to make a kernel noisy; nothing is
measured again at the end."""
QUICK = ("--kernel-set", "tiny", *SHORTLY, "--model", "none")
"""The eight kernels of the set `tiny`, timed shortly, without a model."""
TWO_KERNELS = (*QUICK, "--kernel-filter", "tile_m == 16")

CLOCK_THAT_JUMPS = '''
"""The budget's clock is two hours on once devices have told a first result."""
import time
import types
import tile_oracle.measure.driver as driver
import tile_oracle.measure.results as results
import tile_oracle.session.session as sweep

begun = set()
jumping = lambda: time.monotonic() + 7200 * bool(begun)
driver.time = sweep.time = types.SimpleNamespace(**vars(time) | {"monotonic": jumping})
take = results.Results.take
results.Results.take = lambda self, one: (begun.add(one.problem.id), take(self, one))
'''
"""A plugin: with a budget of an hour a session ends after a problem, however fast or slow the machine is."""

HELD = '''
"""Once enough pairs are reported, pytest waits before its next test until the writer of `go` closes it."""
import os
import pytest

left = [int(os.environ.get("HELD_AFTER", 1 << 30))]

def pytest_runtest_logreport(report):
    left[0] -= report.when == "call"

@pytest.hookimpl(trylast=True)
def pytest_runtest_logstart(nodeid):
    if left[0] <= 0 and "PYTEST_XDIST_WORKER" not in os.environ:
        left[0] = 1 << 30
        open("go").read()
'''
"""A plugin: what a test does to a session happens before its end, however slow the test is."""

PROBLEMS = (
    "forward-fp32-n1-c8-k8-i6x6-f3x3",
    "forward-fp32-n1-c16-k16-i5x5-f1x1",
    "forward-fp32-n1-g4-c8-k8-i7x7-f3x3-p1",
    "forward-fp32-n2-c3-k5-i9x9-f3x3-s2",
)
KERNELS = ("16x16x64_basic_v1_intrawave_w1x1x1_wt4x16x1", "16x16x64_compv3_intrawave_w1x1x1_wt4x16x1")
"""What TWO_KERNELS leaves of the set `tiny`, in the order in which they run."""


def heed_ctrl_c() -> None:
    """For a new process: in a shell's background and under nohup, this one inherits ignored signals."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@dataclass(frozen=True)
class Finished:
    """A pytest process that has ended. output: stdout and stderr together."""

    status: int
    output: str

    @cached_property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.output.splitlines()]

    @property
    def last(self) -> str:
        return next(line for line in reversed(self.lines) if line)

    def counts(self) -> dict[str, int]:
        """{"passed": 4, ...} of the last line."""
        found = re.findall(r"(\d+) (passed|failed|skipped|xfailed|deselected|errors?)\b", self.last)
        return {what: int(number) for number, what in found}

    def outcomes(self) -> dict[str, str]:
        """Test id -> outcome in capitals, of a run with -v."""
        pairs = re.findall(r"^(\S+::\S+) (PASSED|FAILED|SKIPPED|XFAIL|ERROR)", self.output, re.MULTILINE)
        pairs += [
            (i, o) for o, i in re.findall(r"^\[gw\d+\].*? (PASSED|FAILED|XFAIL) (\S+)", self.output, re.M)
        ]
        return dict(pairs)


def _output_until(process: subprocess.Popen[str], tests: int) -> str:
    """Return the output of a run with -v until so many tests have been reported, one a line."""
    seen, reported = [], 0
    while reported < tests and (line := process.stdout.readline()):
        seen.append(line)
        reported += bool(re.search(r"\b(PASSED|SKIPPED|XFAIL)\b", line))
    assert reported == tests, "".join(seen)
    return "".join(seen)


def end_of(process: subprocess.Popen[str], begin: str = "") -> Finished:
    """Wait for the end; begin: the output that has been read."""
    output, _ = process.communicate(timeout=LONGEST_S)
    return Finished(process.returncode, begin + output)


class Project:
    """The folder, and how pytest runs in it."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self._cache = cache
        folder.mkdir(parents=True, exist_ok=True)
        # Without it pytest would look for its rootdir above.
        self.write("pytest.ini", "[pytest]\n")
        self.problem_set("small.csv", PROBLEMS[:2])

    # ---- what is in it ----

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def problem_set(self, name: str, ids: tuple[str, ...]) -> Path:
        from tile_oracle.problem import problem_from_id
        from tile_oracle.problem_set import format_problem_set

        problems = [problem_from_id(one) for one in ids]
        return self.write(name, format_problem_set(problems, [""] * len(problems), "problems of a test"))

    def compiler(self, name: str, mischief: Mapping[str, str]) -> Path:
        """A compiler that plants a bug into all kernels of some pipelines.

        mischief: pipeline as kernels/cpu calls it (TO_PACK_AB) -> wrong, crash or build_error.
        """
        program = Path(__file__).with_name("mischievous_clang.py")
        command = shlex.join([sys.executable, str(program), json.dumps(dict(mischief))])
        path = self.write(f"bin/{name}", f'#!/bin/sh\nexec {command} "$@"\n')
        path.chmod(0o755)
        return path

    # ---- running ----

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
        # A folder for locks of its own: what is measured here need not be exact, so it does not wait for
        # the cores that other sessions of this machine time on.
        locks = self._cache / "tmp"
        locks.mkdir(parents=True, exist_ok=True)
        return kept | {
            "TILE_ORACLE_CACHE": str(self._cache),
            "TMPDIR": str(locks),
            "COLUMNS": "120",
            "PYTHONUNBUFFERED": "1",
        }

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "pytest", *map(str, arguments)]

    def start(
        self, *arguments: object, cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start pytest as a new process, in a session of its own, output on a pipe."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=cwd or self.folder,
            env=self.environment | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=heed_ctrl_c,
        )

    def start_held(self, tests: int, *arguments: object) -> tuple[subprocess.Popen[str], str]:
        """Start pytest with -v, until so many tests have been reported; it waits there for a signal, or for
        `let_go`. Returns the process and its output so far."""
        self.write("held.py", HELD)
        (self.folder / "go").unlink(missing_ok=True)
        os.mkfifo(self.folder / "go")
        process = self.start("-p", "held", *arguments, environment={"HELD_AFTER": str(tests)})
        begin = _output_until(process, tests)
        self._go = (self.folder / "go").open("w")  # once pytest reads it
        return process, begin

    def let_go(self) -> None:
        """Let the held session go on."""
        self._go.close()

    def pytest(
        self, *arguments: object, cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> Finished:
        """Run pytest to its end."""
        more = dict(environment or {})
        if can_run_warm(more):
            done = run_warm(
                "pytest",
                [str(one) for one in arguments],
                cwd=cwd or self.folder,
                env=self.environment | more,
                timeout_s=LONGEST_S,
                together=True,
            )
            return Finished(done.returncode, done.stdout)
        return end_of(self.start(*arguments, cwd=cwd, environment=environment))

    # ---- what came of it ----

    @property
    def runs(self) -> list[Path]:
        """The run folders, oldest first."""
        return sorted(
            (path.parent for path in self.folder.glob("reports/*/run.json")),
            key=lambda folder: (folder / "run.json").stat().st_mtime_ns,
        )

    @property
    def run(self) -> Path:
        """The only run's folder."""
        (run,) = self.runs
        return run

    def records(self, run: Path | None = None) -> pd.DataFrame:
        """The rows of the only run, as any user of pandas reads them."""
        return pd.read_parquet((run or self.run) / "measurements")

    def verdict(self, run: Path | None = None) -> dict[str, object]:
        document = json.loads(((run or self.run) / "verdict.json").read_text())
        assert isinstance(document, dict)
        return document


def twice(records: pd.DataFrame) -> pd.DataFrame:
    """The rows that are there more than once."""
    return records[records.duplicated(["problem", "kernel", "round"], keep=False)]


def junit_properties(element: ElementTree.Element) -> dict[str, str]:
    return {one.attrib["name"]: one.attrib["value"] for one in element.iterfind("properties/property")}


def children(pid: int) -> dict[int, str]:
    """Living child processes: process id -> command line."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_text().replace("\0", " ")
        except (OSError, ValueError):
            continue
        if parent == pid:
            found[int(folder.name)] = command
    return found
