"""Invariants of every row of records, checked whenever records are read.

A digest detects changes of a file. These rules also cover files without a digest and files written by other
programs or by hand:

- status and cache are known ones; problem and kernel are named; the round is not negative
- the problem's id is that of the problem's columns, and the kernel's name is that of the kernel's columns
- an ok row has a latency and a throughput, and at least one sample where samples are counted
- times are positive and finite, and neither the fastest sample nor a lower bound is slower than the median
- tflops is the problem's operations / latency_ms, within TFLOPS_TOLERANCE

Nulls are allowed in columns that older or foreign files lack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import KernelError, ProblemError, RecordError
from tile_oracle.kernel import kernel_from_row, parse_kernel_name
from tile_oracle.kernel.fields import LATER_FIELDS
from tile_oracle.operation import operation_named
from tile_oracle.problem import problem_from_row
from tile_oracle.record.schema import COLD, STATUSES, WARM, kernel_columns, problem_columns

if TYPE_CHECKING:
    import pyarrow as pa

TFLOPS_TOLERANCE = 1e-6
"""Relative. Our own files keep every digit; published files and imports of them keep seven."""

_FIX = "the row is damaged or was edited: restore the file, or remove the row and measure the pair again"
_SHOWN = 160

_Bad = npt.NDArray[np.bool_]


def check_rows(table: pa.Table, op: str, where: Path | str) -> npt.NDArray[np.float64]:
    """Returns the operations of each row's problem. Raises RecordError for the first violation; its one line
    names `where`, row, kernel and problem.

    table: records of one operation, with all columns of its schema.
    """
    return _Rows(table, op, where).check() if table.num_rows else np.zeros(0)


@dataclass(frozen=True)
class _Rows:
    table: pa.Table
    op: str
    where: Path | str

    def check(self) -> npt.NDArray[np.float64]:
        for name in ("problem", "kernel", "status"):
            self._refuse(self._nulls(name), f"{name} is missing")
        statuses, status = self._encoded("status")
        unknown = np.array([str(word) not in STATUSES for word in statuses])
        self._refuse(unknown[status], f"the status is none of {', '.join(STATUSES)}")
        self._refuse(self._numbers("round") < 0, "the round is negative")
        caches, cache = self._encoded("cache")
        self._refuse(
            np.array([word not in (WARM, COLD, None) for word in caches])[cache],
            "cache is neither warm nor cold",
        )
        ok = np.array([word == "ok" for word in statuses])[status]
        self._check_kernels()
        flops = self._check_problems()
        self._check_figures(ok, flops)
        return flops

    def _check_figures(self, ok: _Bad, flops: npt.NDArray[np.float64]) -> None:
        latency, fastest = self._numbers("latency_ms"), self._numbers("latency_min_ms")
        tflops, samples = self._numbers("tflops"), self._numbers("samples")
        if self._is_there("latency_ms"):
            self._refuse(ok & np.isnan(latency), "the row is ok and has no latency_ms")
        if self._is_there("tflops"):
            self._refuse(ok & np.isnan(tflops), "the row is ok and has no tflops")
        self._refuse(ok & (samples < 1), "the row is ok and has no samples")
        for name in ("latency_ms", "latency_min_ms", "at_least_ms", "aligned", "tflops"):
            self._refuse(_not_positive(self._numbers(name)), f"{name} is not a positive number")
        self._refuse(fastest > latency, "latency_min_ms is more than latency_ms")
        self._refuse(self._numbers("at_least_ms") > latency, "at_least_ms is more than latency_ms")
        for name in ("spread", "precision", "busy_ms", "check_ms"):
            values = self._numbers(name)
            self._refuse((values < 0) | np.isinf(values), f"{name} is negative or infinite")
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            expected = flops / (latency * 1e9)
            wrong = np.abs(tflops - expected) > TFLOPS_TOLERANCE * expected
        self._refuse(wrong | (np.isinf(expected)), "tflops is not the problem's operations / latency_ms")

    def _check_problems(self) -> npt.NDArray[np.float64]:
        """Returns the operations of each row's problem."""
        ids, of_row = self._encoded("problem")
        first = _first_rows(of_row)
        columns = problem_columns(self.op)
        flops = np.empty(len(ids))
        for place, (problem_id, row) in enumerate(zip(ids, self._rows_at(first, columns), strict=True)):
            try:
                problem = problem_from_row({"op": self.op, **row})
            except (ProblemError, ValueError, TypeError) as error:
                raise self._error(
                    int(first[place]), f"its columns are not a valid problem ({error})"
                ) from None
            if problem.id != problem_id:
                raise self._error(int(first[place]), f"its columns describe the problem {problem.id}")
            flops[place] = float(problem.flops)
        self._check_alike(columns, of_row, first, "problem")
        return flops[of_row]

    def _check_kernels(self) -> None:
        names, of_row = self._encoded("kernel")
        first = _first_rows(of_row)
        there = self.table.column_names
        columns = tuple(name for name in kernel_columns(self.op) if name not in LATER_FIELDS or name in there)
        if not any(self._is_there(column) for column in columns):
            return  # older and foreign files have only the name
        shared = [name for name in problem_columns(self.op) if name in operation_named(self.op).kernel_fields]
        for place, (name, row) in enumerate(
            zip(names, self._rows_at(first, (*shared, *columns)), strict=True)
        ):
            if all(row[column] is None for column in columns):
                continue
            try:
                kernel = parse_kernel_name(str(name))
                right = (
                    all(
                        row[c] == kernel.as_row().get(c) for c in (*shared, *columns) if c not in LATER_FIELDS
                    )
                    if kernel.source
                    else kernel == kernel_from_row(row, self.op)
                )
            except (KernelError, ValueError, TypeError):
                right = False
            if not right:
                raise self._error(
                    int(first[place]), "the kernel's name and columns describe different kernels"
                )
        self._check_alike((*shared, *columns), of_row, first, "kernel")

    def _check_alike(
        self, columns: tuple[str, ...], of_row: npt.NDArray[np.int64], first: npt.NDArray[np.int64], what: str
    ) -> None:
        """Checks that every row agrees with the first row of the same problem, or kernel."""
        for name in columns:
            _, codes = self._dictionary(name)
            self._refuse(codes != codes[first][of_row], f"{name} differs from earlier rows of the {what}")

    def _encoded(self, name: str) -> tuple[list[Any], npt.NDArray[np.int64]]:
        """Returns the distinct values of a column, nulls included, and each row's index among them."""
        values, codes = self._dictionary(name)
        of_row, used = pd.factorize(codes, sort=True)
        return [values[code] for code in used], of_row

    def _dictionary(self, name: str) -> tuple[list[Any], npt.NDArray[np.int64]]:
        """Returns values, of which some may be in no row, and each row's index among them; -1, the last, is
        null."""
        import pyarrow as pa

        column = self.table.column(name)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        whole = column.unify_dictionaries().combine_chunks()
        return [*whole.dictionary.to_pylist(), None], whole.indices.fill_null(-1).to_numpy()

    def _numbers(self, name: str) -> npt.NDArray[np.float64]:
        """Returns a column as doubles; nulls are NaN."""
        return np.asarray(self.table.column(name).to_numpy(), dtype=np.float64)

    def _nulls(self, name: str) -> _Bad:
        return np.asarray(self.table.column(name).is_null().to_numpy(), dtype=bool)

    def _is_there(self, name: str) -> bool:
        return bool(self.table.column(name).null_count < self.table.num_rows)

    def _rows_at(self, places: npt.NDArray[np.int64], columns: tuple[str, ...]) -> list[Mapping[str, Any]]:
        rows: list[Mapping[str, Any]] = self.table.select(list(columns)).take(places).to_pylist()
        return rows

    def _refuse(self, bad: _Bad, what: str) -> None:
        if bad.any():
            raise self._error(int(np.argmax(bad)), what)

    def _error(self, row: int, what: str) -> RecordError:
        kernel, problem = (str(self.table.column(name)[row].as_py()) for name in ("kernel", "problem"))
        return RecordError(
            f"{self.where}, row {row + 1} ({_shown(kernel)} on {_shown(problem)}): {what}; {_FIX}"
        )


def _not_positive(values: npt.NDArray[np.float64]) -> _Bad:
    return (values <= 0) | np.isinf(values)


def _first_rows(of_row: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the first row of each value."""
    return np.unique(of_row, return_index=True)[1]


def _shown(text: str) -> str:
    """Returns a name from a file on one line."""
    plain = text if text.isprintable() else repr(text)
    return plain if len(plain) <= _SHOWN else plain[: _SHOWN - 3] + "..."
