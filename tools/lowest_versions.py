"""Prints the lowest version of every direct dependency that pyproject.toml allows, as constraints for pip.

python -m tools.lowest_versions > lowest.txt && pip install -c lowest.txt .
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
_FLOOR = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)(?:\[[^]]*\])?>=(?P<version>[0-9][0-9a-z.]*)(?:\s*;.*)?")


class NoFloorError(Exception):
    """A dependency has no lowest version, or more than that."""


def lowest_versions(requirements: list[str]) -> list[str]:
    """`name==version` for requirements of the form `name>=version`. Raises NoFloorError for others."""
    found = []
    for one in requirements:
        match = _FLOOR.fullmatch(one.strip())
        if match is None:
            raise NoFloorError(f"{PYPROJECT}: {one!r} has no lowest version: write NAME>=VERSION")
        found.append(f"{match['name']}=={match['version']}")
    return found


def main() -> int:
    dependencies = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    print("\n".join(lowest_versions(dependencies)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
