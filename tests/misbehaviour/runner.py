"""Measures a kernel of a family among correct ones, and returns the broken promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from evil_target import NOISE_ALLOWED, small_problem

from tests.misbehaviour.families import INNOCENT, Family
from tests.misbehaviour.family_library import FamilyTarget
from tile_oracle.measure.containment import VARIABLE, containment_for
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.measure.timing_plan import TimingPlan
from tile_oracle.record.schema import ROUND_SWEEP
from tools.faults.source_tree import search_path

_LONGEST_S = 600.0
_MOST_SESSIONS = 4
_MEMORY_BYTES = 2 << 30
BEFORE, AFTER = 2, 3
"""Innocent kernels before and after the family's. More wait in the worker's queue than it has run."""


@dataclass(frozen=True)
class Seen:
    """The checked values of one measurement."""

    family: str
    variant: int
    status: str
    detail: str
    final: bool


@dataclass(frozen=True)
class Outcome:
    """The result of a session: its measurements, and how many sessions were needed to complete it."""

    seen: tuple[Seen, ...]
    sessions: int
    seconds: float
    ended: bool = True

    def broken(self, family: Family) -> list[str]:
        """The broken promises, as sentences."""
        if not self.ended:
            return [f"the session did not end: {self.sessions} sessions in {self.seconds:.0f} s"]
        wrong = []
        swept = [one for one in self.seen if not one.final]
        bad = [one for one in swept if one.family == family.name]
        if len(bad) != 1:
            wrong.append(f"its kernel was measured {len(bad)} times")
        for one in bad:
            if one.status not in family.statuses:
                wanted = " or ".join(sorted(family.statuses))
                wrong.append(f"it is {one.status} ({one.detail}), not {wanted}")
            if family.detail not in one.detail:
                wrong.append(f"its detail {one.detail!r} does not say {family.detail!r}")
        good = [one for one in swept if one.family == INNOCENT.name]
        if sorted(one.variant for one in good) != list(range(1, BEFORE + AFTER + 1)):
            wrong.append(f"{len(good)} measurements of {BEFORE + AFTER} innocent kernels")
        wrong += [
            f"innocent kernel {one.variant} is {one.status} ({one.detail})"
            for one in self.seen
            if one.family == INNOCENT.name and one.status != "ok"
        ]
        return wrong


SETTINGS = SweepSettings(
    timing=TimingPlan(budget_ms=1.0, noisy_above=NOISE_ALLOWED), final_budget_ms=0.2, final_passes=2
)


class Lab:
    """Families that were compiled together, and one supervisor for all that need no session of their own."""

    def __init__(self, folder: Path, families: Sequence[Family]) -> None:
        self.folder = folder
        self.target = FamilyTarget(folder, families)
        # A low limit: the test of a kernel that takes all memory must not take all of the machine's.
        held = replace(containment_for("cpu"), memory_bytes=_MEMORY_BYTES)
        self.supervisor = Supervisor(self.target, SETTINGS, containment=held)
        self._next_size = 0

    def measure(self, family: Family) -> Outcome:
        """A whole sweep with one kernel of the family."""
        began = time.monotonic()
        if family.own_session:
            return self._in_own_session(family)
        self.target.limit_s = family.limit_s
        self._next_size += 1
        problem = small_problem(Hi=7 + self._next_size)  # never seen before: the worker must load it
        innocent = [self.target.kernel(INNOCENT, i + 1) for i in range(BEFORE + AFTER)]
        kernels = [*innocent[:BEFORE], self.target.kernel(family), *innocent[BEFORE:]]
        seen = []
        for m in self.supervisor.sweep(problem, kernels):
            name = self.target.families[m.kernel.tile_m - 1].name
            seen.append(Seen(name, m.kernel.tile_n, m.status, m.detail, m.round != ROUND_SWEEP))
        return Outcome(tuple(seen), 1, time.monotonic() - began)

    def _in_own_session(self, family: Family) -> Outcome:
        """Runs in a process that may die; it is resumed until the session ends."""
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=self.folder) as reports:
            for number in range(1, _MOST_SESSIONS + 1):
                left = _LONGEST_S - (time.monotonic() - began)
                result = _run_session(self.folder, family, Path(reports), left)
                if result is None:
                    return Outcome((), number, time.monotonic() - began, ended=False)
                if result:
                    return Outcome(tuple(result), number, time.monotonic() - began)
        return Outcome((), _MOST_SESSIONS, time.monotonic() - began, ended=False)

    def close(self) -> None:
        """Ends the worker and the compiler."""
        self.supervisor.close()
        self.target.close()
        shared = Path(self.target.shared)
        for left in shared.parent.glob(f"{shared.name}*"):
            left.unlink()


def _run_session(folder: Path, family: Family, reports: Path, limit_s: float) -> list[Seen] | None:
    """The measurements of a session in its own process; [] when it died, None when it had to be stopped."""
    here = Path(__file__).parent
    search = [search_path(), str(here.parent / "evil_kernels")]
    held = {VARIABLE: "limits"} if family.uncontained else {}
    process = subprocess.Popen(
        [sys.executable, str(here / "own_session.py"), str(folder), str(reports), family.name],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search), **held},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=max(1.0, limit_s))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None
    lines = output.decode(errors="replace").splitlines()
    if process.returncode or not lines:
        return []
    return [Seen(**one) for one in json.loads(lines[-1])]


def as_json(seen: Sequence[Seen]) -> str:
    """What `own_session.py` prints at its end."""
    return json.dumps([asdict(one) for one in seen])


@contextmanager
def lab(folder: Path, families: Sequence[Family]) -> Iterator[Lab]:
    """A Lab that is closed at the end."""
    made = Lab(folder, families)
    try:
        yield made
    finally:
        made.close()
