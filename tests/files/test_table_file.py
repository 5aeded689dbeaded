"""Tables that are too large, or hold what is no cell, are refused in one line before memory is used."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.processes import run_python
from tile_oracle.errors import HarnessError, RecordError
from tile_oracle.files.table_file import MOST_COLUMNS, MOST_ROWS, TableError, check_csv
from tile_oracle.foreign.importers import import_file
from tile_oracle.history.summary import _choices
from tile_oracle.night.nights import read_history
from tile_oracle.pickers.of_records import read_picks
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import load_records
from tile_oracle.record.sealed_parquet import read_table
from tile_oracle.session.plan import _rows
from tile_oracle.training.adapt import _predictions

Reader = Callable[[Path], Any]
PARQUET_READERS: list[Reader] = [
    load_records,
    read_table,
    partial(import_file, arch="gfx950"),
    load_problem_set,
    _predictions,
]
CSV_READERS: list[Reader] = [
    partial(import_file, arch="gfx950"),
    load_problem_set,
    partial(read_picks, problems=()),
    read_history,
    _rows,
]


def name(reader: Reader) -> str:
    return getattr(reader, "func", reader).__name__.strip("_")


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small file of more rows than are read, all equal."""
    path = tmp_path_factory.mktemp("rows") / "many.parquet"
    count = 1_000_000
    zeros = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["gemm"]))
    columns = dict.fromkeys(("problem", "kernel", "status", "op"), zeros)
    group = pa.table(columns | {"number": pa.array(np.zeros(count, np.int8))})
    with pq.ParquetWriter(path, group.schema) as writer:
        for _ in range(MOST_ROWS // count + 1):
            writer.write_table(group)
    assert path.stat().st_size < 1 << 20
    return path


@pytest.mark.parametrize("read", PARQUET_READERS, ids=name)
def test_a_small_file_of_very_many_rows(read: Reader, many_rows: Path) -> None:
    with pytest.raises(HarnessError, match=r"many.parquet.* it has 21,000,000 rows, more than") as caught:
        read(many_rows)
    assert "\n" not in str(caught.value)


def test_its_cells_are_never_made(many_rows: Path) -> None:
    code = (
        "import sys, pathlib, pyarrow as pa; from tile_oracle.record.sealed_parquet import read_table\n"
        "try: read_table(pathlib.Path(sys.argv[1]))\n"
        "finally: print(pa.default_memory_pool().max_memory())"
    )
    ended = run_python("-c", code, many_rows)
    assert ended.returncode == 1
    assert int(ended.stdout) < 1 << 20


@pytest.mark.parametrize("read", PARQUET_READERS, ids=name)
@pytest.mark.parametrize("kind", ["binary", "struct"])
def test_a_column_that_holds_no_cells(read: Reader, kind: str, tmp_path: Path) -> None:
    values = pa.array([b"\xff\x00"]) if kind == "binary" else pa.array([{"a": 1}])
    texts = {word: pa.array(["gemm"]) for word in ("kernel", "status", "op")}
    pq.write_table(pa.table(texts | {"problem": values}), tmp_path / "odd.parquet")
    with pytest.raises(HarnessError, match=rf"odd.parquet.* its column 'problem' holds {kind}.*neither"):
        read(tmp_path / "odd.parquet")


def test_very_many_columns_of_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({f"c{n}": [0] for n in range(MOST_COLUMNS + 1)}), tmp_path / "wide.parquet")
    with pytest.raises(RecordError, match=r"wide.parquet cannot be read: it has 4,097 columns"):
        read_table(tmp_path / "wide.parquet")


@pytest.mark.parametrize("read", CSV_READERS, ids=name)
@pytest.mark.parametrize("row", [0, 1])
def test_a_csv_file_of_very_many_columns(read: Reader, row: int, tmp_path: Path) -> None:
    lines = ["problem,kernel,M,N,K,kernel_name,latency_ms", "1,1,1,1,1,1,1"]
    lines[row] += ",1" * 1_000_000
    (tmp_path / "wide.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(HarnessError, match=r"wide.csv.*(1,000,007 columns|more than 65,536 bytes)") as caught:
        read(tmp_path / "wide.csv")
    assert "\n" not in str(caught.value)


def test_predictions_of_a_model_folder(many_rows: Path, tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="21,000,000 rows"):
        _predictions(many_rows)
    with pytest.raises(HarnessError, match="21,000,000 rows"):
        _choices(many_rows)


def test_an_ordinary_table_is_read() -> None:
    check_csv("a,b\n" * 100)
    with pytest.raises(TableError, match="line 2 has 5,001 columns"):
        check_csv("a,b\n" + "," * 5000)
