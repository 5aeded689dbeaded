"""Reads tables, JSON and logs of other tools as rows with the names of our columns."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tile_oracle.errors import RecordError
from tile_oracle.files.table_file import check_csv, read_parquet
from tile_oracle.files.user_file import no_text, read_bytes
from tile_oracle.foreign.contract import speaks
from tile_oracle.foreign.dialect import KERNEL_WORD, Dialect, of_another, op_of_name
from tile_oracle.foreign.summary import ImportSummary, plain_name

_MAX_BYTES = 1 << 30
_MAX_DEPTH = 12
_LONGEST_NUMBER = 18
"""Digits of any size. Python refuses integers of 4,300 digits."""
_LONGEST_TEXT = 200
_MOST_UNKNOWN = 1000


def text_of(path: Path) -> str:
    """Returns the text of a file. Raises RecordError."""
    data = _bytes_of(path)
    if what := no_text(data):
        raise RecordError(f"{plain_name(path)} is {what}")
    text = data.decode("utf-8", errors="replace")
    return text.removeprefix("\ufeff").replace("\r\n", "\n")  # spreadsheets begin with the mark


def _bytes_of(path: Path) -> bytes:
    try:
        return read_bytes(path, _MAX_BYTES)
    except (OSError, ValueError) as error:
        raise RecordError(f"cannot read {plain_name(path)}: {getattr(error, 'strerror', error)}") from None


def parquet_rows(path: Path) -> pd.DataFrame:
    """Returns the rows of a parquet file. Raises RecordError."""
    try:
        table = read_parquet(io.BytesIO(_bytes_of(path)))
        table.validate(full=True)  # texts that are not UTF-8
        return table.to_pandas()
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise RecordError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def named_columns(path: Path, table: pd.DataFrame, dialect: Dialect) -> pd.DataFrame:
    """Returns the table with its columns' names in lower case. Raises RecordError for columns that are
    missing or there twice."""
    names = [str(name).strip().lower() for name in table.columns]
    filled = {field.fills for name in names if (field := dialect.fields.get(name)) is not None}
    if "latency" in filled:
        filled.add("latency_ms")
    missing = [name for name in ("kernel", "latency_ms", *dialect.required) if name not in filled]
    if missing:
        raise RecordError(
            f"{path} lacks the columns {', '.join(missing)} of {dialect.op} (--op names another operation): "
            "a table of problems without measurements of named kernels goes to --problem-set"
        )
    repeated = [name for name, count in Counter(names).items() if name in dialect.fields and count > 1]
    if repeated:
        raise RecordError(f"{path} has more than one column {', '.join(repeated)}")
    table.columns = pd.Index(names)
    return table.loc[:, ~table.columns.duplicated()]


def csv_table(path: Path, text: str) -> pd.DataFrame:
    """Returns all rows as strings, without the repeated header rows of concatenated shards. Raises
    RecordError."""
    try:
        header = check_csv(text)
        table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False, index_col=False)
    except ValueError as error:
        raise RecordError(f"{path} cannot be read: {error}") from None
    table.columns = pd.Index(header)
    repeats_header = (table == header).all(axis=1)
    return table[~repeats_header].reset_index(drop=True)


def json_rows(path: Path, text: str, summary: ImportSummary, dialect: Dialect) -> pd.DataFrame:
    """Returns the measurements in a JSON file. Raises RecordError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is not JSON: {error}") from None
    return pd.DataFrame(list(_measurements(value, {}, 0, dialect, summary)))


def log_rows(text: str, summary: ImportSummary, dialect: Dialect) -> pd.DataFrame:
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
        dimensions: dict[str, Any] = {
            n.lower(): int(value) if len(value) <= _LONGEST_NUMBER else np.inf
            for n, value in dialect.dimension.findall(said)
        }
        if {name.lower() for name in dialect.required[:3]} <= set(dimensions):
            context = dimensions
        name = KERNEL_WORD.search(said) or dialect.kernel_word.search(said)
        if name:
            context = {**context, "kernel": name.group()}
        if brace < 0:
            position = end + 1
            continue
        try:
            value, stop = decoder.raw_decode(text, position + brace)
        except (ValueError, RecursionError):
            if name or '"' in line:
                summary.refuse("malformed JSON", line.strip())
            position = end + 1
            continue
        found = list(_measurements(value, context, 0, dialect, summary))
        rows += found
        is_ours = op_of_name(str(context.get("kernel", ""))) in ("", dialect.op)
        if not found and is_ours and (name or "latency" in line):
            summary.refuse("no latency, kernel or dimensions", line.strip())
        line_end = text.find("\n", stop)
        position = len(text) if line_end < 0 else line_end + 1
    return pd.DataFrame(rows)


def _measurements(
    value: Any, around: Mapping[str, Any], depth: int, dialect: Dialect, summary: ImportSummary
) -> Iterator[dict[str, Any]]:
    """Yields every object that has a kernel, dimensions, and a latency or a denial; what encloses it
    included."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            yield from _measurements(item, around, depth + 1, dialect, summary)
    elif isinstance(value, dict):
        here = dict(around)
        own = _stated(value, here, dialect, summary)
        filled = {dialect.field(name).fills for name in here}
        complete = "kernel" in filled and all(name in filled for name in dialect.required)
        timed = {name for name in here if dialect.field(name).fills in _LATENCIES}
        op = op_of_name(str(here.get("kernel", "")))
        if timed and op not in ("", dialect.op):
            summary.refuse(of_another(op), json.dumps(value)[:200])
            return
        if timed and complete:
            yield here
            return
        found = False
        around = {name: item for name, item in here.items() if name not in timed}
        for item in value.values():
            if isinstance(item, list | dict):
                for one in _measurements(item, around, depth + 1, dialect, summary):
                    found = True
                    yield one
        if found:
            return
        if timed and "kernel" in filled:
            summary.refuse("a latency without its kernel's dimensions", json.dumps(value)[:200])
        elif complete and any(dialect.field(name).status == "wrong" for name in own):
            yield here


_LATENCIES = {"latency", "latency_ms"}


def _stated(
    value: Mapping[str, Any], here: dict[str, Any], dialect: Dialect, summary: ImportSummary
) -> set[str]:
    """Adds the fields of an object and of the objects in it to `here`. Returns the names that it adds.

    An inner size replaces an outer one. Whatever is checked, and what one object states twice, is kept beside
    what was there, as NAME~: both must hold.
    """
    own: set[str] = set()
    for source in (value, *(v for v in value.values() if isinstance(v, dict))):
        for key, item in source.items():
            name = plain_name(str(key)).strip().lower()
            field = dialect.field(name)
            if name not in dialect.fields:
                if not isinstance(item, list | dict | None) and len(summary.unknown) < _MOST_UNKNOWN:
                    summary.unknown.add(name[:60])
                if not isinstance(item, str) or not speaks(item.strip().lower()):
                    continue
            if item is None or (isinstance(item, list | dict) and not (item and field.status == "wrong")):
                continue
            if isinstance(item, dict) and any(str(inner).strip().lower() in dialect.fields for inner in item):
                continue
            held = _held(item)
            while name in here and here[name] != held and (field.holds is not None or name in own):
                name += "~"
            here[name] = held
            own.add(name)
    return own


def _held(value: Any) -> str | float:
    """Returns a JSON value that a table can hold: valid UTF-8, integers of 64 bits."""
    if isinstance(value, bool | list | dict):
        return str(value)[:_LONGEST_TEXT]
    if isinstance(value, str):
        return plain_name(value)
    return value if isinstance(value, float) or abs(value) < 1 << 63 else np.inf
