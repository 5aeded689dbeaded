"""What a user's file declares for an architecture, as data."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from tile_oracle.compiling.source import Headers
from tile_oracle.compiling.triton.child_process import ask_child, triton_version
from tile_oracle.errors import BuildError, HarnessError, NoKernelsError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.sealed_json import read_object, typed
from tile_oracle.files.user_file import read_bytes
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.problem import Problem
from tile_oracle.triton.expression import Tree, checked

DESCRIPTION = "triton.json"
"""The file of a prebuilt folder that describes its kernels, for machines without Triton."""

_FORMAT: Final = "tile-oracle triton kernels 1"
_MOST_FILES, _MOST_FILE_BYTES = 1000, 16 << 20
_UNUSABLE = "its process left an answer that cannot be used"
_FIX = "name a Python file of kernels, or make the folder with `tile-oracle build --kernels FILE`"
Kept = dict[str, dict[str, list[int]]]
"""Declaration's number -> problem's id -> places of the configurations that its pruning functions keep."""

_NOT_COMPILED = ("constraints", "config")
"""Parts of a specification that do not change the binary."""


@dataclass(frozen=True)
class Told:
    """What the child process says of a file.

    left_out: (operation, function, why, number of configurations). pruned: functions with pruning functions.
    environment: the variables that the file reads, as they were then. files: those that it reads -> their
    places. kept: what the pruning functions said so far.
    """

    kernels: dict[str, dict[str, Any]]
    left_out: tuple[tuple[str, str, str, int], ...]
    pruned: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    kept: Kept = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Described(Told):
    """What a prebuilt folder has of it, but for `environment` and `files`.

    identity: hash of files, variables, Triton's version and architecture.
    """

    format: Literal["tile-oracle triton kernels 1"] = _FORMAT
    name: str
    arch: str
    triton: str
    identity: str


@dataclass(frozen=True)
class Description:
    """The kernels of a file. units: kernel -> its specification (tile_oracle.compiling.triton.specify).

    headers: the user's files, as they were when they were described; without files in a prebuilt folder.
    """

    told: Described
    headers: Headers
    units: Mapping[Kernel, Mapping[str, Any]]

    @cached_property
    def constraints(self) -> Mapping[Kernel, tuple[tuple[Tree, str], ...]]:
        """Kernel -> the conditions under which it computes a problem, with their texts."""
        return {
            kernel: tuple((tree, text) for tree, text in unit["constraints"])
            for kernel, unit in self.units.items()
        }

    def unit(self, kernel: Kernel) -> str:
        """Returns what compiling the kernel needs, as text."""
        told = {name: value for name, value in self.units[kernel].items() if name not in _NOT_COMPILED}
        return json.dumps(told, sort_keys=True)

    def write(self, folder: Path) -> None:
        """Writes the description into a prebuilt folder."""
        told = {name: one for name, one in vars(self.told).items() if name not in ("environment", "files")}
        with disk_errors_as(BuildError, f"{folder} cannot be written"):
            write_atomically(folder / DESCRIPTION, json.dumps(told, sort_keys=True).encode())


def describe_file(path: Path, arch: str) -> Description:
    """Describes the kernels of a Python file, in a child process. Raises BuildError with one line."""
    version = triton_version()
    before = _read(path)
    with tempfile.TemporaryDirectory(prefix="tile-oracle-") as name:
        question = Path(name) / "question.json"
        folders = [str(Path(one).absolute()) for one in os.environ.get("PYTHONPATH", "").split(":") if one]
        asked = {"arch": arch, "environment": dict(os.environ), "path": folders}
        question.write_text(json.dumps(asked), "utf-8")
        answer = ask_child(path, question, what=path.name)
    told = typed(answer, Told, path.name, BuildError, _UNUSABLE)
    files = _files(path, told.files)
    if dict(files)[path.name] != before:
        raise BuildError(f"{path} changed while it was read: start again")
    headers = Headers(path.parent, files)
    variables = sorted(f"{name}={value}" for name, value in told.environment.items())
    parts = [_FORMAT, version, arch, headers.digest, *variables]
    identity = hashlib.sha256("".join(f"{part}\n" for part in parts).encode()).hexdigest()
    described = Described(**vars(told), name=path.name, arch=arch, triton=version, identity=identity)
    return _description(described, headers, path.name)


def is_described(folder: Path) -> bool:
    """Returns whether a folder of `tile-oracle build` holds kernels written in Triton."""
    return (folder / DESCRIPTION).is_file()


def read_description(folder: Path, arch: str) -> Description:
    """Returns the description in a prebuilt folder. Raises BuildError."""
    path = folder / DESCRIPTION
    told = typed(read_object(path, BuildError, _FIX), Described, path, BuildError, _FIX)
    if told.arch != arch:
        raise BuildError(f"{folder} holds kernels for {told.arch}, not for {arch}")
    return _description(told, Headers(folder, ()), str(path))


def _description(told: Described, headers: Headers, where: str) -> Description:
    try:
        units = {parse_kernel_name(kernel): unit for kernel, unit in told.kernels.items()}
        for unit in units.values():
            unit["constraints"] = [[checked(tree), str(text)] for tree, text in unit["constraints"]]
    except (KeyError, TypeError, ValueError, HarnessError) as error:
        raise BuildError(f"{where}: its description cannot be used ({error})") from None
    if not units:
        why = f": {told.left_out[0][2]}" if told.left_out else ""
        raise NoKernelsError(f"{where} has no kernel for {told.arch}{why}")
    return Description(told, headers, units)


def ask_pruning(description: Description, problems: Sequence[Problem]) -> None:
    """Adds to `kept` what the pruning functions say about these problems. Raises BuildError with one line."""
    with tempfile.TemporaryDirectory(prefix="tile-oracle-") as name:
        folder, question = Path(name) / "files", Path(name) / "question.json"
        description.headers.write(folder)
        about, ids = description.told, [problem.id for problem in problems]
        asked = {"arch": about.arch, "problems": ids, "environment": about.environment}
        question.write_text(json.dumps(asked), "utf-8")
        told = ask_child(folder / about.name, question, what=about.name)
    for number, of_problem in typed(told, Kept, about.name, BuildError, _UNUSABLE).items():
        about.kept.setdefault(number, {}).update(of_problem)


def _files(path: Path, places: Mapping[str, str]) -> tuple[tuple[str, bytes], ...]:
    """Returns the user's files that were read, which the compiling processes need, too."""
    if len(places) > _MOST_FILES:
        raise BuildError(f"{path.name}: it reads {len(places):,} files, more than {_MOST_FILES:,}")
    found = {path.name: _read(path)}
    for name, place in places.items():
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise BuildError(f"{path.name}: it reads {name[:100]!r}, which is no name of a file")
        found[relative.as_posix()] = _read(Path(place))
    return tuple(sorted(found.items()))


def _read(path: Path) -> bytes:
    with disk_errors_as(BuildError, f"the kernels in {path} cannot be read"):
        return read_bytes(path, _MOST_FILE_BYTES)
