"""Runs tile-oracle with the lowest versions of its dependencies that pyproject.toml allows, and the newest.

    python -m tools.tested_versions [lowest] [newest]

Each has a new environment in a temporary folder, in which a session on the CPU, one with two workers, a
replay and a training run as a user runs them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOWEST, NEWEST = "lowest", "newest"
_FLOOR = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)(?:\[[^]]*\])?>=(?P<version>[0-9][0-9a-z.]*)(?:\s*;.*)?")
_SHORTLY = ("--kernel-set=tiny", "--target=cpu", "--kernel-budget=1ms", "--settle-budget=0")
STEPS: tuple[tuple[str, ...], ...] = (
    ("pytest", "--problem-set=forward_smoke", *_SHORTLY, "--run-name=demo", "--allow=no-baseline"),
    ("pytest", "--problem-set=gemm_smoke", *_SHORTLY, "--run-name=workers", "--allow=no-baseline", "-n2"),
    ("pytest", "--problem-set=gemm_crr_validation", "--target=replay"),
    ("pytest", "--problem-set=gemm_crr_validation", "--target=replay", "-n2"),
    ("tile_oracle.cli", "train", "reports/demo", "--out=trained"),
    ("tile_oracle.cli", "evaluate", "trained", "reports/demo"),
)
"""What runs in each environment: modules of Python and their arguments."""


class NoFloorError(Exception):
    """A dependency has no lowest version, or more than that."""


def lowest_versions(requirements: Sequence[str]) -> list[str]:
    """`name==version` for requirements of the form `name>=version`. Raises NoFloorError for others."""
    found = []
    for one in requirements:
        match = _FLOOR.fullmatch(one.strip())
        if match is None:
            raise NoFloorError(f"pyproject.toml: {one!r} has no lowest version: write NAME>=VERSION")
        found.append(f"{match['name']}=={match['version']}")
    return found


def dependencies() -> list[str]:
    """The direct dependencies of the package, without extras."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    return [str(one) for one in listed]


def _test(which: str, folder: Path) -> None:
    """Raises CalledProcessError for the first step that fails."""
    python = folder / "env" / "bin" / "python"
    venv.create(folder / "env", with_pip=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(lowest_versions(dependencies()) if which == LOWEST else ()))
    pip = (str(python), "-m", "pip", "--disable-pip-version-check")
    _run([*pip, "install", "--quiet", "-c", str(constraints), str(ROOT)], folder)
    _run([*pip, "freeze"], folder)
    for step in STEPS:
        _run([str(python), "-m", *step], folder)


def _run(command: Sequence[str], folder: Path) -> None:
    """Shows the end of the output, all of it where it fails."""
    began = time.monotonic()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    environment = kept | {"TILE_ORACLE_CACHE": str(folder / "cache")}
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines = done.stdout.strip().splitlines()
    print("\n".join(lines if done.returncode or "freeze" in command else lines[-1:]))
    print(f"{time.monotonic() - began:.0f} s, status {done.returncode}: {' '.join(command[1:])}", flush=True)
    done.check_returncode()


def main(asked: Sequence[str]) -> int:
    for which in asked or (LOWEST, NEWEST):
        with tempfile.TemporaryDirectory(prefix="tile-oracle-versions-") as folder:
            print(f"== {which} versions, Python {sys.version.split()[0]}", flush=True)
            try:
                _test(which, Path(folder))
            except subprocess.CalledProcessError:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
