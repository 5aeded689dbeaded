"""Atomic file writes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tile_oracle.files.atomic_file import write_atomically


def test_the_file_holds_the_data_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for data in (b"one", b"", b"three" * 100_000):
        write_atomically(path, data)
        assert path.read_bytes() == data
        assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, b"before")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"after")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_the_mode_follows_the_umask(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    write_atomically(tmp_path / "written", b"")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "written")]
    assert modes[0] == modes[1]


def test_a_long_name(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    write_atomically(path, b"x")
    assert path.read_bytes() == b"x"


def test_leftovers_of_a_killed_writer_are_removed_by_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    # Killed with the file aside written and not renamed.
    script = (
        "import os, pathlib, signal, sys; from tile_oracle.files.atomic_file import write_atomically; "
        "pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL); "
        "write_atomically(pathlib.Path(sys.argv[1]), b'lost')"
    )
    subprocess.run([sys.executable, "-c", script, path], check=False)
    (leftover,) = tmp_path.iterdir()
    assert leftover.name.startswith(".a.json.")
    of_living = tmp_path / f".a.json.{os.getpid()}.0123abcd.tmp"
    of_another = tmp_path / ".b.json.99999999.0123abcd.tmp"
    of_living.touch()
    of_another.touch()
    write_atomically(path, b"kept")
    assert set(tmp_path.iterdir()) == {path, of_living, of_another}
    assert path.read_bytes() == b"kept"
