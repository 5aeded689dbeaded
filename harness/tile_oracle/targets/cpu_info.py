"""This machine's CPU name, cache size, peak rates and free memory."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tile_oracle.compiling.isa import cpu_blocks, cpuinfo_text
from tile_oracle.files.passing_errors import unless_passing


def cpu_name() -> str:
    """Returns the model name with family and model numbers, since virtual machines give CPUs of several
    generations the same name. Where Linux reports no model name (aarch64), implementer and part."""
    fields = cpu_blocks(cpuinfo_text())[0]
    if "model name" in fields:
        generation = [
            f"{what} {fields[name]}"
            for what, name in (("family", "cpu family"), ("model", "model"))
            if name in fields
        ]
        return ", ".join([fields["model name"], *generation])
    parts = [fields[name] for name in ("CPU implementer", "CPU part") if name in fields]
    return " ".join([platform.machine(), *parts])


_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_CACHE_BYTES_ASSUMED = 64 << 20


def last_level_cache_bytes() -> int:
    """Size of the largest cache of this machine's first core; 64 MiB where Linux does not report it."""
    sizes = [0]
    for path in _CACHES.glob("index*/size"):
        with unless_passing(), suppress(ValueError):
            text = path.read_text().strip()
            sizes.append(int(text.rstrip("KMG")) * _UNITS.get(text[-1:], 1))
    return max(sizes) or _CACHE_BYTES_ASSUMED


def memory_available_bytes() -> int:
    """Returns the memory available without swapping, within the limits of the control groups.

    Raises OSError when they cannot be read for the moment.
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min((available, *_left()))


_ROOT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = ("memory.max", "memory.current", "inactive_file")
"""Files with the limit and the use, and the line of memory.stat with what the system can take back."""


def _left() -> Iterator[int]:
    """Yields the bytes that each group of this process leaves, version 1 or 2; none without a limit."""
    for folder, (limit, used, reclaimable) in _groups():
        with unless_passing():
            most = (folder / limit).read_text().strip()
            if most.isdigit():
                taken = int((folder / used).read_text())
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                yield max(0, int(most) - taken + int(stat.get(reclaimable, 0)))


def _groups() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Yields the group and those above it.

    A container often shows its own group at the top of the tree, and names it as the machine does: then only
    the top exists.
    """
    lines: list[str] = []
    with unless_passing():
        lines = _OWN.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, files = (_ROOT / "memory", _VERSION_1) if controllers else (_ROOT, _VERSION_2)
        folder = top / path.lstrip("/")
        yield from ((place, files) for place in (folder, *folder.parents) if place.is_relative_to(top))


_FASTEST_CLOCK_HZ = 7e9
_FLOPS_A_CLOCK = {"avx512f": 128, "avx2": 64, "": 32}
"""Instruction set -> fp32 operations per core and clock: twice the rate of two FMA units.
"""
_MATRIX_FLOPS_A_CLOCK = 8192
"""For cores with a matrix unit and cores with unknown instruction sets; four times the rate of AMX."""


def cpu_peak_flops() -> dict[str, float]:
    """Operations per second by dtype: an upper bound for one core of this machine."""
    flags = set(cpu_blocks(cpuinfo_text())[0].get("flags", "").split())
    vector = next(flops for name, flops in _FLOPS_A_CLOCK.items() if not name or name in flags)
    if not flags or "amx_tile" in flags:
        vector = _MATRIX_FLOPS_A_CLOCK
    return {
        "fp32": vector * _FASTEST_CLOCK_HZ,
        **dict.fromkeys(("bf16", "fp16", "fp8", "fp4"), 2 * vector * _FASTEST_CLOCK_HZ),
    }
