"""A kernel's binaries and what launching them needs, in one file: a zip archive without compression.

launch.json           the variants, best first; their launches, grids and arguments
aligned-0.cubin       one image a variant and launch (.hsaco for AMD's GPUs)
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tile_oracle.triton.expression import ExpressionError, Tree, checked
from tile_oracle.triton.views import ROLES

SUFFIX = ".zip"
_LAUNCH = "launch.json"
_MOST_BYTES = 256 << 20
_DATE = (1980, 1, 1, 0, 0, 0)
_MOST_THREADS = 1024
_TYPES = ("i32", "i64", "fp32")


@dataclass(frozen=True)
class ArchivedArgument:
    """An argument of a launch. type: Triton's (*bf16, i32, fp32). role: of the array that a pointer is to.

    value: an integer's expression, a pointer's offset in bytes, or a number of type fp32.
    """

    name: str
    type: str
    role: str
    value: Tree | float


@dataclass(frozen=True)
class ArchivedLaunch:
    """A launch. image, function: the code. lds_bytes: dynamic LDS of a workgroup.

    scratch_bytes, scratch_align: memory that the compiler needs for each workgroup.
    """

    image: bytes
    suffix: str
    function: str
    threads: int
    lds_bytes: int
    scratch_bytes: int
    scratch_align: int
    grid: tuple[Tree, Tree, Tree]
    arguments: tuple[ArchivedArgument, ...]


@dataclass(frozen=True)
class Variant:
    """The same kernel, compiled for problems for which `when` is not 0."""

    name: str
    when: Tree
    launches: tuple[ArchivedLaunch, ...]


@dataclass(frozen=True)
class Archive:
    """A kernel. The last variant is for all problems."""

    arch: str
    workspace_bytes: Tree
    variants: tuple[Variant, ...]


def write_archive(path: Path, told: Mapping[str, Any], images: Mapping[str, bytes]) -> None:
    """Equal contents give equal files."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(zipfile.ZipInfo(_LAUNCH, _DATE), json.dumps(told, sort_keys=True))
        for name in sorted(images):
            file.writestr(zipfile.ZipInfo(name, _DATE), images[name])


def read_archive(path: Path) -> Archive:
    """Reads an archive. Raises ValueError for anything else, OSError for a file that cannot be read."""
    try:
        with zipfile.ZipFile(path) as file:
            if sum(one.file_size for one in file.infolist()) > _MOST_BYTES:
                raise ValueError("too large")
            content = {one.filename: file.read(one) for one in file.infolist()}
        told = json.loads(content[_LAUNCH])
        variants = tuple(_variant(one, content) for one in told["variants"])
        if not variants:
            raise ValueError("no variant")
        return Archive(str(told["arch"]), checked(told["workspace_bytes"]), variants)
    except (zipfile.BadZipFile, KeyError, TypeError, AttributeError, ValueError, ExpressionError) as error:
        raise ValueError(f"{path.name} is not a Triton kernel's archive ({error})") from None


def _variant(told: Any, content: Mapping[str, bytes]) -> Variant:
    launches = tuple(_launch(one, content) for one in told["launches"])
    return Variant(str(told["name"]), checked(told["when"]), launches)


def _launch(told: Any, content: Mapping[str, bytes]) -> ArchivedLaunch:
    x, y, z = (checked(axis) for axis in told["grid"])
    threads, lds_bytes, scratch_bytes, scratch_align = (
        int(told[name]) for name in ("threads", "lds_bytes", "scratch_bytes", "scratch_align")
    )
    if not 1 <= threads <= _MOST_THREADS or min(lds_bytes, scratch_bytes, scratch_align) < 0:
        raise ValueError("numbers that no kernel has")
    image = str(told["image"])
    return ArchivedLaunch(
        content[image],
        Path(image).suffix,
        str(told["function"]),
        threads,
        lds_bytes,
        scratch_bytes,
        max(1, scratch_align),
        (x, y, z),
        tuple(_argument(*one) for one in told["arguments"]),
    )


def _argument(name: Any, type_: Any, value: Any) -> ArchivedArgument:
    if isinstance(value, dict):
        role = str(value["pointer"])
        if role not in ROLES or not str(type_).startswith("*"):
            raise ValueError(f"no array {role}")
        return ArchivedArgument(str(name), str(type_), role, checked(value["offset"]))
    if type_ not in _TYPES:
        raise ValueError(f"no argument type {type_}")
    return ArchivedArgument(str(name), type_, "", float(value) if type_ == "fp32" else checked(value))
