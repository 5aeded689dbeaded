from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tile_oracle.cli import main
from tile_oracle.compiling.cache import BuildCache, content_key
from tile_oracle.compiling.cache_use import IN_USE_S, entries_in, prune

NOW_S = time.time()
DAY_S = 24 * 3600.0


def put(folder: Path, number: int, days_unused: float, size: int = 1000, what: str = "arch") -> str:
    cache, key = BuildCache(folder), content_key({"number": number})
    with cache.work_folder() as work:
        (work / "out.so").write_bytes(bytes(size))
        place = cache.add(key, work / "out.so", "int x;", {what: "cpu"}).path.parent
    used_s = NOW_S - days_unused * DAY_S
    os.utime(place, (used_s, used_s))
    return key


def test_long_unused_entries_are_removed_and_the_rest_found(tmp_path: Path) -> None:
    old, fresh = put(tmp_path, 1, 31), put(tmp_path, 2, 29)
    done = prune(tmp_path, NOW_S, unused_for_s=30 * DAY_S)
    assert [entry.key for entry in done.removed] == [old]
    assert BuildCache(tmp_path).find(old) is None
    assert BuildCache(tmp_path).find(fresh) is not None
    assert not list((tmp_path / "work").iterdir())


def test_a_lookup_counts_as_use(tmp_path: Path) -> None:
    key = put(tmp_path, 1, 400)
    assert BuildCache(tmp_path).find(key) is not None
    assert entries_in(tmp_path)[0].used_s > NOW_S - 400 * DAY_S


def test_an_entry_being_built_is_kept(tmp_path: Path) -> None:
    key = put(tmp_path, 1, 400)
    lock = BuildCache(tmp_path).try_lock(key)
    assert lock is not None
    with lock:
        assert prune(tmp_path, NOW_S, unused_for_s=DAY_S).removed == ()
    assert len(prune(tmp_path, NOW_S, unused_for_s=DAY_S).removed) == 1


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0, 100), max_size=8),
    st.one_of(st.none(), st.floats(0, 100)),
    st.one_of(st.none(), st.integers(0, 8000)),
)
def test_the_least_recently_used_go_first_unless_in_use(
    tmp_path_factory: pytest.TempPathFactory, ages: list[float], unused_days: float | None, keep: int | None
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    for number, age in enumerate(ages):
        put(folder, number, age)
    before = entries_in(folder)
    dry = prune(folder, NOW_S, unused_days and unused_days * DAY_S, keep, dry_run=True)
    assert entries_in(folder) == before
    done = prune(folder, NOW_S, unused_days and unused_days * DAY_S, keep)
    assert done == dry
    assert entries_in(folder) == list(done.kept)
    assert {*done.removed, *done.kept} == set(before)
    assert all(NOW_S - entry.used_s > IN_USE_S for entry in done.removed)
    if done.removed and done.kept:
        assert max(entry.used_s for entry in done.removed) <= min(entry.used_s for entry in done.kept)
    if keep is not None and done.kept_bytes > keep:
        assert all(NOW_S - entry.used_s <= IN_USE_S for entry in done.kept)


def test_the_command_shows_and_prunes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, 1, 10_000)
    damaged = tmp_path / "ab" / f"{'ab' * 32}.entry"
    damaged.mkdir(parents=True)
    (tmp_path / "ab" / "not-an-entry.entry").mkdir()
    where = ["cache", "--build-dir", str(tmp_path)]
    assert main(where) == 0
    shown = capsys.readouterr().out
    assert "2 entries" in shown
    assert "damaged" in shown
    assert "1 entry, 0.0 MiB unused for 30 days" in shown
    assert main([*where, "--prune", "--unused-for", "30d", "--dry-run"]) == 0
    assert "would remove 1 entry" in capsys.readouterr().out
    assert main([*where, "--prune", "--unused-for", "30d"]) == 0
    assert "removed 1 entry" in capsys.readouterr().out
    assert len(entries_in(tmp_path)) == 1


def test_the_native_selector_is_not_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, 1, 0, what="what")  # selector.native_library writes no architecture
    assert main(["cache", "--build-dir", str(tmp_path), "--json"]) == 0
    assert [one["what"] for one in json.loads(capsys.readouterr().out)["contents"]] == ["cpu"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prune"], "--unused-for"),
        (["--prune", "--keep", "1GiB", "--json"], "--json shows"),
        (["--keep", "1GiB"], "add --prune"),
        (["--dry-run"], "add --prune"),
    ],
)
def test_an_incomplete_request_removes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["cache", "--build-dir", str(tmp_path), *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "text"), [("--unused-for", "30"), ("--unused-for", "-3d"), ("--keep", "2GB"), ("--keep", "x")]
)
def test_an_invalid_limit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, text: str
) -> None:
    with pytest.raises(SystemExit):
        main(["cache", "--build-dir", str(tmp_path), "--prune", f"{option}={text}"])
    assert repr(text) in capsys.readouterr().err
