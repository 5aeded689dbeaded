"""Rows of other tools -> records: each is checked against its problem, kernel and stated figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from tile_oracle.errors import KernelError, ProblemError, RecordError
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem
from tile_oracle.foreign.dialect import Dialect
from tile_oracle.foreign.summary import Imported, ImportSummary, Refusals
from tile_oracle.record.schema import arrow_schema, kernel_columns, problem_columns
from tile_oracle.version import __version__

ZERO_SHARE_LIMIT = 0.02
"""A larger share of zeros in the output shows that the kernel did not write it."""
TFLOPS_TOLERANCE = 0.01
"""How far the stated TFLOPS may be from operations / latency."""


@dataclass(frozen=True)
class _Read:
    """Rows of a file with their kernels and problems. kernel_of, problem_of: a row's index into `kernels` and
    `problems`, or -1."""

    rows: pd.DataFrame
    dialect: Dialect
    numbers: Mapping[str, npt.NDArray[np.float64]]
    kernels: list[Kernel]
    kernel_of: npt.NDArray[np.int64]
    problems: list[Problem]
    problem_of: npt.NDArray[np.int64]

    @property
    def latency_ms(self) -> npt.NDArray[np.float64]:
        return self.numbers["latency_ms"]


def _read(rows: pd.DataFrame, dialect: Dialect, refusals: Refusals) -> _Read:
    rows = rows.reset_index(drop=True)
    names = (*dialect.dimensions, "latency_ms", "tflops", "non_zero")
    numbers = {name: _numbers(rows, name, dialect.defaults) for name in names}
    kernels, kernel_of = _kernels(rows["kernel"], refusals, dialect)
    problems, problem_of = _problems(numbers, kernels, kernel_of, refusals, dialect)
    return _Read(rows, dialect, numbers, kernels, kernel_of, problems, problem_of)


def _tflops(read: _Read) -> npt.NDArray[np.float64]:
    """TFLOPS of each row, from its problem and latency."""
    flops = np.array([problem.flops for problem in read.problems] or [0], dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(flops[read.problem_of] / (read.latency_ms * 1e9))


def _usable(read: _Read, tflops: npt.NDArray[np.float64], refusals: Refusals) -> npt.NDArray[np.bool_]:
    """Which rows can be imported. The others are added to `refusals`, each with its first reason."""
    rows, latency = read.rows, read.latency_ms
    keep = read.problem_of >= 0

    def refuse(reason: str, bad: npt.NDArray[np.bool_]) -> None:
        _refuse(refusals, reason, keep & bad, rows)
        keep[bad] = False

    refuse("latency is not a positive number", ~(np.isfinite(latency) & (latency > 0)))
    for name in (name for name in read.dialect.claims if name in rows):
        refuse(f"{name} contradicts the kernel or dense matrices", _false_claim(read, name, keep))
    refuse("latency is too small to be a time", ~np.isfinite(tflops))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        agrees = np.abs(read.numbers["tflops"] / tflops - 1) <= TFLOPS_TOLERANCE
    refuse("tflops contradicts latency and problem", ~agrees & _stated(rows, "tflops"))
    seen = pd.DataFrame(
        {
            "p": read.problem_of,
            "k": read.kernel_of,
            "t": latency,
            "z": read.numbers["non_zero"],
            "keep": keep,
        }
    )
    refuse("the same row twice", seen.duplicated().to_numpy())
    return keep


def _false_claim(read: _Read, name: str, keep: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which rows of `keep` state something in a column that does not hold for their problem."""
    said = list(zip(read.rows[name].astype(str), read.problem_of, strict=True))
    asked = keep & _stated(read.rows, name)
    holds = {
        one: read.dialect.holds(name, one[0], read.problems[one[1]])
        for one in {one for one, ask in zip(said, asked, strict=True) if ask}
    }
    return np.asarray(asked & ~np.array([holds.get(one, True) for one in said]))


def converted(
    rows: pd.DataFrame,
    dialect: Dialect,
    run: str,
    source: str,
    arch: str,
    trust: bool,
    refusals: Refusals,
) -> Imported:
    """Rows with our names as records. trust: rows whose output was not written stay ok. Raises RecordError if
    no row is usable."""
    total = len(rows) + sum(refusals.counts.values())
    read = _read(rows, dialect, refusals)
    tflops = _tflops(read)
    keep = _usable(read, tflops, refusals)
    if not keep.any():
        raise RecordError(
            f"{source} holds no usable row; {refusals.shown[0] if refusals.shown else 'it is empty'}"
        )
    p, k = read.problem_of[keep], read.kernel_of[keep]
    outputs = np.array([_outputs(problem) for problem in read.problems], dtype=np.float64)
    zero_share = 1 - read.numbers["non_zero"][keep] / outputs[p]
    unwritten = np.nan_to_num(zero_share, nan=0.0) > ZERO_SHARE_LIMIT
    wrong = unwritten & (not trust)
    repeat = pd.DataFrame({"p": p, "k": k}).groupby(["p", "k"]).cumcount().to_numpy()
    table: dict[str, Any] = _indexed([one.as_row() for one in read.problems], problem_columns(dialect.op), p)
    table |= _indexed([one.as_row() for one in read.kernels], kernel_columns(dialect.op), k)
    table["problem"] = np.array([one.id for one in read.problems], dtype=object)[p]
    table["kernel"] = np.array([one.name for one in read.kernels], dtype=object)[k]
    table["run"] = np.where(repeat == 0, run, np.char.add(f"{run}-repeat", (repeat + 1).astype(str))).astype(
        object
    )
    percent = np.char.add(np.char.mod("%.1f", 100 * np.nan_to_num(zero_share)), " % of the output is zero")
    table["detail"] = np.where(unwritten, percent, "").astype(object)
    table["status"] = np.where(wrong, "wrong", "ok").astype(object)
    table["latency_ms"] = np.where(wrong, np.nan, read.latency_ms[keep])
    table["tflops"] = np.where(wrong, np.nan, tflops[keep])
    summary = ImportSummary(
        source,
        total,
        int((~wrong).sum()),
        int(wrong.sum()),
        int(unwritten.sum()) if trust else 0,
        int((repeat > 0).sum()),
        dict(refusals.counts),
        tuple(refusals.shown),
        refusals.padded,
    )
    return Imported(records_of(table, dialect.op, arch, source), summary)


def records_of(columns: Mapping[str, Any], op: str, arch: str, source: str) -> pd.DataFrame:
    """Adds the columns that are the same for all imported rows."""
    table = dict(columns)
    count = len(table["problem"])
    constants = {
        "op": op,
        "round": 0,
        "check": "none",
        "check_points": 0,
        "target": arch,
        "arch": arch,
    }
    constants |= {"device": arch, "harness_version": __version__, "toolchain": f"imported from {source}"}
    for name, value in constants.items():
        table[name] = [value] * count
    frame = pd.DataFrame(table)
    schema = arrow_schema(op)
    for name in schema.names:
        if name not in frame:
            frame[name] = None
    return pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False).to_pandas()


def _numbers(rows: pd.DataFrame, name: str, defaults: Mapping[str, int]) -> npt.NDArray[np.float64]:
    if name not in rows:
        return np.full(len(rows), float(defaults.get(name, np.nan)))
    try:
        value = pd.to_numeric(rows[name], errors="coerce").to_numpy(dtype=np.float64)
    except (OverflowError, ValueError, TypeError):  # one of the numbers fits no column type
        value = np.array([_number(one) for one in rows[name]], dtype=np.float64)
    if name in defaults:
        value = np.where(_stated(rows, name), value, float(defaults[name]))
    return np.asarray(value)


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (OverflowError, ValueError, TypeError):
        return np.nan


def _stated(rows: pd.DataFrame, name: str) -> npt.NDArray[np.bool_]:
    """Which rows have a value in a column."""
    if name not in rows:
        return np.zeros(len(rows), dtype=bool)
    return np.asarray(rows[name].notna() & (rows[name].astype(str).str.strip() != ""))


def _kernels(
    names: pd.Series, refusals: Refusals, dialect: Dialect
) -> tuple[list[Kernel], npt.NDArray[np.int64]]:
    codes, found = pd.factorize(names.astype(str).str.strip())
    place = np.full(len(found), -1, dtype=np.int64)
    counts = np.bincount(codes, minlength=len(found))
    places: dict[Kernel, int] = {}
    for index, name in enumerate(found):
        try:
            named = dialect.kernel(str(name))
        except KernelError as error:
            refusals.add("kernel name cannot be read", str(error), int(counts[index]))
            continue
        meant = dialect.meant(named)
        place[index] = places.setdefault(meant, len(places))
        refusals.padded += int(counts[index]) if meant != named else 0
    return list(places), place[codes]


def _problems(
    numbers: Mapping[str, npt.NDArray[np.float64]],
    kernels: list[Kernel],
    kernel_of: npt.NDArray[np.int64],
    refusals: Refusals,
    dialect: Dialect,
) -> tuple[list[Problem], npt.NDArray[np.int64]]:
    """The distinct problems, and each row's index into them (-1 if its dimensions or kernel are invalid)."""
    kinds = sorted({k.kind for k in kernels})
    kind_of_kernel = np.array([kinds.index(k.kind) for k in kernels] or [0], dtype=np.int64)
    dims = np.stack([numbers[name] for name in dialect.dimensions], axis=1)
    key = np.column_stack(
        [np.where(kernel_of >= 0, kind_of_kernel[kernel_of], -1), np.nan_to_num(dims, nan=-1.5)]
    )
    unique, codes = np.unique(key, axis=0, return_inverse=True)
    codes = codes.reshape(-1)
    counts = np.bincount(codes, minlength=len(unique))
    problems: list[Problem] = []
    place = np.full(len(unique), -1, dtype=np.int64)
    for index, row in enumerate(unique):
        if row[0] < 0:
            continue
        if (row[1:] != np.floor(row[1:])).any() or (np.abs(row[1:]) > 2**40).any():
            refusals.add(
                "a dimension is not an integer",
                str(dict(zip(dialect.dimensions, row[1:], strict=True))),
                int(counts[index]),
            )
            continue
        try:
            sizes = {n: int(v) for n, v in zip(dialect.dimensions, row[1:], strict=True)}
            problem = dialect.problem(kinds[int(row[0])], sizes)
        except ProblemError as error:
            refusals.add("dimensions cannot be right", str(error), int(counts[index]))
        else:
            problems.append(problem)
            place[index] = len(problems) - 1
    return problems, place[codes]


def _refuse(refusals: Refusals, reason: str, mask: npt.NDArray[np.bool_], rows: pd.DataFrame) -> None:
    if mask.any():
        example = ", ".join(f"{name}={value}" for name, value in rows[mask].iloc[0].items())
        refusals.add(reason, example, int(mask.sum()))


def _outputs(problem: Problem) -> int:
    count = 1
    for extent in problem.operand_shapes[2]:
        count *= extent
    return count


def _indexed(
    rows: list[dict[str, Any]], names: Iterable[str], index: npt.NDArray[np.int64]
) -> dict[str, Any]:
    return {name: pd.Series([row[name] for row in rows]).to_numpy()[index] for name in names}
