"""Kills or stops processes at random moments: pytest, devices, xdist workers, measuring workers, compilers.

A trial is one run of a small session. Some of its processes are killed (SIGKILL) or stopped (SIGSTOP, later
continued or killed), and the run is resumed until it completes. The run's records are copied before each
fault. Every row of these copies was acknowledged: it must be in the final records once, with the same values.
After the last session no process, journal or temporary file may be left.

    python -m tools.faults.kills --count 50
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from tile_oracle.errors import HarnessError
from tile_oracle.record.dataset import load_records
from tools.faults.campaign import Campaign, Outcome, main
from tools.faults.source_tree import plugin_options, search_path

PROBLEMS: tuple[str, ...] = (
    "1,8,8,6,6,3,3,fp32",
    "1,16,16,5,5,1,1,fp32",
    "2,8,16,7,7,3,3,fp32",
    "1,8,24,9,9,1,1,fp32",
)
KERNELS = 8
"""Number of kernels, from the set `tiny`. Measuring takes about as long as starting the session."""
RUN = "run"
SESSION = (
    *("--problem-set", "small.csv", "--target", "cpu", "--kernel-set", "tiny", "--model", "none"),
    *("--kernel-budget", "2ms", "-p", "no:cacheprovider", "--run-name", RUN, "--resume"),
)
ONE_KERNEL = ("--kernel-filter", "tile_m == 16 and pipeline == 'basic_v1'")
"""For the sessions that compile, because compilation dominates their time."""
WAYS: tuple[tuple[str, ...], ...] = ((), (), ("-n2",), ("test_own.py", "-n2", "--max-worker-restart=40"))
"""Drawn for each trial: the device of the session's process, two devices, workers of pytest-xdist beside."""
COMPILING = 0.03
"""Fraction of the trials that begin with an empty kernel cache."""
MERGES = 0.15
"""Fraction of the trials that end with a killed merge."""
FAULTS_OF_A_TRIAL, FAULTS_OF_A_SESSION, SESSIONS_OF_A_TRIAL = 24, 12, 12
"""Upper limits; a fault ends many sessions earlier."""
SESSION_LIMIT_S = 240.0
"""A longer session counts as hung. Without a fault it takes a few seconds on an idle machine."""
ORPHAN_LIMIT_S = 60.0
"""A process that outlives its session by more than this is an orphan."""
MARK = "TILE_ORACLE_FAULTS"
"""Environment variable that all processes of a trial inherit."""
_WEIGHTS = {"pytest": 2, "device": 8, "worker": 8, "guardian": 8, "measuring": 8, "compiler": 8, "all": 1}
"""Relative frequency of each kind of victim. A fault of pytest or of "all" at once usually ends a session."""


class Broken(Exception):
    """A broken promise."""


@dataclass
class Trial:
    """One run in its own folder, from its first session until it completes."""

    problems = PROBLEMS
    number: int
    chance: random.Random
    folder: Path
    cache: Path
    faults_left: int
    counts: Counter[str] = field(default_factory=Counter)
    acknowledged: dict[tuple[str, str, int], tuple[object, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.measured_all = False
        self.compiles = self.chance.random() < COMPILING
        self.arguments = [
            *plugin_options(),
            *SESSION,
            *(ONE_KERNEL if self.compiles else ()),
            *self.chance.choice(WAYS),
        ]
        self.folder.mkdir(parents=True)
        (self.folder / "pytest.ini").write_text("[pytest]\n")
        (self.folder / "test_own.py").write_text("def test_own():\n    pass\n")
        (self.folder / "small.csv").write_text("\n".join(["N,C,K,Hi,Wi,Y,X,dtype", *self.problems, ""]))
        (self.folder / "tmp").mkdir()
        if self.compiles:
            self.cache = self.folder / "cache"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))},
            **{MARK: self.mark, "TMPDIR": str(self.folder / "tmp"), "TILE_ORACLE_CACHE": str(self.cache)},
            "PYTHONPATH": search_path(),
        }

    @property
    def run(self) -> Path:
        return self.folder / "reports" / RUN

    # ---- processes ----

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Starts a Python command in its own process session, with its output in output.txt."""
        with (self.folder / "output.txt").open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def processes(self) -> dict[int, str]:
        """Process id -> kind, a key of _WEIGHTS, of the processes of this trial."""
        return {pid: _kind(command) for pid, command in marked(self.mark).items()}

    def wait_for_all(self) -> None:
        """Waits until every process has ended. Raises Broken if one does not."""
        deadline = time.monotonic() + ORPHAN_LIMIT_S
        while left := self.processes():
            if time.monotonic() > deadline:
                self.kill_all()
                raise Broken(f"processes were left behind: {sorted(left.values())}")
            time.sleep(0.02)

    def kill_all(self) -> None:
        for pid in self.processes():
            _signal(pid, signal.SIGKILL)

    # ---- one session ----

    def session(self, duration_s: float, faults: int) -> int:
        """Runs one session with at most this many faults; returns its exit status. Raises Broken if it
        hangs."""
        process = self.start("pytest", *self.arguments)
        begun = time.monotonic()
        if faults and self._wait_for_phase(process, duration_s):
            for _ in range(faults):
                if not self._wait(process, time.monotonic() + self.chance.uniform(0.0, 0.7)):
                    break
                self._harm(process)
        status = self._end(process, begun)
        self.counts["sessions"] += 1
        self.measured_all |= self._writes_report()
        self.wait_for_all()
        return status

    def _wait_for_phase(self, process: subprocess.Popen[bytes], duration_s: float) -> bool:
        """Waits for the phase in which faults begin; returns whether the session reached it."""
        weights = (1, 0, 4) if self.measured_all else (1, 5, 0)
        phase = self.chance.choices(("start", "measuring", "report"), weights)[0]
        self.counts[f"sessions harmed from: {phase}"] += 1
        if phase == "start":
            return self._wait(process, time.monotonic() + self.chance.uniform(0.0, 0.6) * duration_s)
        while not (self._writes_report() if phase == "report" else self._measures()):
            if not self._wait(process, time.monotonic() + 0.01):
                return False
        return True

    def _measures(self) -> bool:
        return any((self.run / "measurements").glob(".journal-*"))

    def _writes_report(self) -> bool:
        """Whether the session has reported its last problem as finished."""
        count = len(self.problems)
        return f"[{count}/{count}] " in (self.folder / "output.txt").read_text(errors="replace")

    @staticmethod
    def _wait(process: subprocess.Popen[bytes], moment: float) -> bool:
        """Waits until that moment; returns whether the session still runs."""
        try:
            process.wait(max(0.0, moment - time.monotonic()))
        except subprocess.TimeoutExpired:
            return True
        return False

    def _end(self, process: subprocess.Popen[bytes], begun: float) -> int:
        try:
            return process.wait(max(1.0, begun + SESSION_LIMIT_S - time.monotonic()))
        except subprocess.TimeoutExpired:
            left = sorted(self.processes().values())
            self.kill_all()
            process.wait()
            raise Broken(f"a session hung: {left}; {self.output()}") from None

    def output(self) -> str:
        """The end of the last command's output."""
        text = (self.folder / "output.txt").read_text(errors="replace")
        return " | ".join(text.split("\n")[-12:])[-1500:]

    def _harm(self, process: subprocess.Popen[bytes]) -> None:
        """Injects one fault, if there is a process of the drawn kind."""
        found = self.processes()
        kinds = sorted({*found.values()})
        if not kinds:
            return
        kind = self.chance.choices([*kinds, "all"], [*(_WEIGHTS[kind] for kind in kinds), _WEIGHTS["all"]])[0]
        victims = [pid for pid in sorted(found) if found[pid] == kind or kind == "all"]
        if kind != "all":
            victims = [self.chance.choice(victims)]
        stop, go_on = self.chance.random() < 0.3, self.chance.random() < 0.6
        pause_s = self.chance.uniform(0.02, 1.5)
        self.acknowledge()
        for pid in victims:
            _signal(pid, signal.SIGSTOP if stop else signal.SIGKILL)
        if stop:
            self._wait(process, time.monotonic() + pause_s)
            for pid in victims:
                _signal(pid, signal.SIGCONT if go_on else signal.SIGKILL)
        self.counts[
            "stopped and continued" if stop and go_on else "stopped and killed" if stop else "killed"
        ] += 1
        self.counts[f"of {kind}"] += 1
        self.faults_left -= 1

    def acknowledge(self) -> None:
        """Notes the rows recorded so far. Reads a copy, because reading seals journals of dead processes."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "measurements"
            copy.mkdir()
            # Journals first: a row that is sealed in the meantime is read twice, not missed.
            for pattern in (".journal-*", "part-*"):
                for path in (self.run / "measurements").glob(pattern):
                    with suppress(FileNotFoundError):
                        shutil.copy2(path, copy / path.name)
            with suppress(HarnessError):
                self.acknowledged |= _rows(load_records(copy))

    # ---- the end ----

    def check(self) -> None:
        """Raises Broken for rows that were lost or duplicated, and for files left behind."""
        files = sorted(path.name for path in (self.run / "measurements").iterdir())
        if any(not name.startswith("part-") for name in files):
            raise Broken(f"files were left behind: {files}")
        records = pd.concat(map(pd.read_parquet, sorted((self.run / "measurements").glob("part-*"))))
        twice = records[records.duplicated(["problem", "kernel", "round"])]
        if len(twice):
            raise Broken(f"{len(twice)} rows are there twice, {twice['kernel'].iloc[0]} first")
        rows = _rows(records)
        lost = [key for key, values in self.acknowledged.items() if rows.get(key) != values]
        if lost:
            raise Broken(
                f"{len(lost)} of {len(self.acknowledged)} acknowledged rows are lost, {lost[0]} first"
            )
        pairs = len(self.problems) * (1 if self.compiles else KERNELS)
        if (swept := int((records["round"] == 0).sum())) != pairs:
            raise Broken(f"{swept} of {pairs} pairs are recorded")
        stray = [path for path in self._temporary() if path.is_file()]
        if stray:
            raise Broken(f"temporary files were left behind: {sorted(path.name for path in stray)[:5]}")
        if not (self.run / "verdict.json").is_file() or not (self.run / "report.html").is_file():
            raise Broken("there is no report")
        self.counts["rows acknowledged before a fault"] += len(self.acknowledged)
        self.counts["rows crash or timeout"] += int(records["status"].isin(["crash", "timeout"]).sum())

    def _temporary(self) -> Iterator[Path]:
        """Files with temporary names. Lock files may stay."""
        for folder in (self.run, self.folder / "tmp"):
            for path in folder.rglob("*"):
                if re.search(r"\.tmp$|^\.(?!lock)|~$", path.name) or path.name.startswith("tmp"):
                    yield path

    def merge(self) -> None:
        """Kills a merge of the run at a random moment, then merges without a fault."""
        out = self.folder / "merged.parquet"
        command = ("tile_oracle.cli", "merge", str(self.run), "-o", str(out), "--quiet")
        rows = load_records(self.run)
        for last in (False, True):
            process = self.start(*command)
            if not last and self._wait(process, time.monotonic() + self.chance.uniform(0.2, 3.0)):
                process.kill()
                self.counts["killed"] += 1
                self.counts["of merge"] += 1
                self.faults_left -= 1
            status = self._end(process, time.monotonic())
            if out.exists() and len(pd.read_parquet(out)) != len(rows):
                raise Broken("a merged file is incomplete")
        if status:
            raise Broken(f"merge ended with status {status}: {self.output()}")
        if [path for path in self.folder.iterdir() if path.name.startswith(".merged")]:
            raise Broken("a merge left a temporary file behind")

    def go(self, duration_s: float) -> None:
        """Runs sessions with faults, then one without. Raises Broken."""
        for _ in range(SESSIONS_OF_A_TRIAL):
            if not self.faults_left or (self.measured_all and self.chance.random() < 0.4):
                break
            self.session(duration_s, min(FAULTS_OF_A_SESSION, self.faults_left))
        status = self.session(duration_s, 0)
        # 1: a kernel failed because its worker was killed while measuring it, as it should.
        if status not in (0, 1):
            raise Broken(f"the last session ended with status {status}: {self.output()}")
        self.check()
        if self.chance.random() < MERGES:
            self.merge()


def marked(mark: str) -> dict[int, bytes]:
    """Process id -> command line of the processes that inherited this mark."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes()
    return found


def _kind(command: bytes) -> str:
    if b"guardian" in command:
        return "guardian"
    if b"tile_oracle.device.worker" in command:
        return "measuring"
    if b"tile_oracle.measure.device_process" in command:
        return "device"
    if b"sys.stdin.readline" in command:
        return "worker"
    if b"\0pytest\0" in command:
        return "pytest"
    return "compiler"


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _rows(records: pd.DataFrame) -> dict[tuple[str, str, int], tuple[object, ...]]:
    """The values of each row that must not change. Rows with device_lost are measured again, so not kept."""
    kept = records[records["status"] != "device_lost"]
    columns = ["problem", "kernel", "round", "status", "samples"]
    latencies = [repr(float(value)) for value in kept["latency_ms"]]
    return {
        (str(row.problem), str(row.kernel), int(row.round)): (row.status, row.samples, latency)
        for row, latency in zip(kept[columns].itertuples(), latencies, strict=True)
    }


def run(count: int, seed: int) -> Outcome:
    """Runs trials until `count` faults are injected."""
    with tempfile.TemporaryDirectory(prefix="tile-oracle-kills-") as folder:
        return run_in(Path(folder), Path(folder) / "cache", count, seed)


def run_in(base: Path, cache: Path, count: int, seed: int) -> Outcome:
    """Runs the campaign in a folder; kernels that are not in the cache are compiled into it first."""
    duration_s = _warm_up(base, cache)
    return run_trials(
        count,
        FAULTS_OF_A_TRIAL,
        lambda number, allowed: Trial(
            number, random.Random(f"{seed}-{number}"), base / f"trial-{number}", cache, allowed
        ),
        duration_s,
    )


def run_trials(count: int, most: int, begin: Callable[[int, int], Trial], duration_s: float = 0.0) -> Outcome:
    """Runs trials until `count` faults are injected, or as many trials have failed.

    most: faults of a trial. begin: makes a trial of its number and of the faults that it may inject.
    """
    counts: Counter[str] = Counter()
    failures: list[str] = []
    faults = number = 0
    while faults < count and len(failures) < count:
        number += 1
        allowed = min(most, count - faults)
        trial = begin(number, allowed)
        try:
            trial.go(duration_s)
        except Broken as broken:
            failures.append(f"trial {number} ({' '.join(trial.arguments[-2:])}): {broken}")
            print(failures[-1], file=sys.stderr, flush=True)
        finally:
            trial.kill_all()
        faults += allowed - trial.faults_left
        counts += trial.counts
        print(f"trial {number}: {faults} faults, {counts['sessions']} sessions", file=sys.stderr, flush=True)
        shutil.rmtree(trial.folder, ignore_errors=True)
    return Outcome(faults, {"trials": number, **dict(sorted(counts.items()))}, failures)


def _warm_up(base: Path, cache: Path) -> float:
    """Compiles the kernels; returns the time of a session without a fault, in seconds."""
    duration_s = 0.0
    for name in ("warm",) if cache.is_dir() else ("cold", "warm"):
        trial = Trial(0, random.Random(0), base / name, cache, 0)
        begun = time.monotonic()
        if status := trial.session(0.0, 0):
            raise Broken(f"a session without a fault ended with status {status}: {trial.output()}")
        duration_s = time.monotonic() - begun
    return duration_s


CAMPAIGN = Campaign(
    "kills",
    "sessions end or can be resumed: no finished row lost, none duplicated, nothing left behind",
    1000,
    run,
)

if __name__ == "__main__":
    sys.exit(main(CAMPAIGN))
