"""Imports with numbers and names out of range: one clear line, or the row is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tile_oracle.errors import RecordError
from tile_oracle.foreign.importers import import_file

KERNEL = "grouped_conv_forward_bf16_2d_64x64x32_compv3_intrawave_w2x2x1_wt16x16x16"
GOOD = {"kernel": KERNEL, "N": 1, "C": 8, "K": 8, "Hi": 5, "Wi": 5, "Y": 3, "X": 3, "latency_ms": 0.5}
HUGE = ("9" * 4301, "1" + "0" * 400, "1e400", "-1e400", "1e-320", "nan")


@pytest.mark.parametrize("number", HUGE, ids=lambda number: number[:6] + str(len(number)))
@pytest.mark.parametrize("column", ["Hi", "latency_ms"])
@pytest.mark.parametrize("suffix", [".json", ".csv", ".log"])
def test_numbers_that_fit_no_type(suffix: str, column: str, number: str, tmp_path: Path) -> None:
    path = tmp_path / f"results{suffix}"
    if suffix == ".csv":
        rows = [GOOD, {**GOOD, column: number}]
        path.write_text("\n".join([",".join(GOOD), *(",".join(map(str, row.values())) for row in rows)]))
    else:
        text = json.dumps({**GOOD, column: 777777}).replace("777777", "NaN" if number == "nan" else number)
        path.write_text(json.dumps([GOOD])[:-1] + ", " + text + "]" if suffix == ".json" else text + "\n")
    said, records = "", 0
    try:
        found = import_file(path, "gfx950")
        records = len(found.records)
        said = str(found.summary)
    except RecordError as error:
        said = str(error)
    assert "\n" not in said
    assert "refused" in said or records == 0


def test_a_dimension_of_a_log_with_thousands_of_digits(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(
        f"N = {'9' * 5000} C = 8 K = 8 Hi = 5 Wi = 5 Y = 3 X = 3 {KERNEL}\n" + '{"latency_ms": 1}\n'
    )
    with pytest.raises(RecordError):
        import_file(path, "gfx950")


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xff.json"))
    path.write_text(json.dumps([GOOD, {**GOOD, "kernel": "grouped_conv_\ud800"}]))
    found = import_file(path, "gfx950")
    assert len(found.records) == 1
    str(found.summary).encode()
    assert found.records["run"].iloc[0] == "r\\udcff"


def test_parameters_of_a_tuner_that_are_not_utf8(tmp_path: Path) -> None:
    entry = {"kernel": KERNEL, "problem": "forward-bf16-n1-c8-k8-i5x5-f3x3", "time": 0.5, "\ud800": "\udfff"}
    cache = {"1": {**entry, "timestamp": "\ud800"}}
    (tmp_path / "k.json").write_text(json.dumps({"tune_params_keys": [], "cache": cache}))
    found = import_file(tmp_path / "k.json", "gfx950")
    assert list(found.records["status"]) == ["ok"]
    assert found.summary.unknown == {"\\ud800"}


def test_texts_of_parquet_that_are_not_utf8(tmp_path: Path) -> None:
    damaged = pa.array([b"\xdf"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"kernel": damaged, "latency_ms": [0.5]}), tmp_path / "a.parquet")
    with pytest.raises(RecordError, match=r"cannot be read: .*Invalid UTF8"):
        import_file(tmp_path / "a.parquet", "gfx950")


def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(RecordError, match="FIFO"):
        import_file(tmp_path / "a.csv", "gfx950")
