"""Reads the rule sets `profiler` and `tests`, and single CK Builder config files (`.conf`): one kernel per
line.

Every line is an instance of Composable Kernel, in one of two notations (tile_oracle.pool.ck_builder_line).
The class name has the direction; data type and rank are in the file's path or in the line. For a class
unknown to that module, the headers of a checkout give the meaning of its numbers: GetTypeString() names the
fields in order. Lines that cannot be read, or that kernels here cannot express, are left out and counted with
place and reason.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.arch import known_archs
from tile_oracle.errors import RuleError
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.json_tree import shown
from tile_oracle.files.user_file import read_bytes
from tile_oracle.pool.ck_builder_line import BuilderLine, Form, UnreadableLineError, read_line

BUILDER_SETS = ("profiler", "tests")
"""The folders of config files, and the names of their rule sets."""

SUFFIXES = (".conf", ".config")
"""Suffixes of config files."""

_ROOTS = ("", "projects/composablekernel", "composablekernel")
_IMPL = "include/ck/tensor_operation/gpu/device/impl"
_MOST_FILES, _MOST_BYTES, _MOST_LINES = 500, 8 << 20, 100_000

_TYPE_STRING = re.compile(
    r"str\s*<<\s*\"(Device\w+)\"\s*"
    # Later versions may print a suffix of the name, depending on a template argument.
    r"(?:;\s*(?:if\s+constexpr\s*\(\w+\)\s*\{\s*str\s*<<\s*\"(\w+)\"\s*;\s*\}\s*)?str\s*)?"
    r"<<\s*\"<\"\s*<<(.*?);",
    re.DOTALL,
)


@dataclass(frozen=True)
class BuilderConfigs:
    """The content of config files. source: the name of the set or file. left_out: (place, reason) of every
    line without a kernel."""

    source: str
    folder: Path
    archs: tuple[str, ...]
    files: int
    lines: tuple[BuilderLine, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user: how many lines were left out and why, most frequent reason first."""
        total = len(self.lines) + len(self.left_out)
        assumed = {
            "the vector width of the result: that of B is assumed": [
                one.assumed_vector_c for one in self.lines
            ],
            "their layout: nhwgc is assumed": [one.assumed_layout for one in self.lines],
        }
        first: dict[str, str] = {}
        for place, reason in self.left_out:
            first.setdefault(reason, place)
        counts = Counter(reason for _, reason in self.left_out)
        left_out = f"{len(self.left_out)} of {total} lines in {self.files} config files were left out"
        return (
            f"{self.source}: {left_out}",
            *(
                f"  {count} lines: {reason} (first: {first[reason]})"
                for reason, count in counts.most_common()
            ),
            *(f"  {sum(of)} lines do not give {what}" for what, of in assumed.items() if any(of)),
        )


def read_builder_configs(name: str, folder: Path) -> BuilderConfigs:
    """Reads the config files of a set in a checkout. Raises RuleError when none can be used."""
    root = checkout_root(folder)
    if root is None:
        raise RuleError(
            f"kernel set {name}: {shown(str(folder))} is not a checkout of Composable Kernel: no {_IMPL}"
        )
    paths = _config_files(root, name)
    if not paths:
        raise RuleError(
            f"kernel set {name}: there is no config file (*.conf, *.config) in a folder {name} below "
            f"{shown(str(root))}; a ROCm install has none, a checkout of Composable Kernel may"
        )
    named = [(path, path.relative_to(root)) for path in paths]
    return _read_files(f"kernel set {name}", root, named, _fields_by_class(root / _IMPL))


def read_builder_file(path: Path, checkout: Path | None = None) -> BuilderConfigs:
    """Reads one config file. checkout: its headers describe further classes. Raises RuleError."""
    root = None if checkout is None else checkout_root(checkout)
    fields = {} if root is None else _fields_by_class(root / _IMPL)
    return _read_files(f"kernel set {shown(path.name)}", path.parent, [(path, path)], fields)


def checkout_root(folder: Path) -> Path | None:
    """Composable Kernel's folder in a checkout, or None."""
    return next((folder / part for part in _ROOTS if (folder / part / _IMPL).is_dir()), None)


def _read_files(
    source: str, root: Path, named: list[tuple[Path, Path]], fields: dict[str, list[Form]]
) -> BuilderConfigs:
    """named: each file with the path to show in messages, which also gives data type and rank."""
    texts = [line for path, where in named for line in _lines(path, where)]
    if len(texts) > _MOST_LINES:
        raise RuleError(f"{source}: more than {_MOST_LINES:,} lines: these are not config files")
    lines: list[BuilderLine] = []
    left_out: list[tuple[str, str]] = []
    for where, number, text in texts:
        place = f"{where.as_posix()}:{number}"
        try:
            lines.append(read_line(place, text, where, fields))
        except UnreadableLineError as error:
            left_out.append((place, str(error)))
    archs = tuple(arch for arch in known_archs() if arch.startswith("gfx9"))
    configs = BuilderConfigs(source, root, archs, len(named), tuple(lines), tuple(left_out))
    if not lines:
        raise RuleError(f"{source}: no line makes a kernel; {' / '.join(configs.notes[:3])}")
    return configs


def _config_files(root: Path, name: str) -> list[Path]:
    found: list[Path] = []
    for place, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in ("build", "docs"))
        here = Path(place)
        if name in here.relative_to(root).parts:
            found += [here / file for file in sorted(files) if file.endswith(SUFFIXES)]
    if len(found) > _MOST_FILES:
        raise RuleError(f"kernel set {name}: more than {_MOST_FILES} config files below {shown(str(root))}")
    return found


def _lines(path: Path, where: Path) -> Iterator[tuple[Path, int, str]]:
    """(file, number, text) of every line that is neither empty nor a comment."""
    name = shown(where.as_posix())
    with disk_errors_as(RuleError, f"{name} is not a config file"):
        data = read_bytes(path, _MOST_BYTES)
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith(("#", ";", "//")):
            yield where, number, stripped


# ---- meaning of a class's numbers, from the headers ----------------------------------------------


def _fields_by_class(folder: Path) -> dict[str, list[Form]]:
    """Class -> names of the values that its GetTypeString() prints, in order; several if headers differ."""
    found: dict[str, list[Form]] = {}
    for path in sorted(folder.glob("device_grouped_conv*.hpp")):
        with disk_errors_as(RuleError, f"{path} cannot be read"):
            text = path.read_text("utf-8", "replace")
        for name, more, printed in _TYPE_STRING.findall(text):
            form = Form(tuple(_printed(printed)))
            for full in {name, name + more}:
                if form.names and form not in found.setdefault(full, []):
                    found[full].append(form)
    return found


def _printed(text: str) -> Iterator[str]:
    for part in text.split("<<"):
        words = re.findall(r"[A-Za-z_]\w*", re.sub(r"\"[^\"]*\"", "", part))
        if words:
            yield words[-1]  # for a call, its argument
