"""Several devices over one: whole wall time of the same session with -n N and without, in one run.

    python benchmarks/several_devices.py --devices 2 --rounds 2
    python benchmarks/several_devices.py --devices 2 -- --problem-set SET --target sm_90 --build-dir DIR

Everything after `--` is given to pytest; without it, problems of one size and one that is larger run on CPU
cores. A first session, which is not timed, builds what is missing. Sessions alone and with N devices
alternate; the ratio is that of the medians. The sessions' lines go to stderr, with their seconds. Prints one
line of JSON: the ratio, and for each number of devices the median seconds of the whole session, and within it
until its first and last line of a problem.

A pair's time on the CPU is mostly its budget on the clock. With as many devices as cores, pytest and the
compilers take time from the devices.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

OF_PROBLEM = re.compile(r"\[ *\d+/\d+\] ")
_ON_CPU = (
    *("--problem-set", "many.csv", "--target", "cpu", "--kernel-set", "tiny"),
    *("--kernel-budget", "200ms", "--sampling", "equal"),
)
_PROBLEMS = 24


def session_lines(
    folder: Path, options: Sequence[str], name: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple[float, str]]:
    """Yields each line of a session in a folder, with the seconds since its start. Raises SystemExit with the
    last ones if it ends otherwise than a session may."""
    command = [sys.executable, "-u", "-m", "pytest", "-p", "no:cacheprovider", "--model", "none"]
    began, said = time.perf_counter(), []
    process = subprocess.Popen(
        [*command, *options, "--report-dir", str(folder / "reports"), "--run-name", name],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        yield time.perf_counter() - began, line
    if process.wait() not in (0, 1):
        raise SystemExit("".join(said[-30:]))


def session(folder: Path, options: Sequence[str], name: str) -> dict[str, float]:
    """Seconds of a session from its start: until its first and last line of a problem, and its end."""
    began, seen = time.perf_counter(), []
    for passed, line in session_lines(folder, options, name):
        if OF_PROBLEM.match(line):
            seen.append(passed)
        print(f"{name} {passed:6.1f} s {line.rstrip()[:150]}", file=sys.stderr, flush=True)
    return {"first": seen[0], "last": seen[-1], "whole": time.perf_counter() - began}


def measure(folder: Path, options: Sequence[str], devices: int, rounds: int) -> dict[str, object]:
    """The figures of alternating sessions."""
    session(folder, [*options, "--kernel-budget", "1ms", "-n", str(devices)], "builds")
    found: dict[int, list[dict[str, float]]] = {1: [], devices: []}
    for number in range(rounds):
        for count in (1, devices):
            more = [] if count == 1 else ["-n", str(count)]
            found[count].append(session(folder, [*options, *more], f"{count}-{number}"))
    seconds = {
        count: {part: round(median(one[part] for one in several), 1) for part in several[0]}
        for count, several in found.items()
    }
    ratio = round(seconds[1]["whole"] / seconds[devices]["whole"], 3)
    return {"devices": devices, "ratio": ratio, "seconds": seconds, "load": os.getloadavg()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("options", nargs="*")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="several-devices-") as name:
        folder = Path(name)
        lines = [f"{n},8,8,9,9,3,3,fp32" for n in range(1, _PROBLEMS)] + ["8,64,64,32,32,3,3,fp32"]
        (folder / "many.csv").write_text("\n".join(["N,C,K,Hi,Wi,Y,X,dtype", *lines, ""]))
        (folder / "pytest.ini").write_text("[pytest]\n")
        print(json.dumps(measure(folder, asked.options or _ON_CPU, asked.devices, asked.rounds)), flush=True)


if __name__ == "__main__":
    main()
