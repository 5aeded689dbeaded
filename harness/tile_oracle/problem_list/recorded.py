"""Reads the problems of records: a parquet file, or a run's folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tile_oracle.errors import ProblemError
from tile_oracle.files.table_file import TableError, open_parquet
from tile_oracle.files.user_file import open_regular
from tile_oracle.foreign.list_file import ListFile
from tile_oracle.problem import Problem, problem_from_id

MEASUREMENTS = "measurements"
"""The subfolder of a run's folder that holds its records."""

_COLUMN = "problem"


def recorded_problems(file: ListFile) -> Iterator[tuple[Problem, str]]:
    """Yields every recorded problem once, in the order of the records. Raises ProblemSetError, and OSError
    for a path that is not a regular file."""
    found: dict[str, None] = {}
    for part in _parts(file.path):
        try:
            with open_regular(part) as source, open_parquet(source, [_COLUMN]) as opened:
                if _COLUMN not in opened.schema_arrow.names:
                    raise file.error(
                        f"no column {_COLUMN}: these are no records; `tile-oracle runs import` makes records",
                        0,
                    )
                for batch in opened.iter_batches(columns=[_COLUMN]):
                    found.update(dict.fromkeys(batch.column(0).unique().to_pylist()))
        except TableError as error:
            raise file.error(f"{part.name} cannot be read: {error}", 0) from None
        except pa.ArrowException as error:
            raise file.error(f"{part.name} is not parquet: {str(error).splitlines()[0][:200]}", 0) from None
    file.sha256.update("\n".join(map(str, found)).encode("utf-8", "replace"))
    for text in found:
        try:
            yield problem_from_id(str(text)), ""
        except ProblemError as error:
            raise file.error(f"{str(error)[:300]} (a record's {_COLUMN})", 0) from None


def _parts(path: Path) -> list[Path]:
    return sorted((path / MEASUREMENTS).glob("*.parquet")) if path.is_dir() else [path]
