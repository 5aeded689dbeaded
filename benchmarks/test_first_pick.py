"""The first pick of a new installation: with the wheel's compiled selector, and compiled from source.

make wheels
TILE_ORACLE_WHEELS=dist pytest benchmarks/test_first_pick.py --benchmark-only -s
"""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

import pytest

from tests.wheels.environment import install, run
from tile_oracle.selector import prebuilt_library

WHEELS = os.environ.get("TILE_ORACLE_WHEELS")
PROGRAM = """
    import time

    from tile_oracle.data_files import data_folder
    from tile_oracle.pool import pool_of_kind
    from tile_oracle.problem import problem_from_id
    from tile_oracle.selector import native_library
    from tile_oracle.selector.ranker import NativeRanker

    problem = problem_from_id("forward-bf16-n8-c64-k64-i56x56-f3x3-p1")
    kernels = pool_of_kind(problem.kind, "gfx950", "default")
    start = time.perf_counter()
    native_library.load()
    library = time.perf_counter() - start
    start = time.perf_counter()
    ranker = NativeRanker.load(data_folder("models") / "grouped_conv_forward_bf16_gfx950", kernels)
    ranker.select(problem)
    pick = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(2000):
        ranker.select(problem)
    print(library * 1e3, pick * 1e3, (time.perf_counter() - start) / 2000 * 1e6)
"""


@pytest.mark.skipif(not WHEELS, reason="set TILE_ORACLE_WHEELS to the folder of `make wheels`")
@pytest.mark.parametrize(
    ("tag", "rounds"), [(prebuilt_library.platform_tag(platform.machine()), 5), ("py3-none-any", 1)]
)
def test_first_pick(benchmark, tmp_path: Path, tag: str, rounds: int) -> None:
    python = install(next(Path(WHEELS or "").resolve().glob(f"*-{tag}.whl")), tmp_path / "venv")
    said = []

    def first() -> None:
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        said.append([float(word) for word in run(python, PROGRAM, tmp_path, tag == "py3-none-any").split()])

    benchmark.pedantic(first, rounds=rounds)
    library_ms, pick_ms, again_us = (sorted(column)[len(said) // 2] for column in zip(*said, strict=True))
    print(
        f"\n{tag}: library {library_ms:,.1f} ms, model and pick {pick_ms:.1f} ms, then {again_us:.1f} us each"
    )
