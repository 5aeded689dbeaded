"""Reads tables, JSON and logs of other tools as rows with the names of our columns."""

from __future__ import annotations

import io
import json
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tile_oracle.errors import RecordError
from tile_oracle.foreign.dialect import Dialect
from tile_oracle.foreign.summary import Refusals, plain_name
from tile_oracle.user_file import open_regular, read_bytes

_MAX_BYTES = 1 << 30
_MAX_DEPTH = 12
_LONGEST_NUMBER = 18


def text_of(path: Path) -> str:
    """The text of a file. Raises RecordError."""
    try:
        return read_bytes(path, _MAX_BYTES).decode("utf-8", errors="replace").replace("\r\n", "\n")
    except (OSError, ValueError) as error:
        raise RecordError(f"cannot read {plain_name(path)}: {getattr(error, 'strerror', error)}") from None


def parquet_rows(path: Path) -> pd.DataFrame:
    """The rows of a parquet file. Raises RecordError."""
    try:
        # pyarrow opens no path that is not valid UTF-8.
        with open_regular(path) as file:
            if path.stat().st_size > _MAX_BYTES:
                raise RecordError(f"{path} is larger than 1 GiB: split it")
            return pq.read_table(file).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise RecordError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def named_columns(path: Path, table: pd.DataFrame, dialect: Dialect) -> pd.DataFrame:
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


def csv_rows(path: Path, text: str, header: list[str], dialect: Dialect) -> pd.DataFrame:
    """The known columns of a CSV file, as text. Raises RecordError."""
    named_columns(
        path, pd.DataFrame(columns=header), dialect
    )  # reports missing columns before the rows are read
    return named_columns(path, csv_table(path, text, header), dialect)


def csv_table(path: Path, text: str, header: list[str]) -> pd.DataFrame:
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


def json_rows(path: Path, text: str, dialect: Dialect) -> pd.DataFrame:
    """The measurements in a JSON file. Raises RecordError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is not JSON: {error}") from None
    return pd.DataFrame(list(_measurements(value, {}, 0, dialect)))


def log_rows(text: str, refusals: Refusals, dialect: Dialect) -> pd.DataFrame:
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


def _whole(digits: str) -> float:
    """A number of a log; infinite if it is too long for any problem (Python refuses ints of 4,300 digits)."""
    return int(digits) if len(digits) <= _LONGEST_NUMBER else np.inf


def _held(value: str | int | float) -> str | int | float:
    """A JSON value that a table can hold: valid UTF-8, integers of 64 bits."""
    if isinstance(value, str):
        return plain_name(value)
    return value if isinstance(value, float) or abs(value) < 1 << 63 else np.inf
