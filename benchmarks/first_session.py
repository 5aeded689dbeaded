"""A first session, for which nothing is compiled: how long the device waits for compilers.

    python benchmarks/first_session.py --against CHECKOUT
    python benchmarks/first_session.py --against CHECKOUT -- --problem-set SET --target sm_90

Everything after `--` is given to pytest; without it, small problems run on CPU cores. The versions take
turns, each with an empty cache. Prints the medians for each version, and their ratios: the wall time, the
share of it that the device waited for compilers, as the records have it, and the time until the first problem
was measured.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pandas as pd
from several_devices import OF_PROBLEM, session_lines

_ON_CPU = (
    *("--problem-set", "many.csv", "--target", "cpu", "--kernel-set", "tiny"),
    *("--kernel-budget", "100ms", "--sampling", "equal"),
)
_PROBLEMS = 8


def session(checkout: Path, folder: Path, options: Sequence[str]) -> dict[str, float]:
    """A first session of a version."""
    caches = {name: str(folder / "cache") for name in ("TILE_ORACLE_CACHE", "TRITON_CACHE_DIR")}
    path = os.pathsep.join([str(checkout / "harness"), str(checkout)])
    began, first_s = time.perf_counter(), 0.0
    for passed, line in session_lines(folder, options, "first", {**os.environ, **caches, "PYTHONPATH": path}):
        if not first_s and OF_PROBLEM.match(line):
            first_s = passed
    wall_s = time.perf_counter() - began
    records = pd.read_parquet(folder / "reports" / "first" / "measurements")
    waited_s = records["build_wait_ms"].sum() / 1e3
    return {"wall_s": wall_s, "waited": waited_s / wall_s, "first_s": first_s, "pairs": len(records)}


def main() -> None:
    """Prints the medians of each version."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another version")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("options", nargs="*")
    asked = parser.parse_args()
    versions = {"this version": Path(__file__).parents[1]}
    if asked.against:
        versions["the other"] = asked.against.resolve()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in versions}
    for _ in range(asked.rounds):
        for name, checkout in versions.items():
            with tempfile.TemporaryDirectory(prefix="first-session-") as scratch:
                folder = Path(scratch)
                lines = [f"{n},8,8,9,9,3,3,fp32" for n in range(1, _PROBLEMS + 1)]
                (folder / "many.csv").write_text("\n".join(["N,C,K,Hi,Wi,Y,X,dtype", *lines, ""]))
                (folder / "pytest.ini").write_text("[pytest]\n")
                found[name].append(session(checkout, folder, asked.options or _ON_CPU))
                print(name, {key: round(value, 3) for key, value in found[name][-1].items()}, flush=True)
    medians = {
        name: {key: median(one[key] for one in rows) for key in rows[0]} for name, rows in found.items()
    }
    for name, values in medians.items():
        print(
            f"{name}: {values['wall_s']:.1f} s, {100 * values['waited']:.0f} % waiting for compilers, "
            f"first problem after {values['first_s']:.1f} s, {values['pairs']:.0f} records"
        )
    if asked.against:
        ours, theirs = medians.values()
        ratios = {key: round(ours[key] / theirs[key], 3) for key in ("wall_s", "waited", "first_s")}
        print(f"ratios: {ratios}")


if __name__ == "__main__":
    main()
