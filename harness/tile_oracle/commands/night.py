"""`tile-oracle night`: one session of a series that a scheduler starts, gated by what earlier ones left.

Runs pytest on a named target. The folder --state keeps baselines, a history and the runs. A night that was
killed, or stopped at the end of its budget, is continued by the next one.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from tile_oracle.errors import HarnessError
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.judge.verdict import NO_MODEL
from tile_oracle.night.nights import (
    Entry,
    NightState,
    Unfinished,
    add_to_history,
    history_lines,
    read_history,
)
from tile_oracle.session.option_names import PREFIX
from tile_oracle.session.outcome import STEP_SUMMARY, Outcome
from tile_oracle.terminal.argument_table import argument_table
from tile_oracle.terminal.counts import count
from tile_oracle.terminal.documentation import page

EXAMPLES = f"""\
examples:
  tile-oracle night --problem-set forward_validation_300 --target gfx950 --state ~/nights/forward \\
      -- --ck-tile ~/composable_kernel --kernel-set profiler --budget 6h
  tile-oracle night --problem-set forward_validation_300 --target gfx950 --state ~/nights/forward \\
      --unfinished anew -- --update-baseline

The exit status is pytest's ({page("gate")}): 0 passed, 1 failed, 10 no baseline, 12 incomplete, 15 device
missing. Arguments after -- are passed to pytest unchanged.
"""

_OURS = ("--problem-set", "--target", "--baseline-dir", "--report-dir", "--run-name", "--resume", "--oracle")
_NO_TARGETS = ("", "auto", "replay")
_HISTORY_SHOWN = 14
_KILLED = "killed: it did not end by itself"
_MAX_SUMMARY_BYTES = 900_000
"""GitHub takes 1 MiB a step."""


GOES_ON = "the same command continues this night"
ARGUMENTS = argument_table("""
--problem-set SETS!  as pytest's --problem-set
--target NAME!  the device: gfx950, gfx942, gfx90a, sm_90 or cpu; the night fails if it is missing
--state DIR!  what nights share; outside a checkout
--kept DIR  where baselines and history are, a clone for one (default: STATE/kept)
--unfinished resume|anew=resume  what to do with a night that is not complete
--keep N=14  nights to keep
--summary FILE  append the summary, as Markdown, to this file
options [OPTION...]  behind --: further options of pytest
""")


def run(args: argparse.Namespace) -> int:
    """Returns one night; pytest's exit status. Raises HarnessError."""
    _check(args)
    folder = args.state.expanduser().resolve()
    state = NightState(folder, args.kept.expanduser().resolve() if args.kept else folder / "kept")
    with state.locked():
        before = state.unfinished()
        if before is not None and not before.ended:
            add_to_history(state.history, [Entry(before.night, _now(), "", _KILLED)])
        resumes = before is not None and args.unfinished == "resume"
        night = before.night if before is not None and resumes else state.new_night()
        print(f"night {night}: {'continues' if resumes else 'starts'} in {state.runs_of(night)}", flush=True)
        earlier = _verdicts(state.runs_of(night))
        state.set_unfinished(Unfinished(night, ended=False))
        command = _command(args, state, night, resumes)
        print(shlex.join(command), flush=True)
        status = _pytest(command)
        found = _verdicts(state.runs_of(night)).items()
        verdicts = {place: verdict for place, verdict in found if place not in earlier}
        if status == 0 and not verdicts:  # --collect-only, say
            status = int(Outcome.NOTHING_MEASURED)
        whole = _is_whole(status, verdicts, state.runs_of(night))
        entries = _entries(night, status, verdicts)
        add_to_history(state.history, entries)
        state.set_unfinished(None if whole else Unfinished(night, ended=True))
        forgotten = state.forget_old(args.keep, night)
        summary = _summary(night, status, whole, verdicts, read_history(state.history))
    if args.summary:
        with (
            disk_errors_as(HarnessError, f"cannot write {args.summary}"),
            args.summary.open("a", encoding="utf-8") as file,
        ):
            file.write(summary)
    print(f"night {night}: {entries[0].outcome} (exit status {_shell_status(status)})")
    if not whole:
        print("the next night continues it, unless --unfinished anew is given")
    if forgotten:
        print(f"runs of {count(len(forgotten), 'old night')} removed (--keep {args.keep})")
    return _shell_status(status)


def _check(args: argparse.Namespace) -> None:
    if args.target.strip() in _NO_TARGETS:
        raise HarnessError(
            f"--target {args.target!r} is not a device: name the gate's device, for example gfx950, "
            "so that a night without it fails"
        )
    if args.keep < 1:
        raise HarnessError(f"--keep {args.keep}: at least the night itself stays")
    for option in args.options:
        name = option.partition("=")[0]
        if name.replace(PREFIX, "--") in _OURS:
            raise HarnessError(f"{name} behind -- is the night's own: give it before --, or leave it out")


def _command(args: argparse.Namespace, state: NightState, night: str, resumes: bool) -> list[str]:
    words = [f"problem-set={args.problem_set}", f"target={args.target}"]
    words += [f"baseline-dir={state.baselines}", f"report-dir={state.runs_of(night)}"]
    own = (f"{PREFIX}{word}" for word in (*words, *(["resume"] if resumes else [])))
    return [sys.executable, "-m", "pytest", *own, *args.options]


def _pytest(command: Sequence[str]) -> int:
    """pytest's exit status; negative: the signal that killed it. Ctrl-C and SIGTERM end it in order, and this
    process waits for it."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.terminate()

    def stay(number: int, frame: FrameType | None) -> None:
        """A terminal's Ctrl-C reaches pytest by itself."""

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # The night writes a summary of its own (--summary).
    environment = {name: value for name, value in os.environ.items() if name != STEP_SUMMARY}
    process = subprocess.Popen(command, env=environment)
    try:
        signal.signal(signal.SIGINT, stay)
        signal.signal(signal.SIGTERM, pass_on)
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ---- what came of it --------------------------------------------------------------------------------


_Verdicts = dict[tuple[Path, int], dict[str, Any]]
"""(folder, time of writing) -> verdict. A resumed run writes another one."""


def _verdicts(runs: Path) -> _Verdicts:
    """Returns the verdicts of the newest run of a night, one for each problem set."""
    folders = sorted(runs.glob("*/run.json"), key=lambda path: path.stat().st_mtime_ns)
    verdicts: _Verdicts = {}
    for path in sorted(folders[-1].parent.rglob("verdict.json")) if folders else ():
        with suppress(OSError, ValueError):
            written_ns, found = path.stat().st_mtime_ns, json.loads(path.read_bytes())
            if isinstance(found, dict):
                verdicts[path.parent, written_ns] = found
    return verdicts


def _is_whole(status: int, verdicts: _Verdicts, runs: Path) -> bool:
    """Returns whether nothing is left to measure: the session measured all pairs, or made no run at all."""
    if not any(runs.glob("*/run.json")):
        return True
    if not verdicts:
        return False
    return status not in (2, 3) and all(
        not one["scope"]["left"] and not one["scope"]["stopped"] for one in verdicts.values()
    )


def _entries(night: str, status: int, verdicts: _Verdicts) -> list[Entry]:
    shown, outcome = (night, _now(), str(_shell_status(status))), _outcome(status)
    found = []
    for (folder, _), verdict in verdicts.items():
        figures, run = verdict["efficiency"], verdict["run"]
        said = "no verdict asked" if not status and verdict["verdict"]["state"] == NO_MODEL else outcome
        counts = (str(figures.get("problems", "")), str(figures.get("covered", "")))
        mean, median, p10 = (_percent(figures.get(f"{name}_percent")) for name in ("mean", "median", "p10"))
        of = (str(run["problem_set"]), *counts, mean, median, p10, str(run["device"]), folder.name)
        found.append(Entry(*shown, said, *of))
    return found or [Entry(*shown, outcome)]


def _outcome(status: int) -> str:
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    pytest_s = {2: "interrupted", 3: "internal error", 4: "usage error", 5: "no tests"}
    try:
        return Outcome(status).words
    except ValueError:
        return pytest_s.get(status, f"exit status {status}")


def _shell_status(status: int) -> int:
    return status if status >= 0 else 128 - status


def _percent(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) and value == value else ""


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _summary(night: str, status: int, whole: bool, verdicts: _Verdicts, history: Sequence[Entry]) -> str:
    """Markdown: what became of the night, the summary of each problem set, the last nights."""
    parts = [f"## tile-oracle, night {night}: {_outcome(status)} (exit status {_shell_status(status)})"]
    if not whole:
        parts.append("It is not complete. The next night continues it, unless it is told to start anew.")
    if not verdicts:
        parts.append("There is no verdict: see the log of the step.")
    for folder, _ in verdicts:
        with suppress(OSError, ValueError):
            parts.append((folder / "summary.md").read_text(encoding="utf-8")[: _MAX_SUMMARY_BYTES // 4])
    table = "\n".join(history_lines(history[-_HISTORY_SHOWN:]))
    parts.append(f"### The last nights\n\n```\n{table}\n```")
    return "\n\n".join(parts) + "\n"
