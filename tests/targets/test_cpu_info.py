"""Facts of the CPU, also on machines that report few."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tile_oracle.compiling import isa
from tile_oracle.errors import TargetError
from tile_oracle.targets import cpu_info
from tile_oracle.targets.cpu_info import cpu_name, last_level_cache_bytes, memory_available_bytes


def pretend(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    """Files of /proc and /sys with this content; any other is missing."""

    def read_text(path: Path, *_: object, **__: object) -> str:
        if str(path) not in files:
            raise FileNotFoundError(path)
        return files[str(path)]

    monkeypatch.setattr(cpu_info.Path, "read_text", read_text)


def test_this_machine_has_a_name_and_memory() -> None:
    assert cpu_name().strip()
    assert memory_available_bytes() > 1 << 20


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor : 0\nmodel name : AMD EPYC\n\nprocessor : 1\nmodel name : other\n", "AMD EPYC"),
        # Virtual machines give the same name to CPUs of several generations.
        (
            "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n",
            "AMD EPYC, family 26, model 2",
        ),
        ("processor : 0\nCPU implementer : 0x41\nCPU part : 0xd4f\n", "aarch64 0x41 0xd4f"),
        ("", "aarch64"),
    ],
)
def test_the_name_is_the_first_cores(text: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {"/proc/cpuinfo": text})
    monkeypatch.setattr(cpu_info.platform, "machine", lambda: "aarch64")
    assert cpu_name() == name


def groups(top: str, files: tuple[str, str, str], levels: dict[str, tuple[str, int, int]]) -> dict[str, str]:
    """Files of control groups. levels: path below `top` -> limit, bytes used, bytes that can be reclaimed."""
    limit, used, line = files
    found = {}
    for path, (most, taken, reclaimable) in levels.items():
        folder = f"/sys/fs/cgroup{top}{path}"
        found |= {f"{folder}/{limit}": f"{most}\n", f"{folder}/{used}": f"{taken}\n"}
        found[f"{folder}/memory.stat"] = f"cache 7\n{line} {reclaimable}\n"
    return found


V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = ("memory.max", "memory.current", "inactive_file")
FREE = 4096 * 1024


@pytest.mark.parametrize(
    ("own", "top", "files", "levels", "available"),
    [
        ("0::/", "", V2, {"": ("max", 5, 0)}, FREE),
        ("0::/", "", V2, {"": ("1000", 400, 0)}, 600),
        ("0::/", "", V2, {"": ("1000", 4000, 0)}, 0),
        ("0::/", "", V2, {"": ("99999999999", 0, 0)}, FREE),
        ("0::/", "", V2, {"": ("1000", 900, 500)}, 600),
        ("0::/user/one", "", V2, {"/user/one": ("max", 1, 0), "/user": ("1000", 400, 0)}, 600),
        ("0::/user/one", "", V2, {"/user/one": ("500", 0, 0), "/user": ("1000", 400, 0)}, 500),
        ("4:memory:/docker/1", "/memory", V1, {"/docker/1": ("1000", 400, 0)}, 600),
        ("4:memory:/docker/1\n0::/", "/memory", V1, {"": ("1000", 900, 300)}, 400),
        ("4:cpu,memory:/", "/memory", V1, {"": ("9223372036854771712", 5, 0)}, FREE),
        ("4:cpu:/a", "/memory", V1, {"/a": ("1000", 400, 0)}, FREE),
    ],
)
def test_the_limits_of_control_groups_count(
    own: str,
    top: str,
    files: tuple[str, str, str],
    levels: dict[str, tuple[str, int, int]],
    available: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = {"/proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 4096 kB\n", "/proc/self/cgroup": own}
    pretend(monkeypatch, there | groups(top, files, levels))
    assert memory_available_bytes() == available


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EIO])
def test_a_cpu_whose_description_cannot_be_read_has_no_other_name(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path, *_: object, **__: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(cpu_info.Path, "read_text", fails)
    for ask in (cpu_name, isa.this_cpu.__wrapped__):
        with pytest.raises(TargetError, match=r"^/proc/cpuinfo cannot be read"):
            ask()


@pytest.mark.parametrize("ask", [memory_available_bytes, last_level_cache_bytes])
def test_a_failure_that_passes_is_no_answer(
    ask: Callable[[], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.read_text

    def fails(path: Path, *arguments: Any, **options: Any) -> str:
        if path.name in ("memory.limit_in_bytes", "memory.max", "size", "cgroup"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, *arguments, **options)

    (tmp_path / "index0").mkdir()
    (tmp_path / "index0" / "size").write_text("32K")
    monkeypatch.setattr(cpu_info, "_CACHES", tmp_path)
    monkeypatch.setattr(cpu_info.Path, "read_text", fails)
    with pytest.raises(OSError, match="Too many open files"):
        ask()


def test_without_proc_the_free_pages_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {})
    assert memory_available_bytes() > 0
