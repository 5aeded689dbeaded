"""Kills parts of a fleet at random moments: isolated workers, actors, whole nodes, the session's process.

The fleet is a Ray cluster of this machine: a head without devices, and nodes with one core each as devices.
A killed node is replaced by a new one. A session whose process is killed is resumed. After every kill the
campaign waits until another row is recorded, or until the session has ended; a killed session is resumed at
once, and its start counts. Every row that was there before a kill must be in the final records once, with the
same values.

    python -m tools.faults.fleet_kills --count 20
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tile_oracle.record.dataset import load_records
from tools.faults import kills
from tools.faults.campaign import Campaign, Outcome, main
from tools.faults.kills import MARK, Broken, Trial, marked
from tools.faults.ray_cluster import RayCluster
from tools.faults.source_tree import plugin_options

NODES, KILLS_OF_A_TRIAL = 2, 10
SESSION = (
    *("--problem-set", "small.csv", "--target", "cpu", "--kernel-set", "tiny", "--model", "none"),
    *("--kernel-budget", "40ms", "-p", "no:cacheprovider", "--run-name", kills.RUN, "--resume"),
)
GOES_ON_S, GOES_ON_STARTS = 10.0, 4.0
"""Longest time after a kill of anything but the session until another row is recorded: in seconds, or in the
time that the Python of an actor takes to start at that moment, whichever is longer. Where the only actor was
killed, two such processes start one after the other, the actor and its worker, and on a busy machine that is
all the time. A killed session goes on when somebody starts it again, so that time is only reported."""
RESUMED = "session, resumed at once"
ENDS_S = 300.0
_PAUSE_S = (0.1, 1.0)
_WEIGHTS = {"worker": 3, "actor": 4, "node": 2, "driver": 1}


class FleetTrial(Trial):
    """One run, its sessions on a fleet."""

    problems = tuple(
        f"{n},{c},{k},{size},{size},3,3,fp32"
        for n in (1, 2)
        for c, k in ((8, 16), (16, 8))
        for size in (7, 9, 11, 13)
    )
    fleet: RayCluster
    slowest_s: dict[str, float]
    late: list[str]

    def begin(self, fleet: RayCluster, slowest_s: dict[str, float], late: list[str]) -> FleetTrial:
        """Makes the run's sessions those of a fleet. slowest_s, late: get how fast the fleet goes on."""
        self.fleet, self.slowest_s, self.late = fleet, slowest_s, late
        self.compiles = False
        self.arguments = [*plugin_options(), *SESSION, f"--fleet={fleet.address}"]
        if self.number % 2:
            # The only device is killed: another must take over before anything is recorded.
            self.arguments.append("-n1")
        return self

    def rows(self) -> int:
        """The number of rows that journals and parts have."""
        self.acknowledge()
        return len(self.acknowledged)

    def go(self, duration_s: float) -> None:
        """Runs sessions with kills until one ends by itself, and checks. Raises Broken."""
        resumes = False
        while True:
            process = self.start("pytest", *self.arguments)
            begun = time.monotonic()
            self.counts["sessions"] += 1
            if resumes:
                self._goes_on(process, self.rows(), RESUMED)
            while self._wait(process, time.monotonic() + self.chance.uniform(*_PAUSE_S)):
                if time.monotonic() - begun > ENDS_S:
                    self.kill_all()
                    raise Broken(f"a session hung: {self.output()}")
                if self.faults_left and self._measures() and self._kill_one(process):
                    self.faults_left -= 1
            if process.returncode == -signal.SIGKILL:
                resumes = True
                continue
            if process.returncode not in (0, 1):
                raise Broken(f"a session ended with status {process.returncode}: {self.output()}")
            self.wait_for_all()
            self.check()
            return

    def _kill_one(self, process: subprocess.Popen[bytes]) -> bool:
        kind = self.chance.choices([*_WEIGHTS], [*_WEIGHTS.values()])[0]
        found = {"worker": b"tile_oracle.device.worker", "actor": b"ray::DeviceRunner"}
        before = self.rows()
        if kind == "node":
            self.fleet.kill(self.chance.randrange(len(self.fleet)))
            self.fleet.add()
        elif kind == "driver":
            process.kill()
            process.wait()
        else:
            commands = marked(os.environ[MARK])
            victims = [pid for pid, command in commands.items() if found[kind] in command]
            if not victims:
                return False
            with suppress(ProcessLookupError):
                os.kill(self.chance.choice(victims), signal.SIGKILL)
        self.counts[f"killed: {kind}"] += 1
        if kind != "driver":
            self._goes_on(process, before, kind)
        return True

    def _goes_on(self, process: subprocess.Popen[bytes], before: int, kind: str) -> None:
        begun = time.monotonic()
        while self._wait(process, time.monotonic() + 0.1):
            passed = time.monotonic() - begun
            if self.rows() > before:
                how = f"{kind}, {'the only device' if self.number % 2 else 'one of two'}"
                self.slowest_s[how] = max(self.slowest_s.get(how, 0.0), passed)
                if passed > GOES_ON_S and kind != RESUMED:
                    started = _start_s()
                    if passed > GOES_ON_STARTS * started:
                        self.late.append(f"{how}: {passed:.1f} s, where a Python starts in {started:.1f} s")
                return
            if "tests ran" in self.output() or "passed in" in self.output():
                return
            if passed > ENDS_S:
                self.kill_all()
                raise Broken(f"nothing is recorded any more after a {kind} was killed: {self.output()}")

    def check(self) -> None:
        records = load_records(self.run)
        if int((records["status"] == "device_lost").sum()):
            raise Broken("a lost device was recorded")
        super().check()


def _start_s() -> float:
    """How long a Python with an actor's imports takes to start at this moment, in seconds."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import ray, tile_oracle.measure.device_runner"], check=True)
    return time.monotonic() - begun


def run(count: int, seed: int) -> Outcome:
    """Runs trials until `count` processes or nodes are killed."""
    with tempfile.TemporaryDirectory(prefix="tile-oracle-fleet-") as folder:
        outcome, late = run_in(Path(folder), Path(folder) / "cache", count, seed)
    return replace(outcome, failures=[*outcome.failures, *late])


def run_in(base: Path, cache: Path, count: int, seed: int) -> tuple[Outcome, list[str]]:
    """Runs the campaign in a folder. Returns apart from the outcome where the fleet went on too late."""
    slowest_s: dict[str, float] = {}
    late: list[str] = []
    os.environ[MARK] = f"fleet-{uuid.uuid4().hex}"
    with RayCluster(NODES, {"TILE_ORACLE_CACHE": str(cache)}) as fleet:

        def begin(number: int, allowed: int) -> FleetTrial:
            trial = FleetTrial(number, random.Random(f"{seed}-{number}"), base / f"{number}", cache, allowed)
            return trial.begin(fleet, slowest_s, late)

        outcome = kills.run_trials(count, KILLS_OF_A_TRIAL, begin)
    sizes = {f"goes on after ms: {how}": int(1000 * seconds) for how, seconds in sorted(slowest_s.items())}
    return replace(outcome, sizes=sizes), late


CAMPAIGN = Campaign(
    "fleet_kills",
    "a fleet goes on: no finished row lost, none doubled, every session ends",
    100,
    run,
    divisible=False,
)

if __name__ == "__main__":
    sys.exit(main(CAMPAIGN))
