"""Code is loaded only from where nobody but root and this user can put it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tile_oracle.compiling.cache import BuildCache, content_key
from tile_oracle.compiling.prebuilt_folder import PrebuiltFolder
from tile_oracle.errors import BuildError
from tile_oracle.files.lock_folder import lock_folder
from tile_oracle.files.trusted_folder import TRUSTED, check_trusted, make_folder
from tile_oracle.selector.native_library import built

STRANGER = 12345
root_only = pytest.mark.skipif(os.getuid() != 0, reason="gives files to another user")
NOT_USED = "are not used, since other users may change them"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "above" / "cache"
    place.mkdir(parents=True, mode=0o755)
    return place


@pytest.mark.parametrize(
    ("above", "bits", "trusted"),
    [
        (0o755, 0o755, True),
        (0o755, 0o555, True),
        (0o1777, 0o755, True),  # as /tmp: others cannot replace it
        (0o777, 0o755, False),
        (0o757, 0o700, False),
        (0o755, 0o777, False),
        (0o755, 0o1777, False),  # others can add an entry that is not there yet
        (0o755, 0o757, False),
    ],
)
def test_by_the_modes_of_a_folder_and_the_one_above(
    above: int, bits: int, trusted: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.parent.chmod(above)
    folder.chmod(bits)
    if trusted:
        check_trusted(folder, "the binaries")
        return
    with pytest.raises(BuildError, match=NOT_USED) as caught:
        check_trusted(folder, "the binaries")
    found = re.search(r"chmod -R go-w (\S+),", str(caught.value))
    assert found
    subprocess.run(["chmod", "-R", "go-w", found[1]], check=True)
    check_trusted(folder, "the binaries")  # what the message says helps
    folder.chmod(bits)
    monkeypatch.setenv(TRUSTED, f"/elsewhere:{folder.parent}")
    check_trusted(folder, "the binaries")


@root_only
@pytest.mark.parametrize("whose", ["above", "above/cache"])
def test_a_folder_of_another_user(whose: str, tmp_path: Path, folder: Path) -> None:
    os.chown(tmp_path / whose, STRANGER, -1)
    with pytest.raises(
        BuildError, match=f"belongs to user {STRANGER}, mode drwxr-xr-x. chown -R root {tmp_path / whose}"
    ):
        check_trusted(folder, "the binaries")


@root_only
def test_a_group_is_other_users(folder: Path) -> None:
    folder.chmod(0o775)
    check_trusted(folder, "the binaries")  # root's own group
    os.chown(folder, -1, STRANGER)
    with pytest.raises(BuildError, match=NOT_USED):
        check_trusted(folder, "the binaries")


def test_what_a_link_points_to_counts(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    check_trusted(tmp_path / "link", "the binaries")
    folder.chmod(0o777)
    with pytest.raises(BuildError, match=NOT_USED):
        check_trusted(tmp_path / "link", "the binaries")


def test_a_folder_that_is_not_there_yet_counts_by_where_it_will_be(folder: Path) -> None:
    check_trusted(folder / "new" / "cache", "the binaries")
    folder.chmod(0o777)
    with pytest.raises(BuildError, match=NOT_USED):
        check_trusted(folder / "new" / "cache", "the binaries")


def test_a_cache_made_with_a_wide_umask_is_trusted(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        key = content_key({"of": "a test"})
        cache = BuildCache(tmp_path / "new" / "cache")
        with cache.work_folder() as work:
            (work / "made.so").write_bytes(b"code")
            cache.add(key, work / "made.so", "source", {})
        assert BuildCache(tmp_path / "new" / "cache").find(key) is not None
    finally:
        os.umask(before)


@pytest.mark.parametrize("part", ["", "entry", "binary"])
def test_entries_that_others_may_change_are_not_found(part: str, tmp_path: Path) -> None:
    key = content_key({"of": "a test"})
    cache = BuildCache(tmp_path / "cache")
    with cache.work_folder() as work:
        (work / "made.so").write_bytes(b"code")
        entry = cache.add(key, work / "made.so", "source", {})
    changed = {"": entry.path.parent.parent, "entry": entry.path.parent, "binary": entry.path}[part]
    changed.chmod(0o777)
    with pytest.raises(BuildError, match=NOT_USED):
        cache.find(key)


def test_every_place_with_code_is_checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "manifest.json").write_text("{}")
    folder.chmod(0o777)
    with pytest.raises(BuildError, match=f"prebuilt kernels in {folder} {NOT_USED}"):
        PrebuiltFolder(folder)
    with pytest.raises(BuildError, match=NOT_USED):
        built(folder=folder)
    folder.parent.chmod(0o777)
    folder.chmod(0o700)
    assert lock_folder({"TILE_ORACLE_LOCK_DIR": str(folder / "locks")}) is None


def test_made_folders_are_closed_to_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o755, 0o755]


def test_a_build_into_such_a_folder_is_one_line(folder: Path, tmp_path: Path) -> None:
    folder.chmod(0o777)
    command = [
        *(Path(sys.executable).with_name("tile-oracle"), "build", "--problem-set", "forward_smoke"),
        *("--arch", "cpu", "--kernel-set", "tiny", "--build-dir", folder, "-o", tmp_path / "kit"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode not in (0, 1)
    assert NOT_USED in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
