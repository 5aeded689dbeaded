"""What several commands share: rows of an `argument_table`, and what they write.

With --json a command's stdout has JSON alone; progress and notes go to stderr.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

import msgspec

from tile_oracle.errors import BuildError, HarnessError, RecordError, RuleError
from tile_oracle.files.atomic_file import refuse_unwritable, write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.terminal.argument_table import STDOUT, WRITTEN, Argument

DEFAULT_KERNEL_SET = "default"
"""The kernel set where none is given."""

RECORDS_HELP = "a run's folder, or a parquet file of records"
PROBLEM_HELP = """problem id, dimensions (N=1,C=64,K=64,Hi=56,Wi=56,Y=3,X=3,pad_h=1,pad_w=1), a set's name
    or a file of problems"""
AS_JSON = "as JSON: printed instead of the text or, given a FILE, written there"
ONLY_JSON = "as JSON, and nothing else"
BUILD_DIR = "--build-dir DIR  cache of compiled kernels (default: the user's)"
CK_TILE = """\
--ck-tile DIR  on AMD's GPUs: CK Tile's own kernels, from a checkout of Composable Kernel or a ROCm install
    (--kernels ck_tile=DIR)"""
KERNELS = """\
--kernels SOURCE  kernels that are written in Triton: a Python file that declares them (tile_oracle.triton),
    or triton: those that ship; an installed kernel source, NAME or NAME=ARGUMENT; or a .json file of
    --kernel-set, such as a list of `pool portfolio`"""
TOOLCHAIN = """\
--toolchain NAME=auto  auto, ziglang, clang++ or a compiler's path; on cpu also g++, for AMD's GPUs rocm and
    hipcc, for sm_90 nvcc"""

_NEEDS = re.compile(r"^with ((?:--[a-z]|[A-Z]{3,})[^:]*): ")
"""The help of an argument that does nothing without another one: `with --this or --that VALUE: ...`."""
_LACKS = re.compile(r"without ((?:--[a-z-]+(?:, | or )?)+)")
"""The help of an argument that others exclude: `...; without --this, --that or --those`."""

_BEGINS = {"json": rb"[\[{]", "markdown": rb"", **dict.fromkeys(("csv", "pairs"), rb"[^\n]*,")}
"""How the texts begin that options write."""


def check_arguments(arguments: Iterable[Argument], args: argparse.Namespace) -> None:
    """Raises HarnessError for places that cannot be written, for texts in place of an input or of a file of
    another kind, for two texts on stdout, and for an argument whose help says that it goes with others, of
    which none is given, or without one that is."""
    places = (getattr(args, name, None) for name in WRITTEN)
    refuse_unwritable(place for place in places if isinstance(place, str | Path))
    values = [value for name, value in vars(args).items() if name not in WRITTEN]
    read = [Path(str(one)) for value in values for one in (value if isinstance(value, list) else [value])]
    for name, begin in _BEGINS.items():
        place = getattr(args, name, None)
        if not isinstance(place, Path) or not place.is_file():
            continue
        if place in read:
            raise HarnessError(f"{place} is also an input: write to another file")
        with disk_errors_as(HarnessError, f"cannot read {place}"), place.open("rb") as file:
            if (held := file.read(999).lstrip()) and not re.match(begin, held):
                raise HarnessError(f"--{name} {place} would replace a file of another kind: name another")
    printed = [f"--{name}" for name in WRITTEN if getattr(args, name, None) in (True, STDOUT)]
    if len(printed) > 1:
        raise HarnessError(f"{' and '.join(printed)} both print: write one to a file, or leave it out")
    given = set()
    for one in arguments:
        value = getattr(args, one.names[-1].lstrip("-").replace("-", "_"))
        if value not in (None, False, [], one.attributes.get("default")):
            given |= {one.names[-1], f"{one.names[-1]} {value}", one.attributes.get("metavar")}
    for one in arguments:
        if one.names[-1] not in given:
            continue
        needs, lacks = (form.search(one.attributes["help"]) for form in (_NEEDS, _LACKS))
        if needs and given.isdisjoint(needs[1].split(" or ")):
            raise HarnessError(f"{one.names[-1]} goes with {needs[1]}: give that, too, or leave it out")
        if lacks and (others := [name for name in re.findall("--[a-z-]+", lacks[1]) if name in given]):
            raise HarnessError(f"{one.names[-1]} goes without {others[0]}: leave one of them out")


def take_source(args: argparse.Namespace, ck_tile: Path | None = None) -> str:
    """NAME[=ARGUMENT] of the source that --kernels names, or --ck-tile. A .json file of --kernels becomes
    --kernel-set, which reads it. Raises HarnessError for more or other than one source that is compiled."""
    from tile_oracle.session.kernels_option import read_kernels

    given = read_kernels(args.kernels or "", Path.cwd(), ck_tile)
    if given.kernel_set is not None:
        if args.kernel_set not in (None, DEFAULT_KERNEL_SET):
            raise RuleError(f"--kernels {args.kernels} and --kernel-set {args.kernel_set}: leave one out")
        args.kernel_set = given.kernel_set
    elif given.libraries or len(given.sources) != 1 or given.sources[0].startswith("native="):
        raise BuildError(f"--kernels {args.kernels}: give one source whose kernels can be compiled")
    return given.sources[0]


def progress_stream(args: argparse.Namespace) -> TextIO:
    """Returns where lines about the work go: stdout, which --json needs for itself."""
    return sys.stderr if args.json in (True, STDOUT) else sys.stdout


def json_text(document: object) -> str:
    """Returns one document; numbers that are not finite become null."""
    plain = msgspec.json.decode(msgspec.json.encode(document, enc_hook=_simple))
    return json.dumps(plain, indent=1) + "\n"


def print_json(document: object) -> None:
    """Prints one document."""
    sys.stdout.write(json_text(document))


def show(args: argparse.Namespace, document: object, lines: Iterable[str], status: int = 0) -> int:
    """Prints what was found, as --json or as lines; returns the status."""
    if args.json:
        print_json(document)
    else:
        print("".join(f"{line}\n" for line in lines), end="")
    return status


def put(args: argparse.Namespace, document: object, lines: Iterable[str]) -> None:
    """Prints the lines, unless a document goes to stdout; with --json prints or writes the document. Raises
    RecordError."""
    if STDOUT not in (args.json, getattr(args, "markdown", None)):
        print("\n".join(lines))
    if args.json is not None:
        put_text(args.json, json_text(document))


def put_text(place: Path, text: str) -> None:
    """Prints a text (`-`) or writes it to a file. Raises RecordError."""
    if place == STDOUT:
        sys.stdout.write(text)
    else:
        write_text(place, text)


def write_text(path: Path, text: str) -> None:
    """Writes a file of UTF-8 text, and the folders that it needs. Raises RecordError."""
    with disk_errors_as(RecordError, f"cannot write {path}", "choose another place"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode("utf-8"))


def _simple(value: Any) -> Any:
    """Returns what JSON and msgspec do not have, as what they have."""
    is_number = hasattr(value, "item") and getattr(value, "ndim", None) == 0  # of NumPy
    return value.item() if is_number else str(value)
