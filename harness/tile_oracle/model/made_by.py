"""What a model's measurements were made with: compilers, devices and drivers.

The same kernel has other times when another compiler builds it or another device runs it. A model folder
names what its training records were made with (`made_by` in train_manifest.json), so that a session, a replay
or a pick elsewhere can say so. Published folders have no such entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.files.sealed_json import typed
from tile_oracle.files.vouched_files import MANIFEST_FILE
from tile_oracle.model.store import read_manifest

MADE_BY_KEY = "made_by"
"""In train_manifest.json: {"toolchains": {identity: rows}, "devices": {...}, "drivers": {...}}."""

CONSTANTS_KEY = "constants_from"
"""In train_manifest.json: the measurements that constants of its formulas were fitted to, in words."""

COST = "models that knew clang's kernels alone picked at 98.8 % of them, and at 97.2 % of nvcc's on an H100"
"""What such a difference has cost (docs/heuristic.md: three directions of convolution, nvcc on an H100)."""

IMPORTED = "imported from "
"""What the toolchain of imported records begins with; the file's name follows."""

_COLUMNS = {"toolchains": "toolchain", "devices": "device", "drivers": "driver"}
_PROGRAM = re.compile(r"(AMD clang|clang|nvcc|ptxas|hipcc|g\+\+|gcc) (\d+(?:\.\d+)*)")


@dataclass(frozen=True)
class MadeBy:
    """Identities of toolchains, names of devices and drivers -> number of measurements; empty: unknown."""

    toolchains: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    drivers: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_records(cls, records: pd.DataFrame) -> MadeBy:
        """Returns what the ok measurements of records were made with."""
        named = records[[column for column in _COLUMNS.values() if column in records]]
        ok = named[records["status"] == "ok"] if "status" in records else named
        return cls(**{name: _counts(ok, column) for name, column in _COLUMNS.items()})

    @classmethod
    def of_names(cls, toolchain: str = "", device: str = "", driver: str = "") -> MadeBy:
        """Returns one toolchain, device and driver; "" for an unknown one."""
        return cls(*({name: 1} if name else {} for name in (toolchain, device, driver)))

    @classmethod
    def of_model(cls, folder: Path) -> MadeBy:
        """Returns what a model folder states. Raises ModelError for an invalid manifest."""
        place = f"{folder / MANIFEST_FILE}: {MADE_BY_KEY}"
        return typed(read_manifest(folder).get(MADE_BY_KEY, {}), cls, place, ModelError)

    def and_of(self, other: MadeBy) -> MadeBy:
        """Returns the measurements of both."""
        names = [one.name for one in fields(self)]
        return MadeBy(*(_sum(getattr(self, name), getattr(other, name)) for name in names))

    def as_json(self) -> dict[str, dict[str, int]]:
        return asdict(self)


def builds_of(records: pd.DataFrame) -> pd.Series:
    """Returns what made each record: its device, and its compiler and assembler with their versions ("" for
    unknown ones). Who packaged the compiler does not count."""
    device, toolchain = (
        pd.Series(records.get(name, ""), index=records.index, dtype=object).fillna("").astype(str)
        for name in ("device", "toolchain")
    )
    programs = {one: " ".join(" ".join(part) for part in _programs(one)) for one in toolchain.unique()}
    return device + " " + toolchain.map(programs)


def differences(model: MadeBy, here: MadeBy) -> list[str]:
    """Returns the name what the measurements or binaries here do not share with the model's, one phrase each.

    Unknown names are not compared. Toolchains are compared by compiler, assembler and their versions: who
    packaged them does not change the code."""
    found = []
    # A file that was read is no compiler: what built its kernels is unknown.
    built, there = (
        {name: n for name, n in of.toolchains.items() if not name.startswith(IMPORTED)}
        for of in (here, model)
    )
    if there and built:
        known = {program for name in there for program in _programs(name)}
        other = [name for name in built if not set(_programs(name)) <= known]
        if other:
            found.append(f"builds ({other[0]}, the model's {_most(there)})")
    for what, ours, theirs in (
        ("devices", here.devices, model.devices),
        ("drivers", here.drivers, model.drivers),
    ):
        # The driver of a CPU is the system's kernel, whose release does not change the times.
        strange = [name for name in ours if name not in theirs and not name.startswith("Linux ")]
        if theirs and strange:
            found.append(f"{what} ({strange[0]}, the model's {_most(theirs)})")
    return found


def travel_note(folders: Iterable[Path], here: MadeBy) -> str:
    """Returns one line on how the kernels here differ from the models', and what that has cost, or "".

    Raises ModelError for an invalid manifest.
    """
    said = dict.fromkeys(phrase for one in folders for phrase in differences(MadeBy.of_model(one), here))
    if not said:
        return ""
    return (
        f"the records and the model come from different {', '.join(said)}: {COST}; "
        "`tile-oracle model train RECORDS --adapt MODEL` corrects it by a few measurements if that helps"
    )


def _counts(records: pd.DataFrame, column: str) -> dict[str, int]:
    if column not in records:
        return {}
    counts = {str(name): int(count) for name, count in records[column].value_counts().items() if count}
    return {name: counts[name] for name in sorted(counts) if name}


def _sum(ours: Mapping[str, int], theirs: Mapping[str, int]) -> dict[str, int]:
    return {name: ours.get(name, 0) + theirs.get(name, 0) for name in sorted({*ours, *theirs})}


def _programs(toolchain: str) -> list[tuple[str, ...]]:
    """Returns the programs of a toolchain's identity with their versions; the whole identity if it names
    none."""
    return [match.groups() for match in _PROGRAM.finditer(toolchain)] or [(toolchain,)]


def _most(counts: Mapping[str, int]) -> str:
    return max(sorted(counts), key=lambda name: counts[name])
