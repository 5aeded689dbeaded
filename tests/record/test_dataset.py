"""Reading records: from runs of every version, and from files that are not records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.record.made_rows import make_row
from tile_oracle.errors import RecordError
from tile_oracle.record import dataset
from tile_oracle.record.dataset import IDENTITY, measurements_folder
from tile_oracle.record.dataset_file import write_rows
from tile_oracle.record.journal import Journal, write_part
from tile_oracle.record.not_built import not_built
from tile_oracle.record.schema import arrow_schema
from tile_oracle.record.twins import is_measured, measured_kernels, twin_detail


def load_records(paths: Any) -> pd.DataFrame:
    """The records, which are the same in the compact form, except that it has categoricals."""
    frame = dataset.load_records(paths)
    compact = dataset.load_records(paths, compact=True)
    for name in ("status", "detail"):
        assert not isinstance(compact[name].dtype, pd.CategoricalDtype)
    assert isinstance(compact["toolchain"].dtype, pd.CategoricalDtype) or not len(compact)
    pd.testing.assert_frame_equal(dataset.with_texts(compact), frame)
    return frame


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = measurements_folder(tmp_path / "run")
    folder.mkdir(parents=True)
    write_part(folder / "part-a.parquet", [make_row(n) for n in range(3)])
    return tmp_path / "run"


def test_runs_folders_of_parts_and_files_read_the_same(run: Path) -> None:
    folder = measurements_folder(run)
    frames = [load_records(path) for path in (run, folder, folder / "part-a.parquet", str(run), [run, run])]
    for frame in frames:
        pd.testing.assert_frame_equal(frame, frames[0])
    assert list(frames[0].columns) == arrow_schema().names
    assert len(frames[0]) == 3


def test_records_are_sorted_by_time(run: Path) -> None:
    write_part(measurements_folder(run) / "part-0.parquet", [make_row(9), make_row(5)])
    assert load_records(run)["latency_ms"].tolist() == [0.5, 1.5, 2.5, 5.5, 9.5]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([None, 0, 1]), st.booleans()), min_size=1))
def test_rows_without_a_run_are_dropped_only_where_they_are_the_same_measurement(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, int | None, bool]]
) -> None:
    rows = [
        make_row(n, run=None, time=second if second is None else f"2026-01-02T00:00:0{second}Z")
        | (
            {}
            if slow
            else {"latency_ms": 2.0 * n + 1, "tflops": make_row(n, latency_ms=2.0 * n + 1)["tflops"]}
        )
        for n, second, slow in drawn
    ]
    folder = tmp_path_factory.mktemp("unnamed")
    write_part(folder / "part-a.parquet", rows)
    timed = [one for one in drawn if one[1] is not None]
    assert len(load_records(folder)) == len(set(timed)) + len(drawn) - len(timed)


def test_equal_rows_and_times_to_come_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now = datetime.now(UTC)
    soon, late = ((now + timedelta(hours=hours)).isoformat() for hours in (23, 25))
    twice = make_row(0, run=None)
    path = tmp_path / "part-a.parquet"
    write_part(path, [twice, twice, make_row(1, time=soon)])
    assert len(dataset.load_records(path)) == 2
    assert [one.message for one in caplog.records] == ["1 row given more than once: left out"]
    caplog.clear()
    write_part(path, [make_row(0), make_row(1, time=soon), make_row(2, time=late)])
    assert len(dataset.load_records(path)) == len(dataset.read_rows(path)) == 3
    told = [one.message for one in caplog.records]
    assert (
        told
        == [
            f"{path}: 1 row measured at a time to come: a clock was wrong, and rows count as newer than "
            "they are"
        ]
        * 2
    )


def test_the_newest_row_of_a_pair_is_kept(run: Path) -> None:
    """A pair whose device was lost is measured again; the new row may be in a file that sorts first."""
    folder = measurements_folder(run)
    write_part(folder / "part-0.parquet", [make_row(1, latency_ms=77.0, time="2027-01-01T00:00:00+00:00")])
    frame = load_records(run)
    assert not frame.duplicated(IDENTITY).any()
    assert sorted(frame["latency_ms"]) == [0.5, 2.5, 77.0]
    journal = Journal(folder, "living")
    journal.append(make_row(2, latency_ms=88.0, time="2027-01-01T00:00:00+00:00"))
    assert sorted(load_records(run)["latency_ms"]) == [0.5, 77.0, 88.0]


def test_rounds_and_runs_are_kept_apart(run: Path) -> None:
    write_part(run / "measurements" / "part-b.parquet", [make_row(0, round=1), make_row(0, run="other")])
    assert len(load_records(run)) == 5


def test_rows_without_a_run_are_all_kept(tmp_path: Path) -> None:
    write_part(tmp_path / "a.parquet", [make_row(0, run=None), make_row(0, run=None, latency_ms=3.0)])
    assert len(load_records(tmp_path)) == 2


def test_kernels_of_two_implementations_are_not_mixed(tmp_path: Path) -> None:
    for name, implementation in (("a", "native"), ("b", "ck_tile"), ("c", None)):
        (tmp_path / name).mkdir()
        write_part(tmp_path / name / "part.parquet", [make_row(0, run=name, implementation=implementation)])
    with pytest.raises(RecordError, match="of several implementations, ck_tile and native, whose kernels"):
        load_records([tmp_path / "a", tmp_path / "b"])
    # An older record has no value.
    assert len(load_records([tmp_path / "b", tmp_path / "c"])) == 2


def test_no_paths_give_an_empty_table_with_all_columns() -> None:
    frame = load_records([])
    assert len(frame) == 0
    assert list(frame.columns) == arrow_schema().names


def test_files_of_other_versions_are_read_with_the_columns_of_this_one(run: Path) -> None:
    part = measurements_folder(run) / "part-a.parquet"
    table = pq.read_table(part)
    at = table.column_names.index("samples")
    pq.write_table(table.set_column(at, "samples", table.column("samples").cast(pa.int32())), part)
    assert load_records(run)["samples"].tolist() == [11, 11, 11]
    pq.write_table(table.append_column("energy_j", pa.array([1.0] * 3)), part)
    assert list(load_records(run).columns) == arrow_schema().names
    part = measurements_folder(run) / "part-a.parquet"
    pq.write_table(pq.read_table(part).drop_columns(["binary_bytes", "seed", "spread"]), part)
    frame = load_records(run)
    assert frame["seed"].isna().all()
    assert frame["spread"].isna().all()
    assert list(frame.columns) == arrow_schema().names


def break_file(part: Path, how: str) -> None:
    table = pq.read_table(part)
    if how == "junk":
        part.write_bytes(b"PAR1" + bytes(range(256)) * 9)
    elif how == "empty":
        part.write_bytes(b"")
    elif how == "cut":
        part.write_bytes(part.read_bytes()[:-100])
    elif how == "foreign":
        pq.write_table(pa.table({"shape": ["1x2"], "ms": [0.5]}), part)
    elif how == "type":
        at = table.column_names.index("latency_ms")
        pq.write_table(table.set_column(at, "latency_ms", pa.array(["fast"] * 3)), part)
    elif how == "doubled":
        pq.write_table(table.append_column("status", table.column("status")), part)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("junk", "part-a.parquet is not a readable parquet file: "),
        ("empty", "part-a.parquet is not a readable parquet file: "),
        ("cut", "part-a.parquet is not a readable parquet file: "),
        (
            "foreign",
            "part-a.parquet is not a file of records: it lacks the column 'kernel'; "
            "`tile-oracle runs import`",
        ),
        ("type", "part-a.parquet: column 'latency_ms' holds string, not double"),
        ("doubled", "part-a.parquet cannot be read: it has more than one column 'status'"),
    ],
)
def test_a_file_without_records_is_refused_in_one_line(how: str, message: str, run: Path) -> None:
    break_file(measurements_folder(run) / "part-a.parquet", how)
    with pytest.raises(RecordError) as caught:
        load_records(run)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "no records at .*nowhere: give a run's folder, a folder of parts or a parquet file"),
        ("x" * 5000, "no records at .*: File name too long"),
        ("a\0b", "no records at "),
        ("empty", r"no records in .*empty: it holds no parquet part \(did the run measure anything\?\)"),
    ],
)
def test_a_path_without_records_is_refused(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordError, match=message):
        load_records(tmp_path / name)


def test_a_folder_of_runs_is_answered_with_one_of_them(run: Path) -> None:
    with pytest.raises(RecordError, match=rf"no records in \S+ itself, but it holds a run: give {run}$"):
        load_records(run.parent)


def test_a_journal_with_a_row_that_is_none_is_said(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "living")
    journal.append(make_row(0) | {"samples": "many"})
    with pytest.raises(RecordError, match="does not fit the record schema"):
        load_records(tmp_path)


def test_records_without_a_later_field_of_kernels_are_read(run: Path) -> None:
    part = measurements_folder(run) / "part-a.parquet"
    pq.write_table(pq.ParquetFile(part).read().drop_columns(["specialization"]), part)
    assert load_records(run)["specialization"].isna().all()


def test_compact_records_keep_what_repeats_once_and_are_written_as_they_were(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = dataset.load_records(run, compact=True)
    for name in ("device", "flags", "toolchain", "source_hash", "pipeline", "tile_m", "K"):
        assert isinstance(frame[name].dtype, pd.CategoricalDtype), name
        assert list(frame[name].cat.categories) == sorted(set(frame[name].dropna())), name
    # Also by other programs, which get texts and integers.
    write_rows(frame, tmp_path / "some" / "part-x.parquet")
    pd.testing.assert_frame_equal(load_records(tmp_path / "some"), dataset.load_records(run))
    assert pq.read_schema(tmp_path / "some" / "part-x.parquet").equals(arrow_schema())
    monkeypatch.setattr("tile_oracle.record.dataset_file._ROWS_AT_ONCE", 2)
    frame = dataset.load_records(run, compact=True)
    write_rows(frame, run / "copy.parquet")
    assert pq.ParquetFile(run / "copy.parquet").num_row_groups == 2
    pd.testing.assert_frame_equal(load_records(run / "copy.parquet"), load_records(run))


# Finding the kernels that a library's checkout does not build, from records.

ROWS = [
    ("no_code", "unsupported", "ck_tile: it has no GemmPipelineAgBgCrCompV5", "ck_tile"),
    ("no_code", "unsupported", "ck_tile: it has no GemmPipelineAgBgCrCompV5", "ck_tile"),
    ("does_not_compile", "build_error", "static assertion failed", "ck_tile"),
    ("refuses_one_problem", "unsupported", "CK Tile's IsSupportedArgument says no", "ck_tile"),
    ("refuses_one_problem", "ok", "", "ck_tile"),
    ("compiled_once", "build_error", "out of time", "ck_tile"),
    ("compiled_once", "ok", None, "ck_tile"),
    ("own", "build_error", "", "native"),
    ("own_of_old", "unsupported", "ck_tile: ", None),
]


def test_only_kernels_without_code_in_a_library_are_not_built() -> None:
    records = pd.DataFrame(ROWS, columns=["kernel", "status", "detail", "implementation"])
    assert not_built(records) == {"no_code", "does_not_compile"}
    assert not_built(records[records["implementation"] == "native"]) == frozenset()
    assert not_built(records.drop(columns=["implementation"])) == frozenset()


# Copies of a measured kernel in records.


def test_a_copy_names_the_kernel_that_was_measured() -> None:
    rows = pd.DataFrame(
        {
            "kernel": ["a", "b", "c", "a"],
            "detail": [None, twin_detail("a", ""), twin_detail("a", "slow"), "signal 9"],
        },
        index=[3, 1, 7, 8],
    )
    assert measured_kernels(rows).to_dict() == {3: "a", 1: "a", 7: "a", 8: "a"}
    assert is_measured(rows).to_dict() == {3: True, 1: False, 7: False, 8: True}
    assert measured_kernels(rows[["kernel"]]).tolist() == ["a", "b", "c", "a"]
    assert is_measured(rows[["kernel"]]).all()
    empty = pd.DataFrame({"kernel": pd.Series(dtype=object), "detail": pd.Series(dtype=object)})
    assert measured_kernels(empty).tolist() == is_measured(empty).tolist() == []
