"""The first pick of a new installation: with the wheel's compiled selector, and compiled from source.

make installed
TILE_ORACLE_INSTALLED=build/installed pytest benchmarks/test_first_pick.py --benchmark-only -s
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.installed.environment import MADE, run

PROGRAM = """
    import time

    from tile_oracle.files.data_files import data_folder
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


@pytest.mark.skipif(not MADE, reason="set TILE_ORACLE_INSTALLED to the folder of `make installed`")
@pytest.mark.parametrize(("kind", "rounds"), [("native", 5), ("any", 1)])
def test_first_pick(benchmark, tmp_path: Path, kind: str, rounds: int) -> None:
    said = []

    def first() -> None:
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        said.append([float(word) for word in run(kind, PROGRAM, tmp_path, kind == "any").split()])

    benchmark.pedantic(first, rounds=rounds)
    library_ms, pick_ms, again_us = (sorted(column)[len(said) // 2] for column in zip(*said, strict=True))
    print(
        f"\n{kind}: library {library_ms:,.1f} ms, model and pick {pick_ms:.1f} ms, "
        f"then {again_us:.1f} us each"
    )
