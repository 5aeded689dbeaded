"""Oracle files: which records they take, and what is read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.record.made_rows import make_row, table_of
from tile_oracle.cli import main
from tile_oracle.errors import RecordError
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.problem import problem_from_row
from tile_oracle.record.dataset import load_records
from tile_oracle.record.dataset_file import oracle_bytes, read_about, write_dataset
from tile_oracle.record.final import final_measurements
from tile_oracle.record.merge import oracle_records, records_to_learn_from


def test_a_file_holds_every_column_of_every_row(tmp_path: Path) -> None:
    rows = [
        make_row(3, device="X", detail="é\x1b[31m", latency_ms=1 / 3, vgprs=None),
        make_row(1, device="X", status="wrong", latency_ms=None, tflops=None, spread=None),
        make_row(3, device="X", round=1, samples=2**40),
    ]
    path = tmp_path / "deep" / "o.parquet"
    write_dataset(table_of(rows), path, {"kernel set": "tiny"})
    order = ["problem", "kernel", "round"]
    expected = table_of(rows).sort_values(order, ignore_index=True)
    found = load_records(path).sort_values(order, ignore_index=True)
    pd.testing.assert_frame_equal(found, expected)
    assert read_about(path) == {"kernel set": "tiny"}
    assert pd.read_parquet(path).shape == expected.shape


def test_an_oracle_file_is_smaller_and_keeps_every_other_bit(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    rows = [make_row(n, device="X", busy_ms=2.5, spread=float(draw.random())) for n in range(9)]
    rows += [make_row(9, status="wrong", latency_ms=None, tflops=None, spread=None)]
    exact = table_of(rows)
    flops = exact["problem"].map({row["problem"]: problem_from_row(row).flops for row in rows})
    exact["latency_ms"] = exact["latency_ms"].where(exact["latency_ms"].isna(), draw.random(10) + 0.5)
    exact["tflops"] = flops / (exact["latency_ms"] * 1e9)
    exact["latency_min_ms"] = None
    path, plain = tmp_path / "o.parquet", tmp_path / "plain.parquet"
    path.write_bytes(oracle_bytes(exact, {"kernel set": "tiny"}))
    write_dataset(exact, plain)
    assert not {"tflops", "busy_ms"} & set(pd.read_parquet(path).columns)
    assert path.stat().st_size < plain.stat().st_size
    found, expected = load_records(path), load_records(plain)
    assert found["busy_ms"].isna().all()
    pd.testing.assert_frame_equal(
        found.drop(columns="busy_ms"), expected.drop(columns="busy_ms"), check_exact=True
    )
    assert read_about(path) == {"kernel set": "tiny"}


def test_throughputs_that_cannot_be_recomputed_exactly_are_stored(tmp_path: Path) -> None:
    row = make_row(1)
    rounded = table_of([{**row, "tflops": row["tflops"] * (1 + 1e-9)}])
    path = tmp_path / "o.parquet"
    path.write_bytes(oracle_bytes(rounded))
    assert load_records(path)["tflops"].tolist() == rounded["tflops"].tolist()


def test_one_device_is_chosen_and_the_rest_is_counted() -> None:
    records = table_of([make_row(n, device=name) for n, name in ((0, "X"), (1, "Y"), (4, "Y"), (5, None))])
    with pytest.raises(RecordError, match="are of 3 devices"):
        oracle_records(records)
    with pytest.raises(RecordError, match="no records of the device 'Z'"):
        oracle_records(records, "Z")
    kept, summary = oracle_records(records, "Y", {make_row(1)["problem"]})
    assert kept["kernel"].tolist() == [make_row(1)["kernel"]]
    assert (summary.other_devices, summary.other_problems, summary.pairs) == (2, 1, 1)
    with pytest.raises(RecordError, match="none of the 2 recorded problems is in the set"):
        oracle_records(records, "Y", {"no such problem"})


def test_of_each_kernel_the_newest_binary_counts() -> None:
    old = make_row(0, source_hash="old", status="wrong", latency_ms=None, tflops=None, run="a")
    new = make_row(0, source_hash="new", run="b", time="2026-02-02T00:00:00+00:00")
    refused = make_row(0, source_hash=None, status="unsupported", latency_ms=None, tflops=None, run="c")
    other = make_row(1, source_hash="old", run="a")
    records, summary = oracle_records(table_of([old, new, refused, other]))
    assert summary.older_binaries == 1
    assert sorted(records["run"]) == ["a", "b", "c"]
    oracles = find_oracles(final_measurements(records))
    assert oracles["kernels_ok"].tolist() == [2]


def test_older_binaries_count_where_no_newer_one_was_measured() -> None:
    old, kernel = make_row(0, source_hash="old", run="a"), make_row(0)["kernel"]
    new = make_row(0, source_hash="new", run="b", time="2026-02-02T00:00:00+00:00")
    further = make_row(4, source_hash="old", run="c", kernel=kernel)
    refused = make_row(0, source_hash=None, status="unsupported", latency_ms=None, tflops=None, run="d")
    records = table_of([old, new, further, refused])
    assert sorted(oracle_records(records)[0]["run"]) == ["b", "d"]
    assert sorted(records_to_learn_from(records)["run"]) == ["b", "c", "d"]
    elsewhere = table_of([old, make_row(0, device="Y")])
    with pytest.raises(RecordError, match="are of 2 devices"):
        records_to_learn_from(elsewhere)
    assert records_to_learn_from(elsewhere, "Y")["device"].tolist() == ["Y"]


def test_the_command_and_its_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "m.parquet", tmp_path / "o.parquet"
    write_dataset(table_of([make_row(n, device="X") for n in (0, 5)]), source)
    assert main(["oracle", str(source), "-o", str(out), "--kernel-set", "tiny"]) == 0
    assert "2 records of 2 pairs of 2 problems on X" in capsys.readouterr().out
    assert read_about(out)["kernel set"] == "tiny"
    for arguments, said in (
        (["-o", str(tmp_path / "o.csv")], "it is written as .parquet: name it o.parquet"),
        (["--model", str(tmp_path)], "feature_spec.json"),
        (["-o", str(source / "below" / "o.parquet")], "cannot write"),
    ):
        assert main(["oracle", str(source), *arguments]) == 2
        assert said in capsys.readouterr().err
