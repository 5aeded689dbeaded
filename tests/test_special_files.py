"""A FIFO in place of a file is refused: a reader that waits for its writer never ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tile_oracle.commands.open_registry import kernels_in_file
from tile_oracle.errors import HarnessError, RecordError
from tile_oracle.files.sealed_json import read_object
from tile_oracle.problem import Kind
from tile_oracle.record.dataset_file import digest_of
from tile_oracle.record.journal import left_unsealed, read_journal, seal_abandoned, set_damaged_aside
from tile_oracle.record.run import purpose_of
from tile_oracle.record.sealed_parquet import read_table
from tile_oracle.training.adapt import _predictions

SECONDS = 20


class Waited(BaseException):
    """The reader waited. No handler of errors takes it for one."""


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """Ends a test that waits, instead of never."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise Waited

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize(
    "read", [read_table, read_journal, digest_of, partial(read_object, error=RecordError), _predictions]
)
def test_readers_refuse_it(fifo: Path, read: Callable[[Path], Any]) -> None:
    with pytest.raises(HarnessError, match=r"fifo cannot be read|cannot read .*fifo"):
        read(fifo)


def test_in_place_of_a_run_s_manifest(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.json")
    with pytest.raises(RecordError, match=r"run.json cannot be read: it is a FIFO"):
        purpose_of(tmp_path)


def test_in_place_of_a_journal_or_a_part(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = tmp_path / ".journal-main-00000.jsonl"
    os.mkfifo(journal)
    assert seal_abandoned(tmp_path) == 0
    assert "the rows are still in it" in caplog.messages[0]
    assert left_unsealed(tmp_path) == [journal]
    journal.rename(tmp_path / "part-main-00000.parquet")
    with pytest.raises(RecordError, match="it is a FIFO"):
        set_damaged_aside(tmp_path)


def test_in_place_of_a_list_of_kernels(tmp_path: Path, fifo: Path) -> None:
    with pytest.raises(HarnessError, match="it is a FIFO"):
        kernels_in_file(str(fifo), Kind.of("gemm", dtype="bf16", layout="rcr"))
