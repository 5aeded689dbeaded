"""Sessions: real processes that share one build folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compiling.test_builder import gated
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

folder, include, jobs, gate, *names = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
toolchain = "ziglang"
if gate:
    from tests.compiling.test_builder import gated

    toolchain = gated(gate)
with Builder(toolchain=toolchain, build_dir=Path(folder), include=Path(include), jobs=int(jobs)) as builder:
    futures = [builder.submit(parse_kernel_name(name)) for name in names]
    results = [future.result() for future in futures]
    hashes = [result.binary.source_hash for result in results]
    stats = builder.stats()
    print(json.dumps({"compiled": stats.compiled, "cached": stats.cached, "hashes": hashes}))
"""


def start(
    folder: Path, include: Path, names: list[str], jobs: int = 1, gate: str = ""
) -> subprocess.Popen[str]:
    """A session that is up and waits for a line on its standard input. gate: what each compilation runs
    first."""
    command = [sys.executable, "-c", SESSION, str(folder), str(include), str(jobs), gate, *names]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    session = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
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


@pytest.mark.parametrize("ended", sampled([2, 0, 3], every=3))
def test_a_killed_session_leaves_no_trace(
    tmp_path: Path, include: Path, make_kernel: MakeKernel, ended: int
) -> None:
    """Killed while the compiler of one of its kernels runs, the first to the last."""
    kernels = [make_kernel(tile_m) for tile_m in range(30, 34)]
    for pipe in ("runs", "never"):
        os.mkfifo(tmp_path / pipe)
    gate = (
        f"grep -q 'TILE_M {30 + ended}$' kernel.cpp && echo > {tmp_path}/runs && cat {tmp_path}/never; true"
    )
    session = start(tmp_path / "cache", include, [kernel.name for kernel in kernels], gate=gate)
    go(session)
    (tmp_path / "runs").read_text()
    session.kill()
    session.communicate()
    with Builder(toolchain=gated("true"), build_dir=tmp_path / "cache", include=include) as builder:
        results = [builder.need(kernel) for kernel in kernels]
        found = builder.stats()
    os.close(os.open(tmp_path / "never", os.O_RDWR))  # the compiler ends
    assert [result.status for result in results] == ["ok"] * 4
    assert (found.cached, found.compiled) == (ended, 4 - ended)


def test_a_stopped_session_does_not_block_the_others(
    tmp_path: Path, include: Path, make_kernel: MakeKernel
) -> None:
    """The lock's holder is stopped; after twice the compile timeout, others build without the lock."""
    with Builder(toolchain="ziglang", build_dir=tmp_path / "probe", include=include) as builder:
        binary = builder.need(make_kernel()).binary
    held = BuildCache(tmp_path / "cache").try_lock(binary.source_hash)
    with Builder(toolchain="ziglang", build_dir=tmp_path / "cache", include=include) as builder:
        builder._timeout_s = 0.2  # its compilers keep the usual one
        result = builder.need(make_kernel())
    assert result.status == "ok"
    held.close()
