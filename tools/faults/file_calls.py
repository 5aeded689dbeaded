"""Makes every file call of a small session fail, one after the other, with each of several errors.

After each faulty session another one without faults resumes the run. A promise is broken if the faulty
session shows a traceback, if it reports success although rows are left in a journal, or if the resumed run
lacks a pair, has a pair twice, or measured an acknowledged row again. The last faults simulate a disk that
stays full (every call from some moment on fails). Every twentieth fault is injected into a whole pytest
session that measures: below its reports, its cache, its locks, /proc or /sys. Then a promise is also
broken if a pair has another status, or another device, compiler or source, than in a session without faults.
"""

from __future__ import annotations

import errno
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tile_oracle.errors import HarnessError
from tile_oracle.files.lock_folder import LOCK_DIR_VARIABLE
from tile_oracle.record.dataset import IDENTITY, load_records
from tools.faults.campaign import Campaign, Outcome, main
from tools.faults.file_layer import build, environment, faulty_environment
from tools.faults.memory_folder import memory_folder
from tools.faults.small_session import ROWS, Answer
from tools.faults.source_tree import plugin_options

ERRORS = (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EACCES)
_SESSIONS = 20
"""One fault in this many is injected into a whole pytest session."""


@dataclass(frozen=True)
class Fault:
    """The `at`-th file call fails with errno `number`; with `every_later` all calls from then on."""

    at: int
    number: int
    every_later: bool = False

    @property
    def name(self) -> str:
        """For example "ENOSPC at call 17"."""
        return f"{errno.errorcode[self.number]} {'from' if self.every_later else 'at'} call {self.at}"


class Server:
    """Runs small sessions with a faulty file layer."""

    def __init__(self, library: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.faults.small_session"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(library),
            text=True,
        )

    def session(self, folder: Path, number: int, fault: Fault | None = None) -> Answer:
        """Runs the `number`-th session of a folder, with at most one fault."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {
            "folder": str(folder),
            "number": number,
            "at": fault.at if fault else 0,
            "errno": fault.number if fault else 0,
            "every_later": bool(fault and fault.every_later),
        }
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return Answer(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """Stops the server process."""
        self._process.communicate()


def run(count: int, seed: int) -> Outcome:
    """Injects every error into every call if `count` is large enough, else into an even sample of them."""
    with tempfile.TemporaryDirectory(prefix="file-calls-", dir=memory_folder()) as scratch:
        library = build(Path(scratch))
        server = Server(library)
        try:
            whole = count // _SESSIONS
            outcome = _small(server, Path(scratch), count - whole, seed)
        finally:
            server.close()
        return _with_pytest(outcome, library, Path(scratch), whole, seed)


def _small(server: Server, scratch: Path, count: int, seed: int) -> Outcome:
    counts: Counter[str] = Counter()
    failures: list[str] = []
    first, second = scratch / "first", scratch / "second"
    calls = server.session(first, 1).calls
    more = server.session(first, 2).calls
    for fault in _chosen(calls, count, seed):
        shutil.rmtree(second, ignore_errors=True)
        answer = server.session(second, 1, fault)
        counts[_kind(answer)] += 1
        failures += [f"{fault.name} ({answer.failed}): {line}" for line in broken(server, second, answer)]
    sizes = {"file calls of a session": calls, "file calls of a resumed one": more}
    return Outcome(count, counts, failures, sizes)


def _chosen(calls: int, count: int, seed: int) -> Iterator[Fault]:
    """Yields `count` faults: every call with the errors in turn, then disks that stay full."""
    single = [Fault(at, ERRORS[(at + turn) % len(ERRORS)]) for turn in range(4) for at in range(1, calls + 1)]
    lasting = [Fault(at, errno.ENOSPC, every_later=True) for at in range(1, calls + 1)]
    faults = [*single, *lasting]
    if count >= len(faults):
        yield from faults
        choose = random.Random(seed)
        for _ in range(count - len(faults)):
            yield choose.choice(faults)
        return
    if count >= calls:
        yield from single[:calls]
        yield from random.Random(seed).sample(faults[calls:], count - calls)
        return
    first = random.Random(seed).randrange(len(single))
    yield from (single[(first + calls * place // count) % len(single)] for place in range(count))


def _kind(answer: Answer) -> str:
    if answer.traceback:
        return "traceback"
    return "refused in one line" if answer.error else "went on"


def broken(server: Server, folder: Path, answer: Answer) -> list[str]:
    """Resumes the run and returns the promises that the faulty session broke."""
    lines = []
    if answer.traceback:
        lines.append(answer.traceback)
    if "\n" in answer.error:
        lines.append(f"more than one line: {answer.error}")
    if answer.unsealed and not answer.error:
        # The plugin reports this as an error: rows in a journal are not lost, but the session has failed.
        answer = Answer(answer.acknowledged, error="unsealed")
    again = server.session(folder, 2)
    if again.error or again.traceback:
        # A folder without a manifest is not a run: nothing was acknowledged in it.
        return [*lines, f"cannot be resumed: {again.error or again.traceback}"]
    try:
        records = load_records(folder / "reports" / "small")
    except HarnessError as error:
        return [*lines, f"cannot be read: {error}"]
    return [*lines, *_unlike(records, answer.acknowledged, ROWS)]


def _unlike(records: pd.DataFrame, acknowledged: Sequence[Sequence[Any]], pairs: int) -> list[str]:
    lines = []
    if records.duplicated(IDENTITY).any() or len(records) > pairs:
        lines.append(f"doubled rows: {len(records)} of {pairs}")
    if len(records) < pairs:
        lines.append(f"{pairs - len(records)} rows are missing")
    kept = {(row.problem, row.kernel): row.latency_ms for row in records.itertuples()}
    lost = [one for one in acknowledged if kept.get((one[0], one[1])) != one[2]]
    if lost:
        lines.append(f"{len(lost)} acknowledged rows were lost or measured again")
    return lines


# ---- whole sessions -----------------------------------------------------------------------------------

_PROBLEMS = """\
N,C,K,Hi,Wi,Y,X,direction,dtype
1,8,8,6,6,3,3,forward,fp32
1,16,16,5,5,1,1,forward,fp32
"""
_PAIRS = 4
_IDENTITY = ("device", "driver", "toolchain", "source_hash")
"""Columns that say what made a measurement: no failing call may change them."""
_CALLS = (120, 40, 30, 150, 30)
"""About the number of calls that a process makes below each of the places."""


def _with_pytest(outcome: Outcome, library: Path, scratch: Path, count: int, seed: int) -> Outcome:
    counts, failures = Counter(outcome.counts), list(outcome.failures)
    choose = random.Random(seed)
    folder = scratch / "session"
    expected: list[tuple[object, ...]] = []
    for number in range(count):
        shutil.rmtree(folder / "reports", ignore_errors=True)
        (folder / "own").mkdir(parents=True, exist_ok=True)
        (folder / "small.csv").write_text(_PROBLEMS)
        if not expected:
            _pytest(folder, environment(library))  # compiles the kernels
            expected = _made_by(_swept(folder))
            shutil.rmtree(folder / "reports")
        places = (folder / "reports", folder / "cache", folder / "own", Path("/proc"), Path("/sys"))
        place, most = places[number % len(places)], _CALLS[number % len(places)]
        fault = Fault(choose.randrange(1, most), choose.choice(ERRORS))
        mark = folder / "hit"
        mark.unlink(missing_ok=True)
        status, output = _pytest(folder, faulty_environment(library, place, fault.at, fault.number, mark))
        counts["pytest sessions"] += 1
        counts["pytest sessions refused"] += status != 0
        counts[f"faults below {place.name}"] += mark.exists()
        lines = [f"a traceback is shown: {line}" for line in _tracebacks(output)]
        if status == 0:
            # A session that says nothing has to have measured what an undisturbed one measures.
            lines += _unlike_made(_swept(folder), expected)
        again, text = _pytest(folder, environment(library))
        if again != 0:
            lines.append(f"the resumed session ends with {again}: {text.strip().splitlines()[-1]}")
        else:
            swept = _swept(folder)
            lines += [*_unlike(swept, (), _PAIRS), *_unlike_made(swept, expected)]
            lines += [f"left behind: {path.name}" for path in folder.glob("reports/*/.attempt-*")]
        called = mark.read_text() if mark.exists() else "not reached"
        failures += [f"pytest, {place}, {fault.name} ({called}): {line}" for line in lines]
    return Outcome(outcome.faults + count, counts, failures, outcome.sizes)


def _swept(folder: Path) -> pd.DataFrame:
    (run_folder,) = (path.parent for path in folder.glob("reports/*/run.json"))
    return load_records(run_folder).query("round == 0")


def _made_by(records: pd.DataFrame) -> list[tuple[object, ...]]:
    """Status of each pair, and what made the measurement."""
    columns = ["problem", "kernel", "status", *_IDENTITY]
    records = records.astype({"status": str}).replace(
        {"status": {"noisy": "ok"}}
    )  # other work on the machine
    return sorted(tuple(map(str, row)) for row in records[columns].itertuples(index=False))


def _unlike_made(records: pd.DataFrame, expected: list[tuple[object, ...]]) -> list[str]:
    return [f"{made} is not expected" for made in sorted({*_made_by(records)} - {*expected})]


def _tracebacks(output: str) -> list[str]:
    """The last line of each traceback in a session's output."""
    parts = output.split("Traceback (most recent call last):\n")[1:]
    return [next(line for line in [*part.splitlines(), ""] if not line.startswith(" ")) for part in parts]


def _pytest(folder: Path, variables: dict[str, str]) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin_options()]
    asked = ["--problem-set", "small.csv", "--kernel-set", "tiny", "--kernel-filter", "tile_m == 16"]
    asked += ["--kernel-budget", "1ms", "--samples", "5", "--model", "none", "--target", "cpu", "--resume"]
    where = ["--report-dir", str(folder / "reports"), "--build-dir", str(folder / "cache")]
    done = subprocess.run(
        [*command, *asked, *where, "--run-name", "small"],
        cwd=folder,
        env={**variables, LOCK_DIR_VARIABLE: str(folder / "own" / "locks")},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout + done.stderr


CAMPAIGN = Campaign(
    "file_calls",
    "a failing file call loses no finished row, duplicates none, and prints one line",
    1000,
    run,
)

if __name__ == "__main__":
    sys.exit(main(CAMPAIGN))
