"""Merging: the result depends only on the set of measurements, and none is lost."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.record.made_rows import Row, make_row, table_of
from tile_oracle.cli import main
from tile_oracle.errors import RecordError
from tile_oracle.record.dataset import load_records, measurements_folder, read_rows
from tile_oracle.record.dataset_file import dataset_bytes, write_dataset
from tile_oracle.record.journal import Journal, write_part
from tile_oracle.record.merge import merge_records

START = datetime(2026, 1, 2, tzinfo=UTC)

DRAWN = st.fixed_dictionaries(
    {
        "n": st.integers(0, 5),
        "run": st.sampled_from(["a", "b", None]),
        "round": st.sampled_from([0, 1]),
        "second": st.sampled_from([0, 1, 2, None]),
        "status": st.sampled_from(["ok", "ok", "device_lost", "wrong"]),
        "device": st.sampled_from(["X", "Y", None]),
        "latency_ms": st.sampled_from([0.5, 0.25]),
        "toolchain": st.sampled_from([None, "zig"]),
    }
)


def as_row(drawn: Row) -> Row:
    timed = drawn["status"] in ("ok", "noisy")
    second = drawn["second"]
    row = make_row(drawn["n"], latency_ms=drawn["latency_ms"])
    row |= {name: drawn[name] for name in ("run", "round", "status", "device", "toolchain")}
    if not timed:
        row |= {"latency_ms": None, "tflops": None}
    row["time"] = None if second is None else (START + timedelta(seconds=second)).isoformat()
    return row


def dealt(drawn: list[Row], places: list[int]) -> list[pd.DataFrame]:
    """Rows distributed over tables, some of them in several."""
    tables: dict[int, list[Row]] = {}
    for row, place in zip(drawn, places, strict=False):
        tables.setdefault(place, []).append(as_row(row))
        if place % 3 == 0:
            tables.setdefault(place + 1, []).append(as_row(row))
    return [table_of(rows) for rows in tables.values()]


ROWS = st.lists(DRAWN, min_size=1, max_size=14)
PLACES = st.lists(st.integers(0, 5), min_size=14, max_size=14)


@pytest.mark.slow
@settings(max_examples=12)
@given(ROWS, PLACES)
def test_nothing_is_lost_or_duplicated(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[Row], places: list[int]
) -> None:
    drawn = [row | {"status": "noisy"} if row["status"] == "device_lost" else row for row in drawn]
    merged, summary = merge_records(dealt(drawn, places))
    path = tmp_path_factory.mktemp("merged") / "m.parquet"
    write_dataset(merged, path)
    # The reader, which keeps one row of equal run, problem, kernel and round, keeps all of these.
    assert len(load_records(path)) == len(merged) == summary.kept
    parts = (summary.kept, summary.equal, summary.differing, summary.lost)
    assert sum(parts) == summary.read

    number = {(row["problem"], row["kernel"]): n for n in range(6) for row in [make_row(n)]}
    seconds = {pd.Timestamp(START + timedelta(seconds=second)): second for second in range(3)}
    found = {
        (None if pd.isna(run) else run.partition("~")[0], number[problem, kernel], round_, seconds[time])
        for run, problem, kernel, round_, time in zip(
            merged["run"], merged["problem"], merged["kernel"], merged["round"], merged["time"], strict=True
        )
        if not pd.isna(time)
    }
    timed = [row for row in drawn if row["second"] is not None]
    assert found == {(row["run"], row["n"], row["round"], row["second"]) for row in timed}


# ---- the rules, one by one --------------------------------------------------------------------------


def test_of_a_measurement_given_twice_the_most_complete_copy_is_kept() -> None:
    rows = [make_row(n) for n in range(4)]
    merged, summary = merge_records([table_of(rows), table_of(rows[1:3])])
    assert (len(merged), summary.equal, summary.differing) == (4, 2, 0)
    old, new = make_row(0, device=None, toolchain=None), make_row(0, device="X", toolchain="zig")
    merged, summary = merge_records([table_of([old]), table_of([new]), table_of([old])])
    assert merged["device"].tolist() == ["X"]
    assert (summary.equal, summary.differing) == (1, 1)


def test_a_device_lost_row_is_dropped_when_the_pair_was_measured_later() -> None:
    lost = make_row(0, status="device_lost", latency_ms=None, tflops=None)
    anew = make_row(0, time=(START + timedelta(days=3)).isoformat())
    of_another_run = lost | {"run": "other"}
    merged, summary = merge_records([table_of([anew]), table_of([lost, of_another_run])])
    assert sorted(zip(merged["run"], merged["status"], strict=True)) == [
        ("other", "device_lost"),
        ("r", "ok"),
    ]
    assert summary.lost == 1


def test_two_runs_with_one_name_are_both_kept(tmp_path: Path) -> None:
    here, there = make_row(0, device="X"), make_row(0, device="X", latency_ms=0.75)
    there["time"] = (START + timedelta(days=1)).isoformat()
    merged, summary = merge_records([table_of([there]), table_of([here])])
    assert merged["run"].tolist() == ["r~2", "r"] or merged["run"].tolist() == ["r", "r~2"]
    assert summary.renamed == 1
    assert summary.repeated_pairs == 1
    assert summary.spread == pytest.approx(0.5)
    write_dataset(merged, tmp_path / "m.parquet")
    assert sorted(load_records(tmp_path / "m.parquet")["latency_ms"]) == [0.5, 0.75]


def test_devices_toolchains_and_binaries_that_differ_are_kept_and_counted() -> None:
    rows = [
        make_row(0, device="X", toolchain="zig 1", source_hash="aa"),
        make_row(0, run="s", device="Y", toolchain="zig 2", source_hash="bb"),
        make_row(1, run="s", device="Y", toolchain="zig 2", source_hash="bb", status="wrong", tflops=None),
        make_row(1, run="t", device="Y", toolchain="zig 2", source_hash="bb"),
        make_row(2, run="t", device="Y", toolchain="zig 2", source_hash="bb"),
    ]
    merged, summary = merge_records([table_of(rows[::-1])])
    assert merged.index.tolist() == [0, 1, 2, 3, 4]
    alike = [make_row(0, run=None, time=None, latency_ms=latency_ms) for latency_ms in (0.75, 0.5)]
    assert merge_records([table_of([make_row(1), *alike])])[0].index.tolist() == [0, 1, 2]
    assert summary.rows_of["devices"] == {"X": 1, "Y": 4}
    assert summary.binaries == 1
    assert (summary.repeated_pairs, summary.disagreeing) == (2, 1)
    assert summary.lines()[:6] == [
        "5 rows kept of 5: 3 pairs of 1 problem",
        "  2 pairs measured in several runs, all kept; times differ by 0.0 % (median)",
        "  1 of them ok in one run and failed in another: they count as failed",
        "  several devices, all kept:",
        "            4 rows  Y",
        "            1 rows  X",
    ]


def test_the_same_rows_and_the_same_words_on_them_give_the_same_bytes() -> None:
    rows = [make_row(0), make_row(1), make_row(0, round=1)]
    first = dataset_bytes(table_of(rows), {"a": 1, "b": 2})
    assert dataset_bytes(table_of(rows[::-1]), {"b": 2, "a": 1}) == first
    column = pq.ParquetFile(io.BytesIO(first)).metadata.row_group(0).column(0)
    assert column.statistics is None, "they are nearly a half of a small file"
    at = column.data_page_offset + column.total_compressed_size - 1
    broken = first[:at] + bytes([first[at] ^ 1]) + first[at + 1 :]
    with pytest.raises(OSError, match="CRC checksum"):
        pq.read_table(io.BytesIO(broken), page_checksum_verification=True)


def test_invalid_records_are_refused() -> None:
    with pytest.raises(RecordError, match="nothing to merge"):
        merge_records([])
    mixed = [table_of([make_row(0)]), table_of([make_row(0)]).assign(op="gemm")]
    with pytest.raises(RecordError, match="several operations"):
        merge_records(mixed)


# ---- the command ------------------------------------------------------------------------------------


def test_runs_parts_files_and_journals_of_dead_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = measurements_folder(tmp_path / "run")
    run.mkdir(parents=True)
    write_part(run / "part-a.parquet", [make_row(0), make_row(1)])
    journal = Journal(run, "killed")
    journal.append(make_row(2))
    out = tmp_path / "all.parquet"
    assert main(["merge", str(tmp_path / "run"), str(run), "-o", str(out)]) == 0
    assert "3 rows kept of 6" in capsys.readouterr().out
    first = out.read_bytes()
    assert main(["merge", str(out), str(tmp_path / "run"), "-o", str(out)]) == 0
    assert out.read_bytes() == first
    assert len(read_rows(out)) == 3
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing", "-o", "out.parquet"], "no records at"),
        (["bad.parquet", "-o", "out.parquet"], "not a readable parquet file"),
        (["run", "-o", "out.csv"], "it is written as .parquet: name it out.parquet"),
    ],
)
def test_bad_input_gives_one_line_and_keeps_the_old_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not")
    (tmp_path / "out.parquet").write_bytes(b"PAR1 as it was")
    measurements_folder(tmp_path / "run").mkdir(parents=True)
    write_part(measurements_folder(tmp_path / "run") / "part-a.parquet", [make_row(0)])
    assert main(["merge", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert (tmp_path / "out.parquet").read_bytes() == b"PAR1 as it was"
