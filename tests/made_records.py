"""Synthetic measurements with a known rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.operations.grouped_conv.kernel import PUBLISHED_TILES, GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem import Problem
from tile_oracle.record.schema import arrow_schema


def make_problems(count: int, seed: int = 0) -> list[GroupedConvProblem]:
    random = np.random.default_rng(seed)
    problems = {}
    while len(problems) < count:
        channels, outputs = (int(64 * random.integers(1, 12)) for _ in range(2))
        size = int(random.integers(7, 120))
        filter_extent = int(random.choice([1, 3]))
        tail = f"c{channels}-k{outputs}-i{size}x{size}-f{filter_extent}x{filter_extent}"
        pad = "-p1" if filter_extent > 1 else ""
        problem = GroupedConvProblem.from_id(f"forward-bf16-n{random.integers(1, 9)}-{tail}{pad}")
        problems[problem.key] = problem
    return list(problems.values())


def make_kernels(pipelines: tuple[str, ...] = ("compv3",)) -> list[GroupedConvKernel]:
    return [
        parse_kernel_name(f"grouped_conv_forward_bf16_2d_{'x'.join(map(str, tile))}_{pipeline}")
        for tile in PUBLISHED_TILES
        for pipeline in pipelines
    ]


def true_time_ms(problem: GroupedConvProblem, kernel: GroupedConvKernel) -> float:
    """A start, and K steps in rounds over 256 compute units; nothing but the tile decides."""
    m, n, k = problem.gemm_shape
    rounds = -(-(-(-m // kernel.tile_m) * -(-n // kernel.tile_n)) // 256)
    steps = rounds * -(-k // kernel.tile_k)
    return 0.003 + steps * 4e-9 * (kernel.tile_m * kernel.tile_n * kernel.tile_k) ** 0.9


def made_row(
    problem: Problem, kernel: Kernel, latency_ms: float | None, arch: str = "gfx950", **fields: object
) -> dict[str, object]:
    """A row of an `ok` measurement, with what records need at least."""
    return {
        **kernel.as_row(), **problem.as_row(), "run": "made", "round": 0, "op": problem.op,
        "problem": problem.id, "kernel": kernel.name, "status": "ok", "latency_ms": latency_ms,
        "tflops": None if latency_ms is None else problem.tflops(latency_ms),
        "target": arch, "arch": arch, "device": arch, **fields,
    }  # fmt: skip


def made_table(rows: Sequence[Mapping[str, object]], op: str) -> pd.DataFrame:
    """Rows with all columns of an operation's records, all of one time."""
    return pd.DataFrame(rows).reindex(columns=arrow_schema(op).names).assign(time=pd.Timestamp(0, tz="UTC"))


def make_records(
    problems: list[GroupedConvProblem],
    kernels: list[GroupedConvKernel],
    noise: float = 0.002,
    seed: int = 0,
    arch: str = "gfx950",
) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    rows = []
    for problem in problems:
        for kernel in kernels:
            latency = true_time_ms(problem, kernel) * float(np.exp(noise * random.standard_normal()))
            rows.append(made_row(problem, kernel, latency, arch))
    return pd.DataFrame(rows).reindex(columns=arrow_schema().names)
