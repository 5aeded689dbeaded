"""The formats of other programs that are known: how a file is recognised, and which commands take it.

Commands that read files ask here, so that a file is the same thing to all of them, and a file that a command
does not take is named, with the command that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tile_oracle.foreign import aiter, blas, blas_yaml, fmha
from tile_oracle.foreign.contract import Field
from tile_oracle.foreign.entry import Entry
from tile_oracle.foreign.list_file import ListFile

IMPORT, PROBLEMS, KERNELS, MODEL = "tile-oracle runs import", "--problem-set", "--kernel-set", "--model"
"""The commands and options that read files."""
HEAD_BYTES = 64 * 2**10
"""A file is recognised by its beginning."""


@dataclass(frozen=True)
class Head:
    """A file's path and the beginning of its text."""

    path: Path
    text: str

    @cached_property
    def columns(self) -> frozenset[str]:
        """The names in the first line that is no comment, in lower case."""
        lines = (line for line in self.text.removeprefix("\ufeff").splitlines() if line.strip())
        first = next((line for line in lines if not line.startswith("#")), "")
        return frozenset(name.strip().lower() for name in first.split(","))

    @cached_property
    def is_json(self) -> bool:
        """Whether the text begins as JSON does."""
        return self.text.removeprefix("\ufeff").lstrip()[:1] in ("{", "[")

    def has(self, *keys: str) -> bool:
        """Whether the text begins as JSON does and has all of these keys."""
        return self.is_json and all(f'"{key}"' in self.text for key in keys)


@dataclass(frozen=True)
class Format:
    """One format. what: a file of it, for messages. entries: its reader, if it is read by rows. fields: what
    its rows state besides those of all formats. taken_by: the commands that take it; why: the reason where
    none does."""

    what: str
    found: Callable[[Head], bool]
    taken_by: tuple[str, ...] = ()
    why: str = ""
    entries: Callable[[ListFile], Iterator[Entry]] | None = None
    fields: Mapping[str, Field] = field(default_factory=dict)

    def said(self, path: Path) -> str:
        """What a file is, and what takes it."""
        by = " and ".join(self.taken_by)
        takes = f"{by} takes it" if by else f"nothing takes it, since {self.why}"
        return f"{path.name} is {self.what}: {takes}"


def _of_lines(read: Callable[[Iterator[str]], Iterator[Entry]]) -> Callable[[ListFile], Iterator[Entry]]:
    return lambda listed: read(listed.lines())


def _is_aiter(head: Head) -> bool:
    is_named = aiter.FILE.search(head.path.stem.lower()) is not None
    if {"kernel", "kernel_name", "name"} & head.columns:
        return False
    return head.columns >= aiter.SIZES and bool(head.columns & aiter.OF_AITER or is_named)


_TABLES = (IMPORT, PROBLEMS)

FORMATS: tuple[Format, ...] = (
    Format("an AITER table of fused experts", lambda head: head.columns >= aiter.EXPERTS,
           why="fused experts are no operation here"),
    Format("an AITER table of another operation than GEMM",
           lambda head: {"gfx", "cu_num"} <= head.columns and not head.columns >= aiter.SIZES,
           why="its operation is none of tile-oracle's"),
    Format("an AITER list of shapes to tune", lambda head: _is_aiter(head) and "us" not in head.columns,
           (PROBLEMS,), entries=aiter.aiter_entries, fields=aiter.FIELDS),
    Format("an AITER table of tuned GEMMs", _is_aiter, _TABLES,
           entries=aiter.aiter_entries, fields=aiter.FIELDS),
    Format("a table of CK Tile's benchmark of attention", lambda head: head.columns >= fmha.COLUMNS, _TABLES,
           entries=fmha.fmha_entries, fields=fmha.FIELDS),
    Format("a YAML file of rocblas-bench or hipblaslt-bench",
           lambda head: blas_yaml.is_blas_yaml(head.path, head.text),
           (PROBLEMS,), entries=blas_yaml.yaml_entries, fields=blas.FIELDS),
    Format("what hipblaslt-bench or rocblas-bench prints", lambda head: blas.has_results(head.text), _TABLES,
           entries=_of_lines(blas.blas_entries), fields=blas.FIELDS),
    Format("a log of calls of rocBLAS or hipBLASLt", lambda head: blas.has_calls(head.text), (PROBLEMS,),
           entries=_of_lines(blas.blas_entries), fields=blas.FIELDS),
)  # fmt: skip
"""All formats; the first that is found counts."""


def recognised(path: Path, text: str) -> Format | None:
    """The format of a file with this beginning; None for one that is not known."""
    head = Head(path, text)
    return next((one for one in FORMATS if one.found(head)), None)
