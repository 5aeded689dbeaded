"""Synthetic measurements with a known rule."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tile_oracle.kernel import parse_kernel_name
from tile_oracle.operations.grouped_conv.kernel import PUBLISHED_TILES, GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.record.schema import arrow_schema


def make_problems(count: int, seed: int = 0) -> list[GroupedConvProblem]:
    random = np.random.default_rng(seed)
    problems = {}
    while len(problems) < count:
        channels, outputs = (int(64 * random.integers(1, 12)) for _ in range(2))
        size = int(random.integers(7, 120))
        filter_extent = int(random.choice([1, 3]))
        problem = GroupedConvProblem(
            "forward",
            "bf16",
            2,
            N=int(random.integers(1, 9)),
            C=channels,
            K=outputs,
            G=1,
            Hi=size,
            Wi=size,
            Y=filter_extent,
            X=filter_extent,
            pad_h=filter_extent // 2,
            pad_w=filter_extent // 2,
        )
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
            rows.append(
                {
                    **kernel.as_row(),
                    **problem.as_row(),
                    "run": "made",
                    "round": 0,
                    "op": "grouped_conv",
                    "problem": problem.id,
                    "kernel": kernel.name,
                    "status": "ok",
                    "latency_ms": latency,
                    "tflops": problem.tflops(latency),
                    "target": arch,
                    "arch": arch,
                    "device": arch,
                }
            )
    table = pd.DataFrame(rows)
    return table.reindex(columns=arrow_schema().names)
