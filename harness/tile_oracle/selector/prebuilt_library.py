"""The native selector's library that a wheel carries: where it lies, and what it was built from.

A wheel for a platform holds one library, selector.so, and built_from.json beside it. The library is used only
if the hash in built_from.json is that of the installed sources and flags.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path

MACHINES = ("x86_64", "aarch64")
"""Machines that wheels are built for."""

GLIBC = "2.17"
"""The oldest glibc that a wheel's library runs with: that of manylinux2014."""

FOLDER = Path("_data") / "native"
"""Relative to the installed package."""

LIBRARY_FILE = "selector.so"
FACTS_FILE = "built_from.json"

_PACKAGE = Path(__file__).resolve().parent.parent


def find(built_from: str, package: Path = _PACKAGE) -> Path | None:
    """Returns the library in an installed package if it was built from these sources for this machine."""
    folder = package / FOLDER
    try:
        facts = json.loads((folder / FACTS_FILE).read_text())
    except (OSError, ValueError):
        return None
    fits = facts == facts_of(built_from, platform.machine())
    return folder / LIBRARY_FILE if fits and (folder / LIBRARY_FILE).is_file() else None


def facts_of(built_from: str, machine: str) -> dict[str, str]:
    """Returns the contents of built_from.json."""
    return {"built_from": built_from, "machine": machine}


def platform_tag(machine: str) -> str:
    """Returns the tag of a wheel that carries the library for a machine."""
    return f"py3-none-manylinux_{GLIBC.replace('.', '_')}_{machine}.manylinux2014_{machine}"
