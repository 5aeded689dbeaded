"""What several commands share: rows of an `argument_table`, and what they write.

With --json a command's stdout has JSON alone; progress and notes go to stderr.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
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

_MAY_BE_READ = re.compile(r"; may be one of [A-Z]{3,}")
"""The help of an output that may be an input, too: nothing of that is lost."""

_CSV = rb'(#[^\n]*\n|\s)*[^\s,"\0]+(,[ \t]*[^\s,"\0]*)+[ \t]*(\r?\n|\Z)'
_BEGINS = {
    "json": rb"\s*[\[{]", "markdown": rb"(?s)(.*?\n)?## [^\n]* \xe2\x86\x92 ", "csv": _CSV, "pairs": _CSV,
    "txt": rb"[^\s\0]+(\r?\n|\Z)", "parquet": rb"PAR1", "PAGE": rb"\s*<!(?i:doctype html)",
    "TABLE": rb"\s*\{|" + _CSV,
}  # fmt: skip
"""What is written -> how it begins: by its option, the ending of its name or the word for it."""
_MOST_BYTES = 9999
"""Of these that a file begins with."""


def refuse_replacing(place: Path | None, kind: str, read: Iterable[object]) -> None:
    """Raises HarnessError for a file that is one of those that are read (words of a command line), or of
    another kind than what is written, a key of _BEGINS."""
    if place is None or not place.is_file():
        return
    for word in (word for one in map(str, read) for word in (one, *re.split("[,=:]", one))):
        with suppress(OSError):  # not every word is a path
            if place.samefile(word):
                raise HarnessError(f"{place} is also an input: write to another file")
    with disk_errors_as(HarnessError, f"cannot read {place}"), place.open("rb") as file:
        if (held := file.read(_MOST_BYTES)) and not re.match(_BEGINS[kind], held):
            raise HarnessError(f"{place} would be replaced, a file of another kind: name another")


def check_places(arguments: Iterable[Argument], args: argparse.Namespace) -> None:
    """Raises HarnessError for what is to be written where it cannot or must not be."""
    values = [value for name, value in vars(args).items() if name not in WRITTEN]
    read = [one for value in values for one in (value if isinstance(value, list) else [value])]
    for one in arguments:
        name, word = _attribute(one), str(one.attributes.get("metavar"))
        place = getattr(args, name)
        if name not in WRITTEN or not isinstance(place, Path):
            continue
        if place == STDOUT and name not in _BEGINS:
            raise HarnessError(f"{one.names[-1]} -: nothing of this is printed: name what to write")
        endings = [f".{ending}" for ending in re.split(r"[.{,}]", word)[1:] if ending]
        if endings and place.suffix not in endings:
            right = f"{' or '.join(endings)}: name it {place.stem}{endings[0]}"
            raise HarnessError(f"{place}: it is written as {right}")
        kind = place.suffix[1:] if endings else name if name in _BEGINS else word
        if kind in _BEGINS and place != STDOUT:
            refuse_replacing(place, kind, [] if _MAY_BE_READ.search(one.attributes["help"]) else read)
    refuse_unwritable(place for name in WRITTEN if isinstance(place := getattr(args, name, None), str | Path))


def _attribute(one: Argument) -> str:
    return one.names[-1].lstrip("-").replace("-", "_")


def _printed(args: argparse.Namespace) -> list[str]:
    """Returns the options whose text has stdout to itself."""
    return [f"--{name}" for name in WRITTEN if getattr(args, name, None) in (True, STDOUT)]


def check_arguments(arguments: Iterable[Argument], args: argparse.Namespace) -> None:
    """Raises HarnessError for places that cannot be written, for files in place of an input or of one of
    another kind, for two texts on stdout, and for an argument whose help says that it goes with others, of
    which none is given, or without one that is."""
    check_places(arguments, args)
    if len(printed := _printed(args)) > 1:
        raise HarnessError(f"{' and '.join(printed)} both print: write one to a file, or leave it out")
    given = set()
    for one in arguments:
        value = getattr(args, _attribute(one))
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
    return sys.stderr if _printed(args) else sys.stdout


def json_text(document: object) -> str:
    """Returns one document; numbers that are not finite become null."""
    plain = msgspec.json.decode(msgspec.json.encode(document, enc_hook=_simple))
    return json.dumps(plain, indent=1) + "\n"


def print_json(document: object) -> None:
    """Prints one document."""
    sys.stdout.write(json_text(document))


def show(args: argparse.Namespace, document: object, lines: Iterable[str], status: int = 0) -> int:
    """Prints what was found, as --json or, unless a text goes to stdout, as lines; returns the status."""
    if args.json:
        print_json(document)
    elif not _printed(args):
        print("".join(f"{line}\n" for line in lines), end="")
    return status


def put(args: argparse.Namespace, document: object, lines: Iterable[str]) -> None:
    """Prints the lines, unless a text goes to stdout; with --json prints or writes the document. Raises
    RecordError."""
    if not _printed(args):
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
