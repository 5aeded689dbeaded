"""Measurements of other tools -> records: published CSV and JSON results, benchmark logs, and own records.

tile_oracle.kernel parses the kernel names. A row that contradicts itself is refused, or kept with status
`wrong`, and counted: nothing is dropped silently.
"""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tile_oracle.arch import load_arch
from tile_oracle.atomic_file import write_atomically
from tile_oracle.errors import KernelError, ProblemError, RecordError
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem
from tile_oracle.record import ck_dsl
from tile_oracle.record.dataset import load_records
from tile_oracle.record.dialect import Dialect, dialect_of_header, dialect_of_text
from tile_oracle.record.foreign_rows import ForeignFile
from tile_oracle.record.kernel_tuner import kernel_tuner_document, read_kernel_tuner
from tile_oracle.record.nvbench import nvbench_document, read_nvbench
from tile_oracle.record.schema import arrow_schema, kernel_columns, op_of, problem_columns
from tile_oracle.user_file import open_regular, read_bytes
from tile_oracle.version import __version__

ZERO_SHARE_LIMIT = 0.02
"""A larger share of zeros in the output shows that the kernel did not write it."""

TFLOPS_TOLERANCE = 0.01
"""How far the stated TFLOPS may be from operations / latency."""

_MAX_BYTES = 1 << 30
_MAX_DEPTH = 12
_LONGEST_NUMBER = 18
_SHOWN = 5


@dataclass(frozen=True)
class ImportSummary:
    """The result of importing one file. `refused`: reason -> rows. `shown`: a few refused lines. `padded`:
    rows of mem kernels whose names state the wrong padding."""

    source: str
    rows: int
    ok: int
    wrong: int
    trusted: int
    repeats: int
    refused: Mapping[str, int] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    padded: int = 0

    def __str__(self) -> str:
        parts = [f"{self.source}: {self.rows} rows, {self.ok} ok"]
        if self.trusted:
            parts.append(f"{self.trusted} of them unverified but trusted (output left unwritten)")
        if self.wrong:
            parts.append(f"{self.wrong} wrong (output left unwritten)")
        if self.repeats:
            parts.append(f"{self.repeats} repeated measurements of a pair")
        if self.padded:
            parts.append(f"{self.padded} of mem kernels read as padded, whatever their names state")
        parts += [f"{count} refused: {reason}" for reason, count in sorted(self.refused.items())]
        return "; ".join(parts)


@dataclass(frozen=True)
class Imported:
    """Records of one file (columns of tile_oracle.record.schema) and a summary of what was refused."""

    records: pd.DataFrame
    summary: ImportSummary


@dataclass
class _Refusals:
    counts: Counter[str] = field(default_factory=Counter)
    shown: list[str] = field(default_factory=list)
    padded: int = 0

    def add(self, reason: str, example: str, count: int = 1) -> None:
        self.counts[reason] += count
        if len(self.shown) < _SHOWN:
            self.shown.append(f"{reason}: {plain_name(example[:200])}")


def import_file(
    path: Path | str, arch: str, trust_unverified: bool = False, dtype: str | None = None
) -> Imported:
    """Reads one file as records of an architecture.

    The format is detected: our own records (a run's folder, or parquet), other parquet, CSV, JSON, or else a
    log with JSON among other lines. Rows whose output was not written become `wrong`; with `trust_unverified`
    they stay ok, as in the published figures. dtype: the data type of a CK DSL sweep that does not state one
    (record.ck_dsl). Raises RecordError for a file that cannot be read or holds no measurement, RuleError for
    an unknown architecture.
    """
    path = Path(path)
    load_arch(arch)
    if path.is_dir() or (path.suffix == ".parquet" and _is_own(path)):
        return _own(path, arch)
    refusals = _Refusals()
    if path.suffix == ".parquet":
        rows = _parquet(path)
        dialect = dialect_of_header(list(rows.columns))
        rows = _named(path, rows, dialect)
    elif path.suffix.lower() == ".csv":
        text = _text(path)
        header = next(csv.reader(io.StringIO(text[: 1 << 16], newline=None)), [])
        dialect = dialect_of_header(header)
        if ck_dsl.is_sweep(header):
            said = ck_dsl.sweep_dtype(path, dtype)
            rows = _named(path, ck_dsl.with_kernels(_csv_table(path, text, header), said), dialect)
        else:
            rows = _csv_rows(path, text, header, dialect)
    else:
        text = _text(path)
        foreign = _foreign(text)
        if foreign is not None:
            return _of_foreign(foreign, path, arch)
        dialect = dialect_of_text(text)
        if path.suffix.lower() == ".json":
            rows = _json_rows(path, text, dialect)
        else:
            rows = _log_rows(text, refusals, dialect)
    if rows.empty:
        detail = (
            f"; {sum(refusals.counts.values())} malformed, first: {refusals.shown[0]}"
            if refusals.shown
            else ""
        )
        raise RecordError(
            f"{path} holds no measurement: a row needs a kernel name, dimensions and a latency{detail}"
        )
    run, source = plain_name(path.stem), plain_name(path.name)
    return _converted(rows, dialect, run, source, arch, trust_unverified, refusals)


def write_records(records: pd.DataFrame, out: Path | str) -> None:
    """Writes records of one operation as a parquet file, atomically. Raises RecordError."""
    schema = arrow_schema(op_of(records["op"].unique()))
    table = pa.Table.from_pandas(records, schema=schema, preserve_index=False)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    try:
        Path(out).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(Path(out), buffer.getvalue())
    except OSError as error:
        raise RecordError(f"cannot write {out}: {error.strerror}") from None


# ---- reading -----------------------------------------------------------------------------------


def _text(path: Path) -> str:
    try:
        return read_bytes(path, _MAX_BYTES).decode("utf-8", errors="replace").replace("\r\n", "\n")
    except (OSError, ValueError) as error:
        raise RecordError(f"cannot read {plain_name(path)}: {getattr(error, 'strerror', error)}") from None


def _own(path: Path, arch: str) -> Imported:
    records = load_records(path)
    other = records["arch"].notna() & (records["arch"] != arch)
    kept = records[~other].assign(arch=arch)
    if kept.empty:
        raise RecordError(f"{path} holds no records of {arch}")
    status = kept["status"].value_counts()
    refused = {f"of another architecture than {arch}": int(other.sum())} if other.any() else {}
    refused |= {
        f"status {name}, kept as it is": int(n) for name, n in status.items() if name not in ("ok", "wrong")
    }
    summary = ImportSummary(
        path.name, len(records), int(status.get("ok", 0)), int(status.get("wrong", 0)), 0, 0, refused
    )
    return Imported(kept.reset_index(drop=True), summary)


def _foreign(text: str) -> ForeignFile | None:
    """The measurements in a file of Kernel Tuner or NVBench; None for other text."""
    document = kernel_tuner_document(text)
    if document is not None:
        return read_kernel_tuner(document)
    document = nvbench_document(text)
    return None if document is None else read_nvbench(document)


def _of_foreign(foreign: ForeignFile, path: Path, arch: str) -> Imported:
    refusals = _Refusals()
    for reason, example in foreign.refused:
        refusals.add(reason, example)
    if not foreign.rows:
        raise RecordError(
            f"{path} holds no usable row; {refusals.shown[0] if refusals.shown else 'it is empty'}"
        )
    op = op_of(row.kernel.op for row in foreign.rows)
    table = pd.DataFrame([row.as_columns() for row in foreign.rows])
    repeat = table.groupby(["problem", "kernel"]).cumcount()
    name, source = plain_name(path.stem), plain_name(path.name)
    table["run"] = [name if not one else f"{name}-repeat{one + 1}" for one in repeat]
    times = [row.time for row in foreign.rows]
    table["time"] = pd.to_datetime(pd.Series(times, dtype=object), utc=True, errors="coerce", format="mixed")
    counts = table["status"].value_counts()
    kept = {
        f"status {word}, kept as it is": int(number)
        for word, number in counts.items()
        if word not in ("ok", "wrong")
    }
    summary = ImportSummary(
        source,
        len(foreign.rows) + len(foreign.refused),
        int(counts.get("ok", 0)),
        int(counts.get("wrong", 0)),
        0,
        int((repeat > 0).sum()),
        {**refusals.counts, **kept},
        tuple(refusals.shown),
    )
    return Imported(_records(table.to_dict("series"), op, arch, source), summary)


def _is_own(path: Path) -> bool:
    """Whether a parquet file has the columns of our records."""
    try:
        with open_regular(path) as file:
            return {"status", "problem", "round"} <= set(pq.read_schema(file).names)
    except (OSError, pa.ArrowException):
        return True  # load_records reports what is wrong with it


def _parquet(path: Path) -> pd.DataFrame:
    try:
        # pyarrow opens no path that is not valid UTF-8.
        with open_regular(path) as file:
            if path.stat().st_size > _MAX_BYTES:
                raise RecordError(f"{path} is larger than 1 GiB: split it")
            return pq.read_table(file).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise RecordError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def _named(path: Path, table: pd.DataFrame, dialect: Dialect) -> pd.DataFrame:
    """The known columns, renamed to ours."""
    found = [dialect.keys.get(str(name).strip().lower()) for name in table.columns]
    missing = [name for name in ("kernel", "latency_ms", *dialect.required) if name not in found]
    if missing:
        raise RecordError(
            f"{path} lacks the columns {', '.join(missing)}: a table of problems without measurements of "
            "named kernels goes to --problem-set"
        )
    repeated = [name for name, count in Counter(found).items() if name and count > 1]
    if repeated:
        raise RecordError(f"{path} has more than one column {', '.join(repeated)}")
    table.columns = pd.Index([name or f"_{index}" for index, name in enumerate(found)])
    return table[[name for name in found if name]]


def _csv_rows(path: Path, text: str, header: list[str], dialect: Dialect) -> pd.DataFrame:
    _named(path, pd.DataFrame(columns=header), dialect)  # reports missing columns before the rows are read
    return _named(path, _csv_table(path, text, header), dialect)


def _csv_table(path: Path, text: str, header: list[str]) -> pd.DataFrame:
    """All rows as strings, without the repeated header rows of concatenated shards."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # a row longer than the header
            table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False, index_col=False)
    except (pd.errors.ParserError, pd.errors.ParserWarning, ValueError) as error:
        raise RecordError(f"{path} is not a table: {str(error).splitlines()[0]}") from None
    table.columns = pd.Index(header)
    repeats_header = (table == header).all(axis=1)
    return table[~repeats_header].reset_index(drop=True)


def _json_rows(path: Path, text: str, dialect: Dialect) -> pd.DataFrame:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is not JSON: {error}") from None
    return pd.DataFrame(list(_measurements(value, {}, 0, dialect)))


def _log_rows(text: str, refusals: _Refusals, dialect: Dialect) -> pd.DataFrame:
    """JSON objects in a log; the kernel's name and the dimensions are in them or on earlier lines."""
    decoder = json.JSONDecoder()
    rows: list[dict[str, Any]] = []
    context: dict[str, Any] = {}
    position = 0
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        line = text[position:end]
        brace = line.find("{")
        said = line if brace < 0 else line[:brace]
        dimensions = {dialect.spelled(n): _whole(value) for n, value in dialect.dimension.findall(said)}
        if set(dialect.shape) <= set(dimensions):
            context = dimensions
        name = dialect.kernel_word.search(said)
        if name:
            context = {**context, "kernel": name.group()}
        if brace < 0:
            position = end + 1
            continue
        try:
            value, stop = decoder.raw_decode(text, position + brace)
        except (ValueError, RecursionError):
            if name or '"' in line:
                refusals.add("malformed JSON", line.strip())
            position = end + 1
            continue
        found = list(_measurements(value, context, 0, dialect))
        rows += found
        if not found and (name or "latency" in line):
            refusals.add("no latency, kernel or dimensions", line.strip())
        line_end = text.find("\n", stop)
        position = len(text) if line_end < 0 else line_end + 1
    return pd.DataFrame(rows)


def _measurements(
    value: Any, around: Mapping[str, Any], depth: int, dialect: Dialect
) -> Iterator[dict[str, Any]]:
    """Every object that has a kernel, a latency and dimensions, its enclosing objects included."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            yield from _measurements(item, around, depth + 1, dialect)
    elif isinstance(value, dict):
        here = dict(around)
        for source in (value, *(v for v in value.values() if isinstance(v, dict))):
            for key, item in source.items():
                known = dialect.keys.get(str(key).strip().lower())
                if known and isinstance(item, str | int | float):
                    if not isinstance(item, bool):
                        here[known] = _held(item)
                    elif known in dialect.claims:
                        here[known] = str(item)
        if "latency_ms" in here and "latency_ms" not in around:
            if "kernel" in here and all(name in here for name in dialect.required):
                yield here
            return
        for item in value.values():
            if isinstance(item, list | dict):
                yield from _measurements(item, here, depth + 1, dialect)


# ---- converting --------------------------------------------------------------------------------


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


def _read(rows: pd.DataFrame, dialect: Dialect, refusals: _Refusals) -> _Read:
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


def _usable(read: _Read, tflops: npt.NDArray[np.float64], refusals: _Refusals) -> npt.NDArray[np.bool_]:
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


def _converted(
    rows: pd.DataFrame,
    dialect: Dialect,
    run: str,
    source: str,
    arch: str,
    trust: bool,
    refusals: _Refusals,
) -> Imported:
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
    return Imported(_records(table, dialect.op, arch, source), summary)


def _records(columns: Mapping[str, Any], op: str, arch: str, source: str) -> pd.DataFrame:
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


def plain_name(text: object) -> str:
    """The text as valid UTF-8: file names and strings from JSON may hold lone surrogates."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def _whole(digits: str) -> float:
    """A number of a log; infinite if it is too long for any problem (Python refuses ints of 4,300 digits)."""
    return int(digits) if len(digits) <= _LONGEST_NUMBER else np.inf


def _held(value: str | int | float) -> str | int | float:
    """A JSON value that a table can hold: valid UTF-8, integers of 64 bits."""
    if isinstance(value, str):
        return plain_name(value)
    return value if isinstance(value, float) or abs(value) < 1 << 63 else np.inf


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
    names: pd.Series, refusals: _Refusals, dialect: Dialect
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
    refusals: _Refusals,
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


def _refuse(refusals: _Refusals, reason: str, mask: npt.NDArray[np.bool_], rows: pd.DataFrame) -> None:
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
