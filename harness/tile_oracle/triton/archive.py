"""A kernel's binaries and what launching them needs, in one file: a zip archive without compression.

launch.json           the variants, best first; their launches, grids and arguments
aligned-0.cubin       one image a variant and launch (.hsaco for AMD's GPUs)
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from tile_oracle.triton.expression import ExpressionError, checked
from tile_oracle.triton.views import ROLES

SUFFIX = ".zip"
_LAUNCH = "launch.json"
_MOST_BYTES = 256 << 20
_DATE = (1980, 1, 1, 0, 0, 0)
_MOST_THREADS = 1024
_TYPES = ("i32", "i64", "fp32")


class ArchivedArgument(msgspec.Struct, array_like=True):
    """An argument of a launch."""

    name: str
    type: str
    """Triton's: *bf16, i32, fp32."""
    value: Any
    """An integer's expression, a pointer's offset in bytes, or a number of type fp32."""
    role: str = ""
    """Of the array that a pointer is to."""

    def __post_init__(self) -> None:
        if isinstance(self.value, dict):
            self.role, self.value = str(self.value["pointer"]), checked(self.value["offset"])
            if self.role not in ROLES or not self.type.startswith("*"):
                raise ValueError(f"no array {self.role}")
        elif self.type not in _TYPES:
            raise ValueError(f"no argument type {self.type}")
        else:
            self.value = float(self.value) if self.type == "fp32" else checked(self.value)


_Size = Annotated[int, msgspec.Meta(ge=0)]


class ArchivedLaunch(msgspec.Struct):
    """A launch."""

    function: str
    image: Any
    """The code: in the file the name of its entry."""
    threads: Annotated[int, msgspec.Meta(ge=1, le=_MOST_THREADS)]
    lds_bytes: _Size
    """Dynamic LDS of a workgroup."""
    scratch_bytes: _Size
    """Memory that the compiler needs for each workgroup."""
    scratch_align: _Size
    grid: tuple[Any, Any, Any]
    """Expressions."""
    arguments: tuple[ArchivedArgument, ...]

    def __post_init__(self) -> None:
        x, y, z = map(checked, self.grid)
        self.grid, self.scratch_align = (x, y, z), max(1, self.scratch_align)


class Variant(msgspec.Struct):
    """The same kernel, compiled for problems for which `when` is not 0."""

    name: str
    when: Any
    launches: tuple[ArchivedLaunch, ...]

    def __post_init__(self) -> None:
        self.when = checked(self.when)


class Archive(msgspec.Struct):
    """A kernel. The last variant is for all problems."""

    arch: str
    workspace_bytes: Any
    variants: Annotated[tuple[Variant, ...], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        self.workspace_bytes = checked(self.workspace_bytes)


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
        archive = msgspec.json.decode(content[_LAUNCH], type=Archive)
        for launch in (one for variant in archive.variants for one in variant.launches):
            launch.image = content[launch.image]
        return archive
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, ExpressionError) as error:
        raise ValueError(f"{path.name} is not a Triton kernel's archive ({error})") from None
