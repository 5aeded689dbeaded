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
from typing import Any

from tile_oracle.compiling.source import Headers
from tile_oracle.compiling.triton.child_process import ask_child, triton_version
from tile_oracle.errors import BuildError, HarnessError, NoKernelsError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.problem import Problem
from tile_oracle.triton.expression import Tree, checked

DESCRIPTION = "triton.json"
"""The file of a prebuilt folder that describes its kernels, for machines without Triton."""

_FORMAT = "tile-oracle triton kernels 1"
_MOST_FILES, _MOST_FILE_BYTES = 1000, 16 << 20
Kept = dict[str, dict[str, list[int]]]
"""Declaration's number -> problem's id -> places of the configurations that its pruning functions keep."""

_NOT_COMPILED = ("constraints", "config")
"""Parts of a specification that do not change the binary."""


@dataclass(frozen=True)
class Description:
    """The kernels of a file. units: kernel -> its specification (tile_oracle.compiling.triton.specify).

    left_out: (function, why, number of configurations). pruned: functions with pruning functions. kept: what
    these said so far.
    headers: the user's files, as they were when they were described; without files in a prebuilt folder.
    environment: the variables that the files read, as they were then.
    identity: hash of files, variables, Triton's version and architecture.
    """

    name: str
    arch: str
    triton: str
    units: Mapping[Kernel, Mapping[str, Any]]
    left_out: tuple[tuple[str, str, int], ...]
    pruned: tuple[str, ...]
    headers: Headers
    identity: str
    environment: Mapping[str, str]
    kept: Kept = field(default_factory=dict)

    @cached_property
    def constraints(self) -> Mapping[Kernel, tuple[tuple[Tree, str], ...]]:
        """Kernel -> the conditions under which it computes a problem, with their texts."""
        return {
            kernel: tuple((tree, text) for tree, text in unit["constraints"])
            for kernel, unit in self.units.items()
        }

    def unit(self, kernel: Kernel) -> str:
        """What compiling the kernel needs, as text."""
        told = {name: value for name, value in self.units[kernel].items() if name not in _NOT_COMPILED}
        return json.dumps(told, sort_keys=True)

    def write(self, folder: Path) -> None:
        """Writes the description into a prebuilt folder."""
        told = {
            "format": _FORMAT,
            "name": self.name,
            "arch": self.arch,
            "triton": self.triton,
            "identity": self.identity,
            "left_out": self.left_out,
            "pruned": self.pruned,
            "kept": self.kept,
            "kernels": {kernel.name: unit for kernel, unit in self.units.items()},
        }
        try:
            write_atomically(folder / DESCRIPTION, json.dumps(told, sort_keys=True).encode())
        except OSError as error:
            raise BuildError(f"{folder} cannot be written: {error.strerror or error}") from None


def describe_file(path: Path, arch: str) -> Description:
    """Describes the kernels of a Python file, in a child process. Raises BuildError with one line."""
    version = triton_version()
    before = _read(path)
    with tempfile.TemporaryDirectory(prefix="tile-oracle-") as name:
        surroundings = Path(name) / "surroundings.json"
        folders = [str(Path(one).absolute()) for one in os.environ.get("PYTHONPATH", "").split(":") if one]
        surroundings.write_text(json.dumps({"environment": dict(os.environ), "path": folders}), "utf-8")
        told = ask_child("describe.py", path, arch, str(surroundings), what=path.name)
    files = _files(path, told)
    if dict(files)[path.name] != before:
        raise BuildError(f"{path} changed while it was read: start again")
    headers = Headers(path.parent, files)
    parts = [
        _FORMAT,
        version,
        arch,
        headers.digest,
        *sorted(f"{k}={v}" for k, v in told["environment"].items()),
    ]
    identity = hashlib.sha256("".join(f"{part}\n" for part in parts).encode()).hexdigest()
    return _description(path.name, arch, version, told, headers, identity, path.name)


def is_described(folder: Path) -> bool:
    """Whether a folder of `tile-oracle build` holds kernels written in Triton."""
    return (folder / DESCRIPTION).is_file()


def read_description(folder: Path, arch: str) -> Description:
    """The description in a prebuilt folder. Raises BuildError."""
    path = folder / DESCRIPTION
    try:
        told = json.loads(path.read_bytes())
        if told["format"] != _FORMAT:
            raise ValueError("another format")
        name, triton, identity = (str(told[key]) for key in ("name", "triton", "identity"))
        built_for = str(told["arch"])
    except FileNotFoundError:
        raise BuildError(
            f"{folder} holds no {DESCRIPTION}: name a Python file of kernels, or a folder of `tile-oracle "
            "build --kernels FILE`"
        ) from None
    except OSError as error:
        raise BuildError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BuildError(f"{path} is damaged: make the folder with tile-oracle build again") from None
    if built_for != arch:
        raise BuildError(f"{folder} holds kernels for {built_for}, not for {arch}")
    return _description(name, arch, triton, told, Headers(folder, ()), identity, str(path))


def _description(
    name: str, arch: str, version: str, told: Mapping[str, Any], headers: Headers, identity: str, where: str
) -> Description:
    try:
        units = {parse_kernel_name(kernel): unit for kernel, unit in told["kernels"].items()}
        for unit in units.values():
            unit["constraints"] = [[checked(tree), str(text)] for tree, text in unit["constraints"]]
        left_out = tuple((str(who), str(why), int(count)) for who, why, count in told["left_out"])
        pruned = tuple(map(str, told["pruned"]))
        kept = _kept(told.get("kept", {}))
        environment = {str(variable): str(value) for variable, value in told.get("environment", {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError, HarnessError) as error:
        raise BuildError(f"{where}: its description cannot be used ({error})") from None
    if not units:
        why = f": {left_out[0][1]}" if left_out else ""
        raise NoKernelsError(f"{where} has no kernel for {arch}{why}")
    return Description(name, arch, version, units, left_out, pruned, headers, identity, environment, kept)


def ask_pruning(description: Description, problems: Sequence[Problem]) -> None:
    """Adds to `kept` what the pruning functions say about these problems. Raises BuildError with one line."""
    with tempfile.TemporaryDirectory(prefix="tile-oracle-") as name:
        folder, question = Path(name) / "files", Path(name) / "question.json"
        description.headers.write(folder)
        asked = {
            "arch": description.arch,
            "problems": [problem.id for problem in problems],
            "environment": description.environment,
        }
        question.write_text(json.dumps(asked), "utf-8")
        told = ask_child("prune.py", folder / description.name, str(question), what=description.name)
    try:
        for number, of_problem in _kept(told).items():
            description.kept.setdefault(number, {}).update(of_problem)
    except (TypeError, ValueError, AttributeError):
        raise BuildError(f"{description.name}: its process left an answer that cannot be used") from None


def _kept(told: Mapping[str, Any]) -> Kept:
    return {
        str(number): {
            str(problem): [int(place) for place in places] for problem, places in of_problem.items()
        }
        for number, of_problem in told.items()
    }


def _files(path: Path, told: Mapping[str, Any]) -> tuple[tuple[str, bytes], ...]:
    """The user's files that were read, which the compiling processes need, too."""
    told_files = told.get("files")
    if not isinstance(told_files, dict) or len(told_files) > _MOST_FILES:
        raise BuildError(f"{path.name}: its process left an answer that names no files")
    found = {path.name: _read(path)}
    for name, place in told_files.items():
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise BuildError(f"{path.name}: it reads {name[:100]!r}, which is no name of a file")
        found[relative.as_posix()] = _read(Path(str(place)))
    return tuple(sorted(found.items()))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_FILE_BYTES + 1)
    except OSError as error:
        raise BuildError(f"the kernels in {path} cannot be read: {error.strerror}") from None
    if len(content) > _MOST_FILE_BYTES:
        raise BuildError(f"{path} is larger than {_MOST_FILE_BYTES >> 20} MiB: not a file of kernels")
    return content
