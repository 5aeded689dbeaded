"""Sessions on real file systems that have no block or no inode left; needs root and loop devices."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.faults.file_calls import Server, broken
from tools.faults.file_layer import build
from tools.faults.memory_folder import memory_folder
from tools.faults.powercut import Image, is_possible, mounted_image

pytestmark = pytest.mark.skipif(not is_possible(), reason="needs root, mkfs.ext4 and loop devices")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(build(tmp_path_factory.mktemp("library")))
    yield made
    made.close()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    scratch = memory_folder() or tmp_path_factory.mktemp("images")
    with mounted_image(Path(scratch)) as made:
        yield made


class _Filler:
    """Files that take all inodes, or all blocks, of a file system but some."""

    def __init__(self, folder: Path, what: str) -> None:
        self._folder, self._inodes = folder, what == "inodes"
        self._files: list[Path] = []
        folder.mkdir()
        if not self._inodes:
            there = os.statvfs(folder)
            # ext4 keeps up to 4,096 blocks for itself, beside those of root.
            with (folder / "large").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, (there.f_bfree - 5000) * there.f_frsize)

    def leave(self, count: int) -> None:
        """Takes all there is, then gives `count` inodes or blocks back."""
        while True:
            path = self._folder / str(len(self._files))
            self._files.append(path)
            try:
                with path.open("wb") as file:
                    if not self._inodes:
                        os.posix_fallocate(file.fileno(), 0, 1)
            except OSError:
                break
        for _ in range(count + 1):
            self._files.pop().unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["inodes", "blocks"])
def test_a_full_file_system_costs_no_row_and_says_so_in_one_line(
    what: str, image: Image, server: Server
) -> None:
    refused = 0
    filler, work = _Filler(image.place / what, what), image.place / "work"
    for left in (0, 1, 2, 3, 4, 6, 8, 12, 20):
        work.mkdir()
        filler.leave(left)
        answer = server.session(work, 1)
        filler.leave(200)
        refused += bool(answer.error)
        assert broken(server, work, answer) == [], f"{left} {what} left: {answer.error}"
        shutil.rmtree(work)
    assert refused >= 3
    shutil.rmtree(image.place / what)
