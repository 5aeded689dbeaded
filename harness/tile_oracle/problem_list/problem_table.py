"""Tables of problems: CSV files with a header row and one problem per row.

Comment lines (`# `) above the header row describe the provenance. A file is of one operation, which follows
from its columns (M, N, K: GEMM; else convolution) or from a column `op`. Columns of fields with a default may
be left out, and so may direction (forward), dtype (bf16), layout (rcr), G (1) and ndim (3 if a row's depth
columns differ from the defaults, else 2). Blank and comment lines are skipped.

A table of results can be read as a table of problems. If it names kernels and has no column for direction or
dtype, these come from the kernel names. Output extents (Ho, Wo) are checked, and determine the padding if it
has no column. Other columns are ignored and listed in the set's notes. A column that looks like a misspelt
field is an error.

The same in JSON is `{"problems": [{"M": 1024, "N": 1024, "K": 1024}, ...]}`, as tile_engine's benchmarks of
GEMMs have it, or the list alone. Names are those of a table's columns, or m, n and k in lower case. What
stands beside the list in the document is said of every problem.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tile_oracle.errors import ProblemError, ProblemSetError
from tile_oracle.files.spreadsheet import cell_text
from tile_oracle.files.table_file import one_column
from tile_oracle.foreign.ck_dsl import dtype_in_name, is_sweep
from tile_oracle.foreign.contract import KERNEL_COLUMNS, MORE, against
from tile_oracle.foreign.dialect import dialect_of, op_of_name
from tile_oracle.foreign.list_file import ListFile, quoted
from tile_oracle.kernel import source_of
from tile_oracle.kernel.named import other_kernel
from tile_oracle.operation import Kind, operation_names, operation_of_columns, operations
from tile_oracle.problem import Problem
from tile_oracle.terminal.did_you_mean import most_like

_PROBLEMS = "problems"


def json_rows(file: ListFile, check: Callable[[list[str]], None]) -> Iterator[dict[str, str]]:
    """Yields each problem as a row of text cells; errors then name its number. check: called with all names
    first. Raises ProblemSetError."""
    try:
        document = json.loads(file.text())
    except (ValueError, RecursionError) as error:
        raise file.error(f"not JSON: {error}", 0) from None
    beside = document if isinstance(document, dict) else {_PROBLEMS: document}
    listed = beside.get(_PROBLEMS)
    if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
        raise file.error(
            "JSON, but no list of problems, which would be "
            '{"problems": [{"M": 1024, "N": 1024, "K": 1024}, ...]}',
            0,
        )
    said = {name: value for name, value in beside.items() if not isinstance(value, dict | list)}
    rows = [{_name(name): _cell(value) for name, value in (said | one).items()} for one in listed]
    file.shown += f":{_PROBLEMS}"
    file.header = list(dict.fromkeys(name for row in rows for name in row))
    file.line = 0
    check(file.header)
    for number, row in enumerate(rows, 1):
        file.line = number
        yield {name: row.get(name, "") for name in file.header}


def _name(name: str) -> str:
    return name.upper() if name in ("m", "n", "k") else name


def _cell(value: Any) -> str:
    return value.strip() if isinstance(value, str) else json.dumps(value)


SOURCE_COLUMN = "source"
OP_COLUMN = "op"

_NEGATIVE = re.compile(r"-[0-9]{1,19}", re.ASCII)
_ALIKE = 0.86
"""Similarity (`most_like`) from which a column counts as a misspelt field: above that of dtype_a and dtype,
below that of padh and pad_h."""


class ProblemTable:
    """One table. further_columns: whether columns that are not fields are allowed. as_json: it is a list in
    JSON (`json_problems`)."""

    def __init__(self, file: ListFile, *, further_columns: bool, as_json: bool = False) -> None:
        self._file = file
        self._as_json = as_json
        self._further_columns = further_columns
        self._operation = operation_of_columns(())
        self._kinds: Mapping[str, Kind] = {}
        self._further: Sequence[str] = ()
        self._said_by_name: Mapping[str, str] = {}

    def problems(self) -> Iterator[tuple[Problem, str]]:
        """Yields every row's problem and source. Raises ProblemSetError."""
        empty = True
        rows = (
            json_rows(self._file, self._read_header)
            if self._as_json
            else self._file.rows(self._lines(), self._read_header)
        )
        for row in rows:
            empty = False
            if why := self._of_another(self._kernel(row)):
                self._file.left_out[why] += 1
            else:
                yield self._problem(row)
        if not self._file.header:
            raise self._file.error("no header row; it would be: " + ",".join(self._operation.required), 0)
        if empty:
            raise self._file.error("a header but no problems below it", 0)

    def _lines(self) -> Iterator[str]:
        """Yields the lines with cells. Comment lines above the header row become the provenance."""
        header_seen = False
        for text in self._file.lines():
            if text.startswith("#"):
                if not header_seen:
                    self._file.provenance.append(text.lstrip("#").strip())
            elif text.strip():
                header_seen = True
                yield text

    # ---- the header row ---------------------------------------------------------------------

    def _read_header(self, names: list[str]) -> None:
        if what := one_column(names):
            raise self._file.error(what)
        operation = self._operation = operation_of_columns(names)
        known = (*operation.problem_fields, *operation.outputs, SOURCE_COLUMN, OP_COLUMN)
        further = [name for name in names if name not in known]
        for name in names:
            if name and names.count(name) > 1:
                raise self._file.error(f"column {name} appears twice; remove one")
        unknown = {name: hint for name in further if (hint := self._meant(name, known)) is not None}
        if unknown:
            raise self._unknown_columns(names, unknown, known)
        missing = [name for name in operation.required if name not in names]
        if missing:
            raise self._file.error(
                f"no column {', '.join(missing)}; a header row needs at least {','.join(operation.required)}"
            )
        self._note(further)
        if is_sweep(names) and "dtype" not in names and (dtype := dtype_in_name(self._file.path)):
            self._said_by_name = {"dtype": dtype}
        if set(KERNEL_COLUMNS) & set(further):
            self._kinds = {operation.kernel_prefix(kind): kind for kind in operation.kinds({})}

    def _note(self, further: Sequence[str]) -> None:
        self._further = further
        unread = [name for name in further if name not in KERNEL_COLUMNS]
        if unread:
            shown = ", ".join(name if name.isprintable() else quoted(name) for name in unread[:12])
            more = f" and {len(unread) - 12:,} more" if len(unread) > 12 else ""
            self._file.further.append(f"ignored columns: {shown}{more}"[:500])

    def _meant(self, name: str, known: Sequence[str]) -> str | None:
        """Returns the field that a column is a misspelling of, "" if unknown; None if the column is
        allowed."""
        foreign = self._operation.foreign_columns.get(name.lower())
        if foreign is not None:
            return foreign
        by_lower = {word.lower(): word for word in known}
        close = most_like(name.lower(), by_lower, _ALIKE)
        if close is not None:
            return by_lower[close]
        elsewhere = any(name in one.problem_fields for one in operations())
        return "" if elsewhere or not self._further_columns else None

    def _unknown_columns(
        self, names: list[str], unknown: Mapping[str, str], known: Sequence[str]
    ) -> ProblemSetError:
        (first, hint), *others = unknown.items()
        meant = f"did you mean {hint}?" if hint else f"known are {', '.join(known)}"
        rest = [f"{quoted(name)} {hint}" for name, hint in others if hint][:16]
        return self._file.error(
            f"column {names.index(first) + 1}, {quoted(first)}, is unknown; {meant}"
            + (f" (and {', '.join(rest)})" if rest else "")
        )

    # ---- a row ------------------------------------------------------------------------------

    def _problem(self, row: Mapping[str, str]) -> tuple[Problem, str]:
        operation = self._operation
        given: dict[str, Any] = {**operation.defaults, **self._said_by_name, **self._said_by_kernel(row)}
        for name, cell in row.items():
            if name in operation.defaults:
                given[name] = cell
            elif name in operation.problem_fields or name in operation.outputs:
                given[name] = self._integer(name, cell)
        op = row.get(OP_COLUMN, operation.name)
        if op != operation.name:
            known = f"known: {', '.join(operation_names())}"
            if op not in operation_names():
                raise self._file.error(f"unknown operation {quoted(op)}; {known}")
            raise self._file.error(
                f"op = {quoted(op)} in a file of {operation.plural}; {known} (a file for each)"
            )
        try:
            problem = operation.problem_of(given)
        except ProblemError as error:
            raise self._file.error(str(error)[:300]) from None
        further = {name: row[name] for name in self._further if name in row}
        for reason, field in against(dialect_of(operation.name).own, further, problem):
            name = reason.split()[0]
            if field.why == MORE:
                self._file.taken[reason] += 1
            else:
                raise self._file.error(
                    f"{name} = {quoted(row[name])} {field.why}; remove the row, or the column if it says "
                    "nothing about the problem"
                )
        return problem, cell_text(row.get(SOURCE_COLUMN, ""))

    def _said_by_kernel(self, row: Mapping[str, str]) -> dict[str, str | int]:
        """Direction, data type and the like from the name of the row's kernel, if the row has one."""
        kind = self._kind(self._kernel(row))
        return {} if kind is None else dict(kind.words)

    def _of_another(self, kernel: str) -> str:
        """Returns why a row with such a kernel is no problem of this table; "" if it is one, or if the name
        is none of a kernel."""
        if not self._kinds or not (op := op_of_name(kernel)):
            return ""
        if op != self._operation.name:
            return f"their kernels are of {op}: tile-oracle runs import --op {op} reads them"
        if not source_of(kernel) and (what := other_kernel(kernel)):
            return f"kernel of another operation: {what}"
        return "" if self._kind(kernel) else f"{quoted(kernel)} states no data type of ours"

    def _kind(self, kernel: str) -> Kind | None:
        return next((kind for prefix, kind in self._kinds.items() if kernel.startswith(prefix)), None)

    @staticmethod
    def _kernel(row: Mapping[str, str]) -> str:
        return next((row[column] for column in KERNEL_COLUMNS if column in row), "")

    def _integer(self, name: str, cell: str) -> int:
        if (cell.isdigit() and cell.isascii() and len(cell) < 20) or _NEGATIVE.fullmatch(cell):
            return int(cell)
        raise self._file.error(f"{name} = {quoted(cell)} is not an integer; {_integer_hint(cell)}")


def _integer_hint(cell: str) -> str:
    if not cell:
        return "fill the cell, or leave out the whole column for its default"
    try:
        value = float(cell)
    except ValueError:
        return "write digits only"
    whole = value == value and abs(value) < 2**53 and value == int(value)
    return f"write {int(value)}" if whole else "write digits only"
