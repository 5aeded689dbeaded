"""Lock files: their location; links are not followed, foreign and open folders are not used or changed."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tile_oracle.files import lock_folder as lock_files
from tile_oracle.files.lock_folder import describe_lock_folder, lock_folder

NOBODY = 65534
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")


@pytest.fixture(autouse=True)
def no_folder_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the machine's folders: no shared one, no runtime folder, and a temporary one here."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(lock_files, "SHARED_FOLDER", tmp_path / "run" / "tile-oracle")
    monkeypatch.setattr(lock_files.tempfile, "tempdir", str(tmp_path / "tmp"))
    real = os.getuid()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    if Path(f"/run/user/{real}").exists():
        pytest.skip("this machine has a runtime folder of the user, which goes before the temporary one")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def chosen(path: Path) -> dict[str, str]:
    return {"TILE_ORACLE_LOCK_DIR": str(path)}


def test_by_default_the_folder_is_the_users_own(tmp_path: Path) -> None:
    folder = lock_folder({})
    assert folder.path == tmp_path / "tmp" / f"tile-oracle-{os.getuid()}"
    assert mode(folder.path) == 0o700


def test_the_runtime_folder_is_preferred_to_the_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "runtime").mkdir(mode=0o700)
    folder = lock_folder({"XDG_RUNTIME_DIR": str(tmp_path / "runtime")})
    assert folder.path == tmp_path / "runtime" / "tile-oracle"


def test_a_link_instead_of_the_folder_is_not_followed_or_changed(tmp_path: Path) -> None:
    """If the link to a folder such as ~/.ssh were followed, a chmod would open that folder to everybody."""
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (tmp_path / "tmp" / f"tile-oracle-{os.getuid()}").symlink_to(victim)
    assert lock_folder({}) is None
    assert mode(victim) == 0o700
    assert not list(victim.iterdir())


def test_a_chosen_folder_that_is_a_link_is_not_replaced_by_another(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    assert lock_folder(chosen(tmp_path / "link")) is None
    assert describe_lock_folder(chosen(tmp_path / "link")).startswith("none: TILE_ORACLE_LOCK_DIR=")
    assert not list((tmp_path / "victim").iterdir())


@pytest.mark.parametrize(("bits", "usable"), [(0o700, True), (0o755, False), (0o770, False), (0o777, False)])
def test_the_users_own_folder_is_closed_to_others(bits: int, usable: bool, tmp_path: Path) -> None:
    own = tmp_path / "tmp" / f"tile-oracle-{os.getuid()}"
    own.mkdir()
    own.chmod(bits)
    assert (lock_folder({}) is not None) == usable
    assert mode(own) == bits  # never widened, never narrowed


@pytest.mark.parametrize(("bits", "usable"), [(0o755, True), (0o1777, True), (0o777, False), (0o757, False)])
def test_a_world_writable_shared_folder_has_the_sticky_bit(bits: int, usable: bool, tmp_path: Path) -> None:
    (tmp_path / "run" / "tile-oracle").mkdir(parents=True)
    (tmp_path / "run" / "tile-oracle").chmod(bits)
    folder = lock_folder({})
    assert (folder.path == tmp_path / "run" / "tile-oracle") == usable
    assert mode(tmp_path / "run" / "tile-oracle") == bits


def test_nothing_is_made_below_a_world_writable_folder_without_sticky_bit(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert lock_folder(chosen(tmp_path / "open" / "locks")) is None
    assert not (tmp_path / "open" / "locks").exists()


@root_only
@pytest.mark.parametrize("place", ["tmp/tile-oracle-0", "run/tile-oracle", "chosen"])
def test_a_folder_of_another_user_is_not_used(place: str, tmp_path: Path) -> None:
    folder = tmp_path / place
    folder.mkdir(parents=True)
    folder.chmod(0o1777 if "run" in place else 0o700)
    os.chown(folder, NOBODY, NOBODY)
    found = lock_folder(chosen(folder) if place == "chosen" else {})
    assert found is None or found.path != folder
    assert not list(folder.iterdir())


@root_only
def test_users_of_a_shared_folder_exclude_each_other(tmp_path: Path) -> None:
    """Another user's process holds a lock in a folder that root made for all."""
    shared = tmp_path / "run" / "tile-oracle"
    shared.mkdir(parents=True)
    shared.chmod(0o1777)
    for above in (tmp_path, *tmp_path.parents[:-2]):
        if not above.stat().st_mode & stat.S_IXOTH:
            above.chmod(above.stat().st_mode | stat.S_IXOTH)
    holder = subprocess.Popen(
        [
            "python3",
            "-c",
            "import fcntl, os, sys\n"
            f"os.setgid({NOBODY}); os.setuid({NOBODY})\n"
            f"file = os.open({str(shared / 'core-0.lock')!r}, os.O_RDONLY | os.O_CREAT, 0o644)\n"
            "fcntl.flock(file, fcntl.LOCK_EX)\n"
            "print('held', flush=True); sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    try:
        assert holder.stdout.readline() == "held\n"
        folder = lock_folder({})
        assert folder.path == shared
        assert folder.locked("core-0.lock") is None
        assert folder.somebody_holds("core-0.lock")
        holder.stdin.close()
        holder.wait()
        handle = folder.locked("core-0.lock")
        assert handle is not None
        os.close(handle)
    finally:
        holder.kill()
        holder.wait()


def test_a_link_or_fifo_instead_of_a_lock_file_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "victim").write_text("text")
    (tmp_path / "victim").chmod(0o600)
    (tmp_path / "locks" / "link").symlink_to(tmp_path / "victim")
    os.mkfifo(tmp_path / "locks" / "fifo")
    folder = lock_folder(chosen(tmp_path / "locks"))
    assert folder.open("link") is None
    assert folder.open("fifo") is None
    assert mode(tmp_path / "victim") == 0o600


def test_replacing_an_open_folder_by_a_link_has_no_effect(tmp_path: Path) -> None:
    folder = lock_folder(chosen(tmp_path / "locks"))
    (tmp_path / "victim").mkdir()
    (tmp_path / "locks").rename(tmp_path / "moved")
    (tmp_path / "locks").symlink_to(tmp_path / "victim")
    handle = folder.open("core-0.lock")
    assert handle is not None
    os.close(handle)
    assert [path.name for path in (tmp_path / "moved").iterdir()] == ["core-0.lock"]
    assert not list((tmp_path / "victim").iterdir())


def test_a_reused_descriptor_is_not_used(tmp_path: Path) -> None:
    """A kernel in the same process may close every descriptor."""
    (tmp_path / "other").mkdir()
    folder = lock_folder(chosen(tmp_path / "locks"))
    other = os.open(tmp_path / "other", os.O_RDONLY)
    os.dup2(other, folder._handle)
    os.close(other)
    assert folder.open("core-0.lock") is None
    assert not list((tmp_path / "other").iterdir())
    os.close(folder._handle)
