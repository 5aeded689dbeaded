"""`python -m tools.libraries`: a library's first choice against the best of its algorithms, on this GPU.

Measures the 30 matrix products of gemm_30.csv with pytest, or those of --problem-set, and prints a table. It
needs no network.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.command_line import run_tool

_ROOT = Path(__file__).resolve().parents[2]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `python -m tools.libraries`."""
    parser.description = "A library's first choice against the best of its algorithms, problem by problem."
    parser.add_argument("--problem-set", default=str(Path(__file__).with_name("gemm_30.csv")))
    parser.add_argument("--kernels", default="cublaslt", help="for pytest (default: %(default)s)")
    parser.add_argument("--target", default="sm_90", help="for pytest (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("library-study"), help="folder of the run")
    parser.add_argument(
        "--table", action="store_true", help="measure nothing: print the table of --out again"
    )
    parser.add_argument("options", nargs="*", help="more options of pytest, behind --")


def run(args: argparse.Namespace) -> int:
    """Measures, and prints the table. Raises RecordError."""
    from tools.libraries.table import choice_table

    if not args.table:
        status = _measure(args)
        print(f"pytest ended with status {status} (1: some algorithms failed; see the report)", flush=True)
    folder = args.out / "run"
    print(choice_table(folder))
    return 0


def _measure(args: argparse.Namespace) -> int:
    search = os.pathsep.join(filter(None, [str(_ROOT / "harness"), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--tb=no", "-rN"]
    if not _is_installed():
        command += ["-p", "tile_oracle.plugin"]
    command += [f"--rootdir={args.out}", f"--problem-set={args.problem_set}", f"--kernels={args.kernels}"]
    command += ["--model=vendor", f"--target={args.target}", f"--report-dir={args.out}", "--run-name=run"]
    command += [f"--baseline-dir={args.out / 'models'}", "--resume", *args.options]
    args.out.mkdir(parents=True, exist_ok=True)
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": search}, check=False).returncode


def _is_installed() -> bool:
    from importlib.metadata import entry_points

    return any(point.value == "tile_oracle.plugin" for point in entry_points(group="pytest11"))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the tool."""
    return run_tool("tools.libraries", add_arguments, run, argv)


if __name__ == "__main__":
    sys.exit(main())
