"""Facts of the CPU, also on machines that report few."""

from __future__ import annotations

from pathlib import Path

import pytest

from tile_oracle.target import cpu_info
from tile_oracle.target.cpu_info import cpu_name, memory_available_bytes


def pretend(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    """Files of /proc and /sys with this content; any other is missing."""

    def read_text(path: Path, **_: object) -> str:
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


@pytest.mark.parametrize(
    ("limit", "used", "available"),
    [("max", "5", 4096 * 1024), ("1000", "400", 600), ("1000", "4000", 0), ("99999999999", "0", 4096 * 1024)],
)
def test_a_control_groups_limit_counts(
    limit: str, used: str, available: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"/proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 4096 kB\n"}
    files |= {"/sys/fs/cgroup/memory.max": limit, "/sys/fs/cgroup/memory.current": used}
    pretend(monkeypatch, files)
    assert memory_available_bytes() == available


def test_without_proc_the_free_pages_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {})
    assert memory_available_bytes() > 0
