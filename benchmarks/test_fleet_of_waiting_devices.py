"""Several devices over one where a device leaves the processor alone, as a GPU does: whole wall time of a
session.

Every run of a kernel sleeps for 5 ms besides computing a small convolution, so more devices than cores work
side by side. Everything else is real: pytest, a Ray cluster with one node a device, an actor and an isolated
worker each, checks, leaders, records. Binaries are built before. Goals: 1.93x for two devices, 3.7x for four.

TILE_ORACLE_FLEET_PROBLEMS: with more problems the start is a smaller part.
"""

from __future__ import annotations

import os
import platform
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet_session import session

pytest.importorskip("ray")
ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "own_cpu_kernels" / "blocked_conv"
COUNT = int(os.environ.get("TILE_ORACLE_FLEET_PROBLEMS", "24"))
OF_DEVICES = (1, 2, 4)
KERNELS = 12
POOL = ("--kernels", "sleeping")
_LAUNCH = "int32_t to_launch(const to_conv_args* a) {\n"
_SLEEP = """\
    const int64_t span[2] = {0, 5000000};
    int64_t done;  // nanosleep
    asm volatile("syscall" : "=a"(done) : "0"(35L), "D"(span), "S"(0L) : "rcx", "r11", "memory");
"""


def sleeping_kernels(site: Path) -> None:
    """The example's kernels, which sleep, as an installed package with the kernel source `sleeping`."""
    package = site / "sleeping_conv"
    shutil.copytree(EXAMPLE, package, ignore=shutil.ignore_patterns("__pycache__"))
    header = package / "include" / "blocked_conv.hpp"
    text = header.read_text("utf-8")
    assert _LAUNCH in text
    header.write_text(text.replace(_LAUNCH, _LAUNCH + _SLEEP), "utf-8")
    info = site / "sleeping_conv-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sleeping-conv\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[tile_oracle.kernel_sources]\nsleeping = sleeping_conv:provider\n"
    )


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernels sleep by x86-64's system call")
def test_devices_that_wait(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tools.faults.ray_cluster import RayCluster

    sizes = [(height, width) for height, width in product(range(4, 14), repeat=2)][:COUNT]
    lines = [f"1,8,32,{height},{width},3,3,fp32" for height, width in sizes]
    (tmp_path / "many.csv").write_text("\n".join(["N,C,K,Hi,Wi,Y,X,dtype", *lines, ""]))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    sleeping_kernels(tmp_path / "site")
    paths = [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        "PYTHONPATH": os.pathsep.join(paths),
        "TILE_ORACLE_CACHE": str(tmp_path / "cache"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    found: dict[int, float] = {}
    with RayCluster(0, environment) as cluster:
        for number in range(max(OF_DEVICES)):
            # With core locks of its own, a device shares this machine's cores with the others.
            locks = tmp_path / f"locks-{number}"
            locks.mkdir()
            cluster.add(TILE_ORACLE_LOCK_DIR=str(locks))
        session(tmp_path, POOL, cluster.address, max(OF_DEVICES), "builds", "1ms")

        def everything() -> None:
            for devices in OF_DEVICES:
                found[devices] = session(tmp_path, POOL, cluster.address, devices, f"{devices}")

        benchmark.pedantic(everything, rounds=1)
    for devices, one in found.items():
        benchmark.extra_info[f"devices {devices}"] = {
            "seconds": round(one, 1),
            "over_one": round(found[1] / one, 3),
        }
    benchmark.extra_info |= {"pairs": KERNELS * len(lines), "load": os.getloadavg()[0]}
