"""A sample of the campaign of damaged files of users; and its judge."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tools.faults.importable import KINDS, FileKind
from tools.faults.imports import read_apart, run


@pytest.mark.slow
def test_every_damaged_file_of_a_sample_is_read_or_refused_in_one_line() -> None:
    outcome = run(count=2 * len(KINDS), seed=7)
    assert not outcome.failures
    assert outcome.counts["refused"] > len(KINDS) / 2


def _dies(path: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _leaks_an_error(path: Path) -> None:
    raise ValueError("not for users")


def _takes_memory(path: Path) -> None:
    bytearray(4 << 30)


def _says_much(path: Path) -> int:
    os.write(2, f"{path.name} is damaged\nand more\n".encode())
    return 2


def _names_no_file(path: Path) -> int:
    os.write(2, b"something is damaged\n")
    return 2


@pytest.mark.parametrize(
    ("read", "outcome"),
    [
        (_dies, "died"),
        (_leaks_an_error, "broken"),
        (_takes_memory, "large"),
        (_says_much, "broken"),
        (_names_no_file, "broken"),
    ],
)
def test_what_breaks_the_promise_is_seen(read, outcome: str) -> None:
    assert read_apart(FileKind("made up", "a.csv", lambda: b"", read), b"", "a.csv")[0] == outcome


BY_NAME = {kind.name: kind for kind in KINDS}


@pytest.mark.parametrize("name", ["table in parquet", "records"])
def test_a_file_s_name_need_not_be_text(name: str) -> None:
    kind = BY_NAME[name]
    assert read_apart(kind, kind.sample(), os.fsdecode(b"\xff") + kind.file) == ("read", "")


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("picks", b",64,32,", b",[[64]],32,", "a column holds an invalid number"),
        ("library's offers", b"12.8", b"\xff\xfe", "is no file of a library's offers"),
        ("kernel names", b"grouped", b"\xff\xfe", "cannot read"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(name: str, old: bytes, new: bytes, said: str) -> None:
    kind = BY_NAME[name]
    data = kind.sample().replace(old, new)
    assert data != kind.sample()
    outcome, line = read_apart(kind, data, kind.file)
    assert outcome == "refused"
    assert said in line


def test_a_parser_s_message_of_several_lines_is_cut_to_one() -> None:
    kind = BY_NAME["problems of records"]
    data = bytearray(kind.sample())
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data[begin : begin + 8] = b"\x0e" * 8
    outcome, line = read_apart(kind, bytes(data), kind.file)
    assert outcome == "refused"
    assert "Couldn't deserialize thrift" in line
