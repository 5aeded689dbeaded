"""A cold start on a device: rounds of pytest sessions, each limited to the pairs that were chosen for it.

    FOLDER/tune.json          settings, rounds and the curve so far
    FOLDER/round-01.csv       the pairs of a round (--pairs)
    FOLDER/round-01.txt       what its session printed
    FOLDER/round-01/          its run: records like any other, for `model train`, `runs suggest`, `runs merge`

A round that was stopped goes on with --resume; the time that was spent counts against the budget.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tile_oracle.errors import ModelError
from tile_oracle.exploration.cold_start import ColdStart
from tile_oracle.features.feature_table import Array
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.record.dataset import load_records, measurements_folder
from tile_oracle.record.final import final_measurements
from tile_oracle.record.journal import journals_in, parts_in

STATE = "tune.json"
_ROUNDS = 10
"""A round gets about this share of the budget."""
_SESSION_FAILED = (2, 3, 4, 5, 15)
"""Exit statuses of sessions that are no verdict: interrupted, internal error, usage error, no tests, no
device."""


def measure(
    folder: Path, name: str, session: Sequence[str], budget_s: float, more: Mapping[str, object]
) -> None:
    """Runs or resumes a session whose run is FOLDER/NAME and whose output goes to FOLDER/NAME.txt. session:
    its arguments; more: its options. Raises ModelError when it fails."""
    own = {"report-dir": folder, "run-name": name, "budget": f"{max(1, round(budget_s))}s"}
    command = [
        *(sys.executable, "-m", "pytest", *session, "--tile-oracle-resume"),
        *(f"--tile-oracle-{option}={value}" for option, value in {**own, **more}.items()),
    ]
    log = folder / f"{name}.txt"
    with log.open("ab") as file:
        status = subprocess.run(command, check=False, stdout=file, stderr=subprocess.STDOUT).returncode
    if status in _SESSION_FAILED or status < 0:
        said = log.read_text("utf-8", "replace").strip().rpartition("\n")[2]
        raise ModelError(f"the session of {name} ended with status {status}: {said} (all of it: {log})")


@dataclass(frozen=True)
class Round:
    """name: of its run. pairs: chosen. seconds: spent on it. measured, per_problem: measurements after it.
    expected_regret_percent: what the models expected to gain still when it was chosen, None without a model.
    """

    name: str
    pairs: int
    seconds: float = 0.0
    done: bool = False
    measured: int = 0
    per_problem: float = 0.0
    expected_regret_percent: float | None = None


@dataclass
class TuneRounds:
    """The rounds of one cold start. session: the options of its pytest sessions."""

    folder: Path
    start: ColdStart
    session: Sequence[str]
    settings: dict[str, Any]
    rounds: list[Round] = field(default_factory=list)

    def load(self) -> None:
        """Reads an earlier state. Raises ModelError for one of other settings or that cannot be read."""
        path = self.folder / STATE
        if not path.is_file():
            return
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            rounds = [Round(**one) for one in document["rounds"]]
            settings = dict(document["settings"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{path} cannot be read ({error}): name another --run-name") from None
        if settings != self.settings:
            other = next(key for key in self.settings if settings.get(key) != self.settings[key])
            raise ModelError(
                f"{path} is of another {other} ({settings.get(other)!r}): name another --run-name"
            )
        self.rounds = rounds

    @property
    def spent_s(self) -> float:
        """Seconds of all rounds."""
        return sum(one.seconds for one in self.rounds)

    def run(self, budget_s: float, report: Callable[[TuneRounds], None] | None = None) -> None:
        """Measures round by round until the budget or the pairs end. Raises ModelError when a session
        fails."""
        self.folder.mkdir(parents=True, exist_ok=True)
        while budget_s - self.spent_s > 0:
            if not self.rounds or self.rounds[-1].done:
                chosen, regret = self.start.choose(self.latency_ms(), self._size(budget_s))
                if not len(chosen):
                    break
                name = f"round-{len(self.rounds) + 1:02d}"
                expected = None if np.isnan(regret) else 100 * regret
                pairs = self.start.table.loc[chosen, ["problem", "kernel"]]
                write_atomically(self.folder / f"{name}.csv", pairs.to_csv(index=False).encode())
                self.rounds.append(Round(name, len(chosen), expected_regret_percent=expected))
                self._save()
            self._measure(self.rounds[-1], budget_s - self.spent_s)
            if report is not None:
                report(self)

    def latency_ms(self) -> Array:
        """(pairs,): the latency of every measured pair, infinite for one that failed, NaN for an unmeasured
        one."""
        folders = [measurements_folder(self.folder / one.name) for one in self.rounds]
        # The budget may end before the first pair of a round.
        runs = [folder for folder in folders if parts_in(folder) or journals_in(folder)]
        if not runs:
            return np.full(len(self.start.table), np.nan)
        return self.start.latency_ms(final_measurements(load_records(runs)))

    def curve(self) -> list[dict[str, Any]]:
        """Returns the rounds, each with `mean_percent`: the mean efficiency of the best kernels so far,
        against the best that are known now (an upper bound: the exhaustive oracle is not known)."""
        latest = self._best(len(self.rounds))
        points = []
        for number, one in enumerate(self.rounds, 1):
            best = self._best(number)
            known = np.isfinite(best) & np.isfinite(latest)
            mean = float((latest[known] / best[known]).sum() / max(1, np.isfinite(latest).sum()))
            points.append({**asdict(one), "mean_percent": 100 * mean})
        return points

    def _best(self, rounds: int) -> Array:
        part = TuneRounds(self.folder, self.start, (), {}, self.rounds[:rounds])
        best = np.full(self.start.problems, np.inf)
        np.fmin.at(best, self.start.problem_of, part.latency_ms())
        return best

    def _size(self, budget_s: float) -> int:
        """Returns how many pairs the next round gets: a tenth of the budget at the rate so far, between half
        a pair and two pairs a problem."""
        problems = self.start.problems
        measured = sum(one.pairs for one in self.rounds)
        if not measured:
            return problems
        rate = measured / max(self.spent_s, 1e-3)
        return int(min(max(problems / 2, rate * budget_s / _ROUNDS), 2 * problems)) or 1

    def _measure(self, one: Round, left_s: float) -> None:
        pairs = {"pairs": self.folder / f"{one.name}.csv", "model": "none"}
        began = time.monotonic()
        measure(self.folder, one.name, self.session, left_s, pairs)
        seconds = one.seconds + time.monotonic() - began
        measured = int((~np.isnan(self.latency_ms())).sum())
        if not measured:
            raise ModelError(f"{one.name} measured nothing: see {self.folder / one.name}.txt")
        each = measured / self.start.problems
        self.rounds[-1] = replace(one, seconds=seconds, done=True, measured=measured, per_problem=each)
        self._save()

    def _save(self) -> None:
        document = {"settings": self.settings, "rounds": [asdict(one) for one in self.rounds]}
        write_atomically(self.folder / STATE, (json.dumps(document, indent=1) + "\n").encode())
