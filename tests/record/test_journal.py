"""The journal: appended rows survive any death, and become a part exactly once."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.processes import run_python
from tests.record.made_rows import make_row
from tile_oracle.errors import RecordError
from tile_oracle.record import journal as journal_module
from tile_oracle.record.dataset import IDENTITY, load_records
from tile_oracle.record.journal import (
    JOURNAL_GLOB,
    PART_GLOB,
    Journal,
    decode_lines,
    encode_line,
    forget_lost,
    left_unsealed,
    read_journal,
    seal_abandoned,
    write_part,
)
from tile_oracle.record.schema import arrow_schema


def die(journal: Journal) -> Path:
    """Leaves the file without its lock, as after the owner's death."""
    assert journal._fd is not None
    assert journal._path is not None
    journal._flusher.let_go()  # a flush in progress would keep the lock
    os.close(journal._fd)
    return journal._path


def test_rows_become_one_part_with_the_schema_that_pandas_reads(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "w")
    for n in range(5):
        journal.append(make_row(n))
    assert not list(tmp_path.glob(PART_GLOB))
    journal.seal()
    assert [path.name for path in tmp_path.iterdir()] == ["part-w-00000.parquet"]
    assert pq.read_schema(tmp_path / "part-w-00000.parquet").equals(arrow_schema())
    table = pd.read_parquet(tmp_path)
    assert table["latency_ms"].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert table["time"].dt.tz is not None
    assert table["time"].iloc[1] == pd.Timestamp("2026-01-02T03:04:06Z")
    assert list(table.columns) == arrow_schema().names


def test_unknown_values_are_null(tmp_path: Path) -> None:
    write_part(
        tmp_path / "part-a.parquet", [make_row(0, status="crash", latency_ms=None, tflops=None), make_row(1)]
    )
    table = pq.read_table(tmp_path / "part-a.parquet").to_pylist()
    assert [row["latency_ms"] for row in table] == [None, 1.5]
    assert table[0]["toolchain"] is None  # not in the row at all
    assert table[0]["detail"] == ""
    with pytest.raises(RecordError, match="does not fit the record schema"):
        write_part(tmp_path / "part-b.parquet", [make_row(0, samples="many")])
    with pytest.raises(RecordError, match="no record schema for operation 'sort'"):
        write_part(tmp_path / "part-b.parquet", [make_row(0, op="sort")])
    assert [path.name for path in tmp_path.iterdir()] == ["part-a.parquet"]


def test_a_long_journal_is_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_SEAL_ROWS", 3)
    journal = Journal(tmp_path, "w")
    for n in range(7):
        journal.append(make_row(n))
    assert len(list(tmp_path.glob(PART_GLOB))) == 2
    journal.seal()
    journal.seal()  # nothing new: no empty part
    assert len(list(tmp_path.glob(PART_GLOB))) == 3
    assert len(pd.read_parquet(tmp_path)) == 7


def test_an_old_journal_is_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_SEAL_SECONDS", -1.0)
    Journal(tmp_path, "w").append(make_row())
    assert len(pd.read_parquet(tmp_path)) == 1


# ---- journals of dead processes -----------------------------------------------------------------------


@pytest.mark.parametrize("torn", [b"", b'{"op":"grouped_conv","prob', b"\n\n", b"\xff\xfe"])
def test_a_dead_process_journal_becomes_a_part_without_its_torn_line(torn: bytes, tmp_path: Path) -> None:
    journal = Journal(tmp_path, "dead")
    for n in range(3):
        journal.append(make_row(n))
    with die(journal).open("ab") as file:
        file.write(torn)
    assert seal_abandoned(tmp_path) == 1
    assert seal_abandoned(tmp_path) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["part-dead-00000.parquet"]
    assert len(pd.read_parquet(tmp_path)) == 3


MISFIT = encode_line({"op": "grouped_conv", "problem": "p", "kernel": "k", "status": "ok", "samples": "many"})


@pytest.mark.parametrize(
    "damage", [b"null", b"17", b"{}", b'{"op":"grouped_conv","prob', b"0" * 9, MISFIT.rstrip(b"\n")]
)
def test_only_a_damaged_line_is_lost_and_it_is_set_aside(
    damage: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path, "dead")
    journal.append(make_row(0))
    assert journal._fd is not None
    os.write(journal._fd, damage + b"\n")
    journal.append(make_row(1))
    die(journal)
    assert seal_abandoned(tmp_path) == 1
    assert sorted(pd.read_parquet(tmp_path)["latency_ms"]) == [0.5, 1.5]
    (kept,) = tmp_path.glob("_damaged-*")
    assert kept.read_bytes().rstrip(b"\n").endswith(damage)
    (line,) = caplog.messages
    assert ".journal-dead-00000.jsonl had 1 damaged line, set aside as _damaged-dead-00000.jsonl" in line


def test_every_flipped_bit_in_a_journal_costs_at_most_one_row(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "dead")
    rows = [make_row(n) for n in range(3)]
    for row in rows:
        journal.append(row)
    path = die(journal)
    content = path.read_bytes()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        lines = decode_lines(bytes(damaged))
        assert all(row in rows for row in lines.rows)
        assert len(lines.rows) >= 2
        assert lines.rows == tuple(rows) or lines.damaged or lines.torn


@settings(max_examples=30)
@given(cut=st.integers(0, 2000))
def test_a_truncated_journal_gives_its_complete_lines(cut: int, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("cut")
    lines = [encode_line({"n": n, "text": "x" * n}) for n in range(40)]
    path = folder / ".journal-a-00000.jsonl"
    path.write_bytes(b"".join(lines)[:cut])
    whole = 0
    while sum(map(len, lines[: whole + 1])) <= cut and whole < len(lines):
        whole += 1
    found = read_journal(path)
    assert [row["n"] for row in found.rows] == list(range(whole))
    assert found.torn == b"".join(lines)[:cut][sum(map(len, lines[:whole])) :]


def test_an_empty_journal_of_a_dead_process_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".journal-dead-00000.jsonl").touch()
    assert seal_abandoned(tmp_path) == 1
    assert not list(tmp_path.iterdir())


def test_sealing_again_after_a_death_duplicates_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "dead")
    journal.append(make_row(0))
    path = die(journal)
    content = path.read_bytes()
    seal_abandoned(tmp_path)
    path.write_bytes(content)
    assert len(load_records(tmp_path)) == 1
    assert len(pd.read_parquet(tmp_path)) == 1
    assert not list(tmp_path.glob(JOURNAL_GLOB))
    path.write_bytes(content + encode_line(make_row(1)))
    seal_abandoned(tmp_path)
    assert pd.read_parquet(tmp_path)["latency_ms"].tolist() == [0.5, 1.5]


def test_a_live_process_journal_is_kept_and_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "living")
    journal.append(make_row(0))
    assert seal_abandoned(tmp_path) == 0
    assert len(load_records(tmp_path)) == 1
    journal.append(make_row(1))
    assert len(load_records(tmp_path)) == 2
    assert left_unsealed(tmp_path) == []
    journal.seal()
    assert len(pd.read_parquet(tmp_path)) == 2
    journal.append(make_row(2))
    path = die(journal)
    assert left_unsealed(tmp_path) == [path]


def test_a_journal_removed_before_its_lock_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between creating the file and locking it, another process may find it empty and remove it."""
    real_flock, raced = fcntl.flock, []

    def flock(fd: int, how: int) -> None:
        if not raced and how == fcntl.LOCK_EX:
            raced.append(fd)
            assert seal_abandoned(tmp_path) == 1
        real_flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    journal = Journal(tmp_path, "w")
    journal.append(make_row(0))
    assert raced
    journal.seal()
    assert len(pd.read_parquet(tmp_path)) == 1


@pytest.mark.slow
def test_concurrent_sealers_make_one_part_per_journal(tmp_path: Path) -> None:
    for writer in range(4):
        journal = Journal(tmp_path, f"w{writer}")
        for n in range(6):
            journal.append(make_row(6 * writer + n))
        die(journal)
    program = "import sys; from pathlib import Path; from tile_oracle.record.journal import seal_abandoned\n"
    program += "sys.stdin.readline(); print(seal_abandoned(Path(sys.argv[1])))"
    sealers = [
        subprocess.Popen(
            [sys.executable, "-c", program, tmp_path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for sealer in sealers:
        sealer.stdin.write("\n")
        sealer.stdin.flush()
    sealed = [int(sealer.communicate()[0]) for sealer in sealers]
    assert sum(sealed) == 4
    table = pd.read_parquet(tmp_path)
    assert len(table) == 24
    assert not table.duplicated(IDENTITY).any()
    assert {path.name.split("-")[0] for path in tmp_path.iterdir()} == {"part"}


# ---- disk errors --------------------------------------------------------------------------------------

FULL_DISK = """
import json, resource, sys
from pathlib import Path
from tile_oracle.errors import RecordError
from tile_oracle.record.journal import Journal

row = json.loads(sys.stdin.read())
journal = Journal(Path(sys.argv[1]), "w")
written, messages = 0, set()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
for _ in range(20):
    try:
        journal.append(row | {"check_points": written})
        written += 1
    except RecordError as error:
        messages.add(str(error))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.append(row | {"check_points": written})
written += 1
print(json.dumps([written, sorted(messages)]), flush=True)
"""


@pytest.mark.parametrize("limit_bytes", [5000, 6100, 7777])
def test_a_full_disk_gives_one_line_and_loses_no_acknowledged_row(limit_bytes: int, tmp_path: Path) -> None:
    """A size limit tears a row like a full disk; then there is room again, and recording continues."""
    done = run_python("-c", FULL_DISK, tmp_path, str(limit_bytes), input=json.dumps(make_row(0)), check=True)
    written, messages = json.loads(done.stdout)
    assert messages
    for message in messages:
        assert message.startswith(f"cannot record to {tmp_path}: ")
        assert message.endswith("free space and --resume")
    assert seal_abandoned(tmp_path) == 1
    assert pd.read_parquet(tmp_path)["check_points"].tolist() == list(range(written))


def test_a_torn_row_that_stays_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    journal, write = Journal(tmp_path, "w"), os.write
    journal.append(make_row(0))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, line: write(fd, line[:40]))
        patch.setattr(os, "ftruncate", refuse)
        with pytest.raises(RecordError, match="the disk is full; free space and --resume"):
            journal.append(make_row(1))
    journal.append(make_row(2))
    journal.append(make_row(3))
    assert load_records(tmp_path)["latency_ms"].tolist() == [0.5, 2.5, 3.5]
    assert "has damaged lines (1): they are left out" in caplog.text
    assert die(journal).read_bytes().count(b"\n") == 4, "none of them is empty"


def test_rows_are_flushed_to_the_disk_and_its_errors_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, flushed = threading.Semaphore(0), threading.Semaphore(0)

    def refuse(fd: int) -> None:
        flushed.release()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(journal_module, "_SYNC_SECONDS", 0.0)
    monkeypatch.setattr(journal_module, "sync_folder", lambda folder: named.release())
    journal = Journal(tmp_path, "w")
    journal.append(make_row(0))
    assert named.acquire(timeout=300), "its name is on the disk, too"
    monkeypatch.setattr(os, "fsync", refuse)
    journal.append(make_row(1))
    assert flushed.acquire(timeout=300)
    with journal._flusher._at_disk:  # until it has taken note
        pass
    with pytest.raises(RecordError, match=r"flushing to disk failed \(Input/output error\); the rows are in"):
        journal.append(make_row(2))
    assert len(decode_lines(die(journal).read_bytes()).rows) == 3


def test_an_unwritable_part_leaves_the_journal_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    journal = Journal(tmp_path, "w")
    journal.append(make_row(0))
    with monkeypatch.context() as patch:
        patch.setattr(pq, "ParquetWriter", refuse)
        with pytest.raises(RecordError, match="No space left on device"):
            journal.seal()
        die(journal)
        assert seal_abandoned(tmp_path) == 0
        assert len(load_records(tmp_path)) == 1
    assert len(load_records(tmp_path)) == 1
    assert not list(tmp_path.glob(JOURNAL_GLOB))
    assert len(pd.read_parquet(tmp_path)) == 1


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match=r"cannot record to .*/file/run: .*; choose another --report-dir"):
        Journal(tmp_path / "file" / "run", "w")


# ---- lost devices -------------------------------------------------------------------------------------


def test_only_rows_of_a_lost_device_are_removed(tmp_path: Path) -> None:
    write_part(tmp_path / "part-a.parquet", [make_row(0), make_row(1, status="device_lost")])
    write_part(tmp_path / "part-b.parquet", [make_row(2)])
    write_part(tmp_path / "part-c.parquet", [make_row(3, status="device_lost")])
    untouched = (tmp_path / "part-b.parquet").stat()
    assert forget_lost(tmp_path) == 2
    assert forget_lost(tmp_path) == 0
    assert pd.read_parquet(tmp_path)["status"].tolist() == ["ok", "ok"]
    assert (tmp_path / "part-b.parquet").stat().st_ino == untouched.st_ino
    assert pq.read_schema(tmp_path / "part-a.parquet").equals(arrow_schema())
    assert len(list(tmp_path.iterdir())) == 3
    assert forget_lost(tmp_path / "nowhere") == 0
    (tmp_path / "part-d.parquet").write_bytes(b"junk")
    with pytest.raises(RecordError, match=r"part-d.parquet cannot be rewritten: .*; start a new run"):
        forget_lost(tmp_path)
