"""Files named by a user: regular files of bounded size are read, others are refused at once."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tile_oracle.compiling.disassembly import read_assembly
from tile_oracle.errors import HarnessError
from tile_oracle.files.user_file import read_bytes
from tile_oracle.pickers.of_records import read_picks


def test_a_regular_file_is_read_by_its_name_and_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"text")
    (tmp_path / "link").symlink_to("a")
    assert read_bytes(tmp_path / "a", 4) == read_bytes(tmp_path / "link", 100) == b"text"


def test_a_fifo_without_a_writer_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="it is a FIFO, not a regular file"):
        read_bytes(tmp_path / "fifo", 10)


@pytest.mark.parametrize(("path", "what"), [("/dev/zero", "a character device"), ("/tmp", "a folder")])
def test_devices_and_folders_are_refused(path: str, what: str) -> None:
    with pytest.raises(OSError, match=f"it is {what}"):
        read_bytes(path, 10)


def test_a_socket_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/s")
        with pytest.raises(OSError, match=r"."):
            read_bytes(f"{folder}/s", 10)


def test_a_file_over_the_limit_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match="it is larger than 1 MiB"):
        read_bytes(path, 1 << 20)


def test_a_missing_file_stays_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none", 10)


@pytest.mark.parametrize(
    "read", [lambda path: read_picks(path, []), read_assembly], ids=["picks", "assembly"]
)
def test_readers_of_named_files_refuse_a_fifo(read: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(HarnessError, match=r"FIFO"):
        read(tmp_path / "fifo")
