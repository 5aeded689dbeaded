"""Runs: names, settings, and resuming only with equal settings; records of sibling processes are seen."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.record.made_rows import make_row
from tile_oracle.errors import RecordError
from tile_oracle.record.journal import Journal, write_part
from tile_oracle.record.run import MANIFEST, Run, RunLog, open_run, purpose_of

PURPOSE = {"problem sets": {"smoke": "abc"}, "target": "cpu", "data seed": 1}


def open_new(reports: Path, name: str | None = None, purpose: Any = PURPOSE, resume: bool = False) -> Run:
    return open_run(reports, purpose, stem="smoke-cpu", name=name, resume=resume)


def age(run: Run, seconds: int) -> None:
    os.utime(run.folder / MANIFEST, (1e9 - seconds, 1e9 - seconds))


def test_a_new_run_is_a_folder_with_its_purpose(tmp_path: Path) -> None:
    run = open_new(tmp_path / "reports")
    assert run.name.startswith("smoke-cpu-2")
    assert not run.resumed
    assert run.measurements == run.folder / "measurements"
    assert json.loads((run.folder / MANIFEST).read_text())["purpose"] == PURPOSE
    assert [path.name for path in run.folder.iterdir()] == [MANIFEST]


def test_two_runs_of_one_second_have_two_folders(tmp_path: Path) -> None:
    assert len({open_new(tmp_path).folder for _ in range(4)}) == 4


def test_resume_takes_the_newest_run_with_the_same_purpose(tmp_path: Path) -> None:
    old, new = open_new(tmp_path, "b"), open_new(tmp_path, "a")
    other = open_new(tmp_path, "c", {**PURPOSE, "data seed": 2})
    age(old, 20)
    age(new, 10)
    age(other, 0)
    found = open_new(tmp_path, resume=True)
    assert (found.folder, found.resumed) == (new.folder, True)
    assert open_new(tmp_path, "b", resume=True).folder == old.folder
    assert not open_new(tmp_path, resume=True, purpose={**PURPOSE, "target": "gfx950"}).resumed


def test_resume_with_nothing_to_resume_begins_a_run(tmp_path: Path) -> None:
    run = open_new(tmp_path / "none", resume=True)
    assert not run.resumed
    assert open_new(tmp_path / "none", "named", resume=True).name == "named"


def test_a_taken_name_and_another_purpose_are_refused(tmp_path: Path) -> None:
    open_new(tmp_path, "mine")
    purpose = {"problem sets": {"smoke": "abc"}, "target": "gfx950", "data seed": 2}
    with pytest.raises(RecordError, match=r"mine cannot be resumed: it was made with another data seed"):
        open_new(tmp_path, "mine", purpose, resume=True)
    with pytest.raises(RecordError, match=r"mine exists already: add --resume .* or choose another"):
        open_new(tmp_path, "mine")


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"purpose": 3}', "[" * 100_000, "\0"])
def test_a_folder_that_is_not_a_run_is_not_resumed(manifest: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / MANIFEST).write_text(manifest)
    with pytest.raises(RecordError, match=r"mine cannot be resumed: it holds no readable run.json; choose"):
        open_new(tmp_path, "mine", resume=True)
    assert purpose_of(tmp_path / "mine") == {}, "its measurements can be read and merged"
    assert not open_new(tmp_path, resume=True).resumed


def test_an_interrupted_new_run_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / f".{MANIFEST}.123.abcd.tmp").write_text('{"purp')
    run = open_new(tmp_path, "mine", resume=True)
    assert not run.resumed
    assert [path.name for path in run.folder.iterdir()] == [MANIFEST]
    assert open_new(tmp_path, "mine", resume=True).resumed


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../up", "a/b", "/etc", ".hidden", "a\n", "a\0", "-x", "é", "x" * 129]
)
def test_a_name_with_special_characters_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="is not a plain name of letters, digits"):
        open_new(tmp_path / "reports", name)
    assert not (tmp_path / "reports").exists()


@given(stem=st.text(max_size=200))
def test_any_stem_makes_a_name_inside_the_folder(stem: str, tmp_path_factory: Any) -> None:
    reports = tmp_path_factory.mktemp("stem")
    run = open_run(reports, PURPOSE, stem=stem, name=None, resume=False)
    assert run.folder.parent == reports
    assert run.name[0].isalnum()
    assert open_run(reports, PURPOSE, stem="", name=run.name, resume=True).resumed


def test_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "reports").touch()
    with pytest.raises(RecordError, match=r"cannot open a run in .*reports: .* or choose another"):
        open_new(tmp_path / "reports")


def test_resuming_seals_old_journals_and_removes_device_lost_rows(tmp_path: Path) -> None:
    run = open_new(tmp_path, "mine")
    run.measurements.mkdir()
    write_part(run.measurements / "part-a.parquet", [make_row(0), make_row(1, status="device_lost")])
    journal = Journal(run.measurements, "dead")
    journal.append(make_row(2))
    journal.append(make_row(3, status="device_lost"))
    assert journal._fd is not None
    os.close(journal._fd)
    open_new(tmp_path, "mine", resume=True)
    table = pd.read_parquet(run.measurements)
    assert sorted(table["latency_ms"]) == [0.5, 2.5]
    assert {path.suffix for path in run.measurements.iterdir()} == {".parquet"}


# ---- what others have recorded ------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return open_new(tmp_path, "mine")


def latencies(log: RunLog, row: dict[str, Any]) -> list[float]:
    return sorted(known["latency_ms"] for known in log.known(row["problem"]))


def test_rows_get_the_runs_name_and_the_time(run: Run) -> None:
    log = RunLog(run, "w")
    row = make_row(0)
    del row["run"], row["time"]
    log.append(row)
    log.close()
    table = pd.read_parquet(run.measurements)
    assert table["run"].tolist() == ["mine"]
    assert abs(table["time"].iloc[0] - pd.Timestamp.now("UTC")) < pd.Timedelta(minutes=5)


def test_a_session_knows_the_rows_of_earlier_ones_sealed_or_not(run: Run) -> None:
    first, second, third = make_row(0), make_row(1), make_row(2)
    assert first["problem"] == second["problem"] == third["problem"]
    sealed, full = RunLog(run, "sealed"), RunLog(run, "disk-full")
    sealed.append(first)
    sealed.close()
    full.append(second)
    now = RunLog(run, "now")
    assert latencies(now, first) == [0.5, 1.5]
    now.append(third)
    now.close()
    assert latencies(now, first) == [0.5, 1.5]


def test_problems_and_rounds_are_distinguished(run: Run) -> None:
    log = RunLog(run, "one")
    for row in (make_row(0), make_row(0, round=1, latency_ms=9.0), make_row(4)):
        log.append(row)
    other = RunLog(run, "two")
    assert latencies(other, make_row(0)) == [0.5, 9.0]
    assert latencies(other, make_row(4)) == [4.5]
    assert other.known("no-such-problem") == []


def test_a_part_that_is_not_parquet_is_reported_and_set_aside(run: Run, tmp_path: Path) -> None:
    run.measurements.mkdir()
    for name in ("_damaged-part-x.parquet", "_damaged-2-part-x.parquet", "_damaged-3-part-x.parquet"):
        (run.measurements / "part-x.parquet").write_text(name)
        with pytest.raises(RecordError, match=r"part-x.parquet is not a readable .*; --resume sets it aside"):
            RunLog(run, "w").known("p")
        open_new(tmp_path, "mine", resume=True)
        assert (run.measurements / name).read_text() == name
