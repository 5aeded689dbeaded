"""Sessions: real processes that share one build folder."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.samples import sampled
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.cache import BuildCache
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel

MakeKernel = Callable[..., GroupedConvKernel]

SESSION = """\
import json, sys
from pathlib import Path
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.cache import BuildCache
from tile_oracle.kernel import parse_kernel_name

folder, include, jobs, *names = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
with Builder(toolchain="ziglang", build_dir=Path(folder), include=Path(include), jobs=int(jobs)) as builder:
    futures = [builder.submit(parse_kernel_name(name)) for name in names]
    results = [future.result() for future in futures]
    hashes = [result.binary.source_hash for result in results]
    stats = builder.stats()
    print(json.dumps({"compiled": stats.compiled, "cached": stats.cached, "hashes": hashes}))
"""


def start(folder: Path, include: Path, names: list[str], jobs: int = 1) -> subprocess.Popen[str]:
    """A session that is up and waits for a line on its standard input."""
    command = [sys.executable, "-c", SESSION, str(folder), str(include), str(jobs), *names]
    session = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert session.stdout.readline() == "ready\n"
    return session


def go(session: subprocess.Popen[str]) -> None:
    session.stdin.write("\n")
    session.stdin.flush()


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_one_session_compiles_and_the_others_wait(
    tmp_path: Path, include: Path, make_kernel: MakeKernel
) -> None:
    names = [make_kernel(tile_m).name for tile_m in (20, 21, 22)]
    sessions = [start(tmp_path / "cache", include, names, jobs=2) for _ in range(4)]
    for session in sessions:
        go(session)
    answers = [json.loads(session.communicate()[0]) for session in sessions]
    assert sum(answer["compiled"] for answer in answers) == 3
    assert all(answer["compiled"] + answer["cached"] == 3 for answer in answers)
    assert len({tuple(answer["hashes"]) for answer in answers}) == 1
    kinds = sorted(path.name for path in files_of(tmp_path / "cache"))
    assert kinds == sorted(["entry.json", "kernel.cpp", "kernel.so"] * 3)


@pytest.mark.parametrize("seed", sampled(range(4), every=4))
def test_a_killed_session_leaves_no_trace(
    tmp_path: Path, include: Path, make_kernel: MakeKernel, seed: int
) -> None:
    """Killed at a random moment of its compilations, first to last."""
    # Enough text that a compilation takes long enough to be hit in the middle.
    text = "".join(f"static int f{i}(int x) {{ return x * {i} + f{i - 1}(x); }}\n" for i in range(1, 4000))
    headers = include / "grouped_conv.hpp"
    headers.write_text(
        headers.read_text()
        + "static int f0(int x) { return x; }\n"
        + text
        + "int all(int x) { return f3999(x); }\n"
    )
    names = [make_kernel(tile_m).name for tile_m in range(30, 36)]
    session = start(tmp_path / "cache", include, names)
    go(session)
    with pytest.raises(subprocess.TimeoutExpired):
        session.wait(timeout=random.Random(seed).uniform(0.05, 0.8))
    session.send_signal(signal.SIGKILL)
    session.communicate()
    assert session.returncode == -signal.SIGKILL
    with Builder(toolchain="ziglang", build_dir=tmp_path / "cache", include=include) as builder:
        kernels = [make_kernel(tile_m) for tile_m in range(30, 36)]
        results = [builder.need(kernel) for kernel in kernels]
        found = builder.stats()
    assert [result.status for result in results] == ["ok"] * 6
    assert found.compiled >= 1
    assert found.compiled + found.cached == 6


def test_a_stopped_session_does_not_block_the_others(
    tmp_path: Path, include: Path, make_kernel: MakeKernel
) -> None:
    """The lock's holder is stopped; after twice the compile timeout, others build without the lock."""
    with Builder(toolchain="ziglang", build_dir=tmp_path / "probe", include=include) as builder:
        binary = builder.need(make_kernel()).binary
    held = BuildCache(tmp_path / "cache").try_lock(binary.source_hash)
    with Builder(
        toolchain="ziglang", build_dir=tmp_path / "cache", include=include, timeout_s=0.5
    ) as builder:
        result = builder.need(make_kernel())
    assert result.status == "ok"
    held.release()
