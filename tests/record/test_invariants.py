"""Invariants of rows: one clear line for each rule that a row breaks."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.record.made_rows import Row, make_row
from tile_oracle.errors import RecordError
from tile_oracle.files.data_files import data_folder
from tile_oracle.record.dataset import load_records, read_rows
from tile_oracle.record.dataset_file import records_table
from tile_oracle.record.invariants import check_rows
from tile_oracle.record.journal import rows_table
from tile_oracle.record.schema import arrow_schema


def check(*rows: Row) -> None:
    check_rows(rows_table(rows), "grouped_conv", "a.parquet")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "okay"}, "the status is none of"),
        ({"status": None}, "status is missing"),
        ({"kernel": None}, "kernel is missing"),
        ({"round": -1}, "the round is negative"),
        ({"latency_ms": -0.5}, "latency_ms is not a positive number"),
        ({"latency_ms": float("inf")}, "latency_ms is not a positive number"),
        ({"latency_ms": None}, "has no latency_ms"),
        ({"tflops": None}, "has no tflops"),
        ({"samples": 0}, "has no samples"),
        ({"latency_min_ms": 1e9}, "latency_min_ms is more than latency_ms"),
        ({"latency_min_ms": 0.0}, "latency_min_ms is not a positive number"),
        ({"at_least_ms": 1e9}, "at_least_ms is more than latency_ms"),
        ({"at_least_ms": 0.0}, "at_least_ms is not a positive number"),
        ({"check_ms": -0.1}, "check_ms is negative or infinite"),
        ({"precision": -0.1}, "precision is negative or infinite"),
        ({"aligned": 0.0}, "aligned is not a positive number"),
        ({"cache": "lukewarm"}, "cache is neither warm nor cold"),
        ({"spread": -0.1}, "spread is negative or infinite"),
        ({"K": 8}, "K differs from earlier rows of the problem"),
        ({"Hi": -5}, "Hi differs from earlier rows of the problem"),
        ({"tile_m": 32}, "the kernel's name and columns describe different kernels"),
        ({"kernel": "grouped_conv_of_my_own"}, "the kernel's name and columns describe different kernels"),
        ({"kernel": "a\n" * 99}, r"row 3 \(.{157}\.\.\. on forward-.*describe different kernels"),
        ({"pipeline": "mem"}, "the kernel's name and columns describe different kernels"),
        (
            {"kernel": "grouped_conv_forward_fp32_2d_cudnn.e1.stages=2", "specialization": None},
            "the kernel's name and columns describe different kernels",
        ),
    ],
)
def test_an_invalid_row_is_named(change: Row, said: str) -> None:
    with pytest.raises(RecordError, match=said) as raised:
        check(make_row(0), make_row(1), {**make_row(2), **change})
    assert str(raised.value).startswith("a.parquet, row 3 (")
    assert "\n" not in str(raised.value)


def test_rows_agree_with_their_problem_and_kernel_and_failed_ones_need_no_times() -> None:
    for change, said in (
        ({"K": 8}, "its columns describe the problem forward"),
        ({"Hi": -5}, "not a valid problem"),
    ):
        with pytest.raises(RecordError, match=said):
            check({**make_row(0), **change})
    rows = [make_row(n) for n in range(3)]
    with pytest.raises(RecordError, match="pad_h differs from earlier rows of the problem"):
        check(*rows, {**make_row(1), "pad_h": 1})
    with pytest.raises(RecordError, match="tile_n differs from earlier rows of the kernel"):
        check(*rows, {**make_row(1), "tile_n": 99})
    none = dict.fromkeys(("latency_ms", "latency_min_ms", "spread", "tflops", "busy_ms"))
    rows = [make_row(n, status=status, samples=0, **none) for n, status in enumerate(("wrong", "crash"))]
    check(*rows)


def test_seven_digits_of_a_throughput_are_enough_and_a_flipped_bit_is_detected() -> None:
    row = make_row(0)
    row["tflops"] = float(f"{row['tflops']:.7g}")
    check(row)
    # Undetected, such damage changed the oracle of eleven problems, and the gate failed without reporting
    # it.
    row["tflops"] *= 2
    with pytest.raises(RecordError, match="tflops is not the problem's operations / latency_ms"):
        check(row)


def test_missing_columns_of_older_files_are_accepted(tmp_path: Path) -> None:
    old = rows_table([make_row(n) for n in range(3)])
    lacks = (
        [f"tile_{x}" for x in "mnk"] + [f"wave_{x}" for x in "mnk"] + ["samples", "latency_min_ms", "round"]
    )
    pq.write_table(old.drop_columns(lacks), tmp_path / "old.parquet")
    known = {"op", "problem", "kernel", "status", "latency_ms", "tflops"}
    assert known <= set(arrow_schema().names)
    with pytest.raises(RecordError, match="describe different kernels"):
        load_records(tmp_path / "old.parquet")
    names = [name for name in old.column_names if name in ("time", *known, *_problem_names())]
    pq.write_table(old.select(names), tmp_path / "older.parquet")
    assert len(load_records(tmp_path / "older.parquet")) == 3


def _problem_names() -> tuple[str, ...]:
    from tile_oracle.record.schema import problem_columns

    return problem_columns()


def test_loading_records_checks_the_invariants(tmp_path: Path) -> None:
    pq.write_table(rows_table([{**make_row(0), "tflops": 99.0}]), tmp_path / "a.parquet")
    with pytest.raises(RecordError, match=r"a\.parquet, row 1 .*measure the pair again"):
        load_records(tmp_path / "a.parquet")


def test_shipped_records_satisfy_the_invariants() -> None:
    folder = data_folder("models") / "grouped_conv_forward_bf16_cpu"
    for path in (folder / "training.parquet", *folder.glob("*/*/*.parquet")):
        check_rows(records_table(read_rows(path)), "grouped_conv", path)
