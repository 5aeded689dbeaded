"""Simulates power cuts of a file system while a session records to it, and checks what survives.

Each cut uses its own ext4 file system in an image file, in memory. At a random moment the file system is shut
down as by a power cut (ioctl FS_IOC_SHUTDOWN without a flush of its journal: data that is not on the disk is
lost), the recording process is killed, and a copy of the image is mounted, which replays ext4's journal. Then
the run is resumed. A promise is broken if a row that was acknowledged more than a second before the cut is
lost, if a row has another value or is duplicated, or if the run cannot be resumed. Needs root and loop
devices.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tile_oracle.errors import HarnessError
from tile_oracle.record.dataset import IDENTITY, load_records
from tile_oracle.record.run import open_run
from tools.faults.campaign import Campaign, Outcome, main
from tools.faults.memory_folder import memory_folder
from tools.faults.source_tree import search_path

_IMAGE_BYTES = 64 << 20
_FS_IOC_SHUTDOWN = 0x8004587D
_WITHOUT_LOG = 2
PROMISED_S = 1.0
"""Rows older than this survive: half of the time is for gathering rows, the rest for flushing them."""


class NoFileSystemError(Exception):
    """This machine cannot mount an image."""


def _command(*words: object) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise NoFileSystemError(f"{words[0]}: {(done.stderr or done.stdout).strip()[:200]}")


class Image:
    """An ext4 file system in a file."""

    def __init__(self, folder: Path) -> None:
        self._file, self.place = folder / "image", folder / "mounted"
        self.place.mkdir()
        with self._file.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        if os.geteuid() or shutil.which("mkfs.ext4") is None:
            raise NoFileSystemError("needs root and mkfs.ext4")
        _command("mkfs.ext4", "-q", "-F", self._file)

    def mount(self) -> None:
        """Raises NoFileSystemError."""
        _command("mount", "-o", "loop", self._file, self.place)

    def unmount(self) -> None:
        """Raises NoFileSystemError."""
        _command("umount", "-l", self.place)

    def mount_copy(self) -> None:
        """Mounts a copy of the image, because the original stays shut down while it is in use.
        Raises NoFileSystemError."""
        copy = self._file.with_name("copy")
        shutil.copyfile(self._file, copy)
        self.unmount()
        self._file = copy
        self.mount()

    def cut(self) -> None:
        """Shuts the file system down: nothing reaches the disk any more, and every call fails."""
        handle = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _FS_IOC_SHUTDOWN, _WITHOUT_LOG.to_bytes(4, "little"))
        finally:
            os.close(handle)


@contextmanager
def mounted_image(scratch: Path) -> Iterator[Image]:
    """Mounts a new file system. Raises NoFileSystemError."""
    with tempfile.TemporaryDirectory(prefix="cut-", dir=scratch) as folder:
        image = Image(Path(folder))
        image.mount()
        try:
            yield image
        finally:
            with suppress(NoFileSystemError):
                image.unmount()


def is_possible() -> bool:
    """Whether this machine can mount an image."""
    with tempfile.TemporaryDirectory(dir=memory_folder()) as scratch:
        try:
            with mounted_image(Path(scratch)):
                return True
        except NoFileSystemError:
            return False


def run(count: int, seed: int) -> Outcome:
    """Makes `count` cuts, each of a new file system."""
    choose = random.Random(seed)
    counts: Counter[str] = Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="powercut-", dir=memory_folder()) as scratch:
        for number in range(1, count + 1):
            try:
                with mounted_image(Path(scratch)) as image:
                    lines = _one_cut(image, choose.uniform(0.2, 6.0), counts)
            except NoFileSystemError as error:
                return Outcome(0, counts, [f"no file system to cut: {error}"])
            failures += [f"cut {number}: {line}" for line in lines]
    return Outcome(count, counts, failures)


def _one_cut(image: Image, after_s: float, counts: Counter[str]) -> list[str]:
    reports = image.place / "reports"
    environment = {**os.environ, "PYTHONPATH": search_path()}
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.faults.recorder", reports, "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
    reader.start()
    threading.Event().wait(after_s)
    cut_at = time.monotonic()
    image.cut()
    process.kill()
    process.wait()
    reader.join()
    process.stdout.close()
    image.mount_copy()
    acknowledged = [json.loads(line) for line in lines if line.endswith(b"\n")]
    old = [row for row in acknowledged if row[3] < cut_at - PROMISED_S]
    counts["rows acknowledged"] += len(acknowledged)
    counts["rows older than the promise"] += len(old)
    return _after(reports, acknowledged, old, counts)


def _after(reports: Path, acknowledged: Sequence[Any], old: Sequence[Any], counts: Counter[str]) -> list[str]:
    """Resumes the run and returns the promises that the cut broke."""
    if not (reports / "cut" / "run.json").exists():
        return ["the run is gone"] if old else []
    try:
        found = open_run(reports, {"target": "cpu"}, stem="s", name="cut", resume=True)
        assert found.lock is not None
        found.lock.release()
        records = load_records(found.folder) if any(found.measurements.glob("*")) else None
    except HarnessError as error:
        return [f"the run cannot be resumed: {error}"]
    counts["files or lines set aside"] += len([*found.measurements.glob("_damaged-*")])
    kept = {} if records is None else {(r.problem, r.kernel): r.latency_ms for r in records.itertuples()}
    counts["rows kept"] += len(kept)
    lines = []
    if records is not None and records.duplicated(IDENTITY).any():
        lines.append("rows are duplicated")
    lost = [row for row in old if (row[0], row[1]) not in kept]
    if lost:
        lines.append(f"{len(lost)} of {len(old)} old rows are lost")
    falsified = [row for row in acknowledged if kept.get((row[0], row[1]), row[2]) != row[2]]
    if falsified:
        lines.append(f"{len(falsified)} rows have another value")
    return lines


CAMPAIGN = Campaign(
    "powercut", "a power cut loses no row older than a second, and every run can be resumed", 100, run
)

if __name__ == "__main__":
    sys.exit(main(CAMPAIGN))
