"""Two devices over one: whole wall time of a session on a fleet, binaries built before. Goal: 1.93x.

Devices are CPU cores, which pytest, Ray and any other work use, too: with two cores they take time from the
devices. Most of a pair's time is its budget, in seconds on the clock, so other work changes the ratio less
than the times. Sessions with one device and with two alternate; the ratio is that of the medians.
TILE_ORACLE_FLEET_PROBLEMS: with more problems the start is a smaller part.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.fleet_session import session

pytest.importorskip("ray")
COUNT = int(os.environ.get("TILE_ORACLE_FLEET_PROBLEMS", "48"))
ROUNDS = int(os.environ.get("TILE_ORACLE_FLEET_ROUNDS", "2"))
POOL = ("--kernel-set", "tiny")
OF_DEVICES = (1, 2)


def test_two_devices_over_one(benchmark: Any, tmp_path: Path) -> None:
    lines = [f"{n},8,8,9,9,3,3,fp32" for n in range(1, COUNT + 1)]
    (tmp_path / "many.csv").write_text("\n".join(["N,C,K,Hi,Wi,Y,X,dtype", *lines, ""]))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    session(tmp_path, POOL, "local", 2, "builds", "1ms")
    found: dict[int, list[dict[str, float]]] = {devices: [] for devices in OF_DEVICES}

    def everything() -> None:
        for number in range(ROUNDS):
            for devices in OF_DEVICES:
                found[devices].append(session(tmp_path, POOL, "local", devices, f"{devices}-{number}"))

    benchmark.pedantic(everything, rounds=1)
    seconds = {devices: median(one["seconds"] for one in found[devices]) for devices in OF_DEVICES}
    busy = {devices: median(one["busy_s"] for one in found[devices]) for devices in OF_DEVICES}
    longest = median(one["longest_busy_s"] for one in found[2])
    benchmark.extra_info |= {
        "pairs": 8 * COUNT,
        "seconds_of_one_device": round(seconds[1], 1),
        "seconds_of_two_devices": round(seconds[2], 1),
        "two_over_one": round(seconds[1] / seconds[2], 3),
        "seconds_outside_of_the_devices": round(seconds[2] - longest, 1),
        "busy_seconds_of_one_device": round(busy[1], 1),
        "busy_seconds_of_two_devices": round(busy[2], 1),
        "balance": round(busy[2] / (2 * longest), 3),
        "load": os.getloadavg()[0],
    }
