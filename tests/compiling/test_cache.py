from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tile_oracle.compiling.cache import BuildCache, content_key, default_cache_folder
from tile_oracle.errors import BuildError

KEY = content_key({"source": "int x;"})


def put(cache: BuildCache, key: str = KEY, content: bytes = b"code") -> Path:
    with cache.work_folder() as work:
        (work / "out.so").write_bytes(content)
        return cache.add(key, work / "out.so", "int x;", {"kernel": "k"}).path


def files_of(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_lookup_counts_as_use_and_a_good_entry_is_not_replaced(tmp_path: Path) -> None:
    entry = put(BuildCache(tmp_path), KEY).parent
    os.utime(entry, (0, 0))
    assert BuildCache(tmp_path).find(KEY) is not None
    assert entry.stat().st_mtime > 0
    assert BuildCache(tmp_path / "cache").find(KEY) is None
    assert not (tmp_path / "cache").exists()
    cache = BuildCache(tmp_path)
    inode = put(cache).stat().st_ino
    assert put(cache, content=b"other").stat().st_ino == inode


@pytest.mark.parametrize(
    "damage",
    [
        lambda so: so.write_bytes(b"cod"),
        lambda so: so.write_bytes(b"cods"),
        lambda so: so.unlink(),
        lambda so: (so.parent / "entry.json").write_text("{"),
        lambda so: (so.parent / "entry.json").write_text("[]"),
        lambda so: (so.parent / "entry.json").write_text("[" * 100_000),
        lambda so: (so.parent / "entry.json").write_bytes(b"\xff\xfe"),
        lambda so: (so.parent / "entry.json").unlink(),
    ],
)
def test_a_damaged_entry_is_not_found_and_can_be_replaced(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    cache = BuildCache(tmp_path)
    damage(put(cache))
    assert cache.find(KEY) is None
    assert put(cache).read_bytes() == b"code"
    assert cache.find(KEY) is not None


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from tile_oracle.compiling.cache import BuildCache\n"
        f"lock = BuildCache(Path({str(tmp_path)!r})).try_lock({KEY!r})\n"
        "print(lock is not None, flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "True\n"
    assert BuildCache(tmp_path).try_lock(KEY) is None
    child.kill()
    child.communicate()
    assert BuildCache(tmp_path).try_lock(KEY) is not None


def test_a_key_is_locked_once_without_a_file(tmp_path: Path) -> None:
    with BuildCache(tmp_path).try_lock(KEY) as lock:  # type: ignore[union-attr]
        assert lock is not None
    assert files_of(tmp_path) == []
    one, two = BuildCache(tmp_path), BuildCache(tmp_path)
    lock = one.try_lock(KEY)
    assert two.try_lock(KEY) is None
    assert two.try_lock(content_key({"source": "other"})) is not None
    lock.close()
    again = two.try_lock(KEY)
    assert again is not None
    assert one.try_lock(KEY) is None


def test_work_folders_go_after_a_failure_and_a_day_after_a_kill(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)

    def fail() -> None:
        with cache.work_folder() as work:
            (work / "half.so").write_bytes(b"co")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert files_of(tmp_path) == []
    for name, age_s in (("old", 2 * 24 * 3600), ("young", 3600)):
        folder = tmp_path / "work" / name
        folder.mkdir(parents=True)
        (folder / "half.so").write_bytes(b"co")
        at = (tmp_path / "work").stat().st_mtime - age_s
        os.utime(folder, (at, at))
    with BuildCache(tmp_path).work_folder():
        pass
    assert files_of(tmp_path) == ["work/young/half.so"]


def test_a_log_counts_for_running_sessions(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    put(cache, content_key({"any": "entry"}))
    with cache.try_lock(KEY):  # type: ignore[union-attr]
        cache.keep_log(KEY, "error: no")
    written = next(tmp_path.rglob("*.log")).stat().st_mtime
    assert cache.log_since(KEY, written - 1) == "error: no"
    assert cache.log_since(KEY, written + 1) is None
    put(cache)
    assert cache.log_since(KEY, 0) is None


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "A" * 64, KEY + "\n", KEY[:-1]])
def test_only_a_hash_becomes_a_path(tmp_path: Path, key: str) -> None:
    with pytest.raises(BuildError, match="not a cache key"):
        BuildCache(tmp_path).find(key)


def test_an_unwritable_folder_gives_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = BuildCache(tmp_path / "file" / "cache")
    assert cache.find(KEY) is None
    for write in (lambda: cache.try_lock(KEY), lambda: put(cache)):
        with pytest.raises(BuildError, match=r"file/cache cannot be written: Not a directory") as error:
            write()
        assert "\n" not in str(error.value)


def test_the_key_depends_on_every_part_but_not_their_order() -> None:
    parts = {"source": "a", "flags": ["-O3"], "isa": "native"}
    assert content_key(parts) == content_key(dict(reversed(parts.items())))
    assert len({content_key(parts | {name: "x"}) for name in parts} | {content_key(parts)}) == 4


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"TILE_ORACLE_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/tile-oracle"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/c"}, "/c/.cache/tile-oracle"),
        ({"TILE_ORACLE_CACHE": "", "HOME": "/c"}, "/c/.cache/tile-oracle"),
    ],
)
def test_the_default_cache_folder(environment: dict[str, str], folder: str) -> None:
    assert default_cache_folder(environment) == Path(folder)
