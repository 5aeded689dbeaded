"""Synthetic runs with the shape of real ones: records, rankings and problems made from the real classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.judge.baseline import Baseline, make_baseline
from tile_oracle.operations.grouped_conv.kernel import PUBLISHED_TILES, GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.record.schema import columns
from tile_oracle.report.data import ReportData

PIPELINES = ("compv3", "compv4", "compv5")


def some_problems(count: int, direction: str = "forward", dtype: str = "fp32") -> list[GroupedConvProblem]:
    """Distinct problems with the usual variety: 1x1 and 3x3, strides, dilation, groups, 3D."""
    found: dict[Any, GroupedConvProblem] = {}
    rng = np.random.default_rng(7)
    while len(found) < count:
        filter_ = int(rng.choice([1, 3, 5]))
        channels = int(rng.integers(1, 33)) * 8
        groups = int(rng.choice([1, 1, 1, 2, 8]))
        extra = (
            {"ndim": 3, "Di": 4, "Z": filter_, "pad_d": filter_ // 2} if rng.random() < 0.1 else {"ndim": 2}
        )
        dilation = int(rng.choice([1, 1, 2])) if filter_ > 1 else 1
        problem = GroupedConvProblem(
            direction=direction,
            dtype=dtype,
            N=int(rng.integers(1, 9)),
            C=channels,
            K=int(rng.integers(1, 33)) * 8,
            G=groups,
            Hi=int(rng.integers(9, 60)),
            Wi=int(rng.integers(9, 60)),
            Y=filter_,
            X=filter_,
            stride_h=int(rng.choice([1, 2])),
            stride_w=1,
            pad_h=filter_ // 2,
            pad_w=filter_ // 2,
            dilation_h=dilation,
            dilation_w=dilation,
            **extra,
        )
        found[problem.key] = problem
    return list(found.values())


def some_kernels(count: int, problem: GroupedConvProblem) -> list[GroupedConvKernel]:
    """Published tiles x pipelines x schedulers x flags, for the problem's kind."""
    kernels: list[GroupedConvKernel] = []
    for scheduler in ("intrawave", "interwave"):
        for flags in ((False, False), (True, False), (False, True), (True, True)):
            for pipeline in PIPELINES:
                for tile, (waves, warp_tile) in PUBLISHED_TILES.items():
                    kernels.append(
                        GroupedConvKernel(
                            problem.direction,
                            problem.dtype,
                            problem.ndim,
                            *tile,
                            *waves,
                            *warp_tile,
                            pipeline=pipeline,
                            scheduler=scheduler,
                            double_smem_buffer=flags[0],
                            split_image=flags[1],
                        )
                    )
                    if len(kernels) == count:
                        return kernels
    raise ValueError(f"no more than {len(kernels)} kernels are made here")


def record(
    problem: GroupedConvProblem,
    kernel: GroupedConvKernel | str,
    tflops: float | None = 1.0,
    *,
    status: str = "ok",
    round: int = 0,
    detail: str | None = None,
    minute: int = 0,
) -> dict[str, Any]:
    """One row of tile_oracle.record.schema."""
    named = kernel if isinstance(kernel, str) else kernel.name
    measured = status in ("ok", "noisy") and tflops is not None
    latency_ms = problem.flops / (tflops * 1e9) if measured and tflops else None
    return {
        **({} if isinstance(kernel, str) else kernel.as_row()), "run": "made-up",
        "time": pd.Timestamp("2026-01-02T03:04:05Z") + pd.Timedelta(minutes=minute),
        "harness_version": "0.1.0", "round": round, "op": problem.op, "problem": problem.id,
        **problem.as_row(), "kernel": named, "status": status, "detail": detail, "latency_ms": latency_ms,
        "latency_min_ms": None if latency_ms is None else latency_ms * 0.97,
        "spread": 0.02 if measured else None, "samples": 30 if measured else 0,
        "tflops": tflops if measured else None,
        "check": "full" if status in ("ok", "wrong", "noisy") else "none", "check_points": 1000,
        "target": "cpu", "arch": "x86_64-avx2", "device": "Some CPU @ 2.0 GHz", "driver": "Linux 6.1",
        "toolchain": "zig c++ 0.13", "flags": "-O3", "source_hash": "0" * 16, "binary_bytes": 9000, "seed": 1,
    }  # fmt: skip


def frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Rows as a table with all columns of the schema, in order."""
    return pd.DataFrame(rows, columns=[column.name for column in columns()])


def some_run(
    problems: Sequence[GroupedConvProblem],
    kernels_each: int = 30,
    *,
    seed: int = 1,
    failures: float = 0.03,
    leaders: int = 5,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(records, rankings) of a run: a sweep, leaders measured again, and a model that is good, not perfect.

    failures: share of pairs that are not ok.
    """
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    ranked: list[dict[str, Any]] = []
    details = {
        "wrong": "output[17] = 3.0, expected 4.0",
        "crash": "signal 11 (SIGSEGV)\n  stderr: \x1b[31mboom\x1b[0m <script>alert(1)</script>",
        "timeout": "no answer in 10 s",
        "build_error": "error: static assertion failed: tile_k % vector_a",
        "unsupported": "C/G = 3 is not a multiple of vector_a = 8",
        "noisy": "spread 0.4 after 2000 ms",
        "device_lost": "the known-good kernel failed after it",
    }
    for place, problem in enumerate(problems):
        kernels = some_kernels(kernels_each, problem)
        skill = rng.normal(0.0, 0.45, len(kernels))
        peak = 0.03 + 0.05 * rng.random()
        true = peak * np.exp(skill - skill.max())
        bad = rng.random(len(kernels)) < failures
        sweep = true * rng.normal(1.0, 0.03, len(kernels))
        for kernel, tflops, failed in zip(kernels, sweep, bad, strict=True):
            status = str(rng.choice(list(details))) if failed else "ok"
            rows.append(
                record(
                    problem, kernel, float(tflops), status=status, detail=details.get(status), minute=place
                )
            )
        best = [i for i in np.argsort(-sweep) if not bad[i]][:leaders]
        again = true * rng.normal(1.0, 0.01, len(kernels))
        rows += [record(problem, kernels[i], float(again[i]), round=1, minute=place) for i in best]
        predicted = true * np.exp(rng.normal(0.0, 0.15, len(kernels)))
        ranked += [
            {"problem": problem.id, "kernel": kernel.name, "predicted_tflops": float(value)}
            for kernel, value in zip(kernels, predicted, strict=True)
        ]
    return frame(rows), pd.DataFrame(ranked, columns=["problem", "kernel", "predicted_tflops"])


def accepted(data: ReportData) -> Baseline:
    """The baseline of a run whose picks are accepted."""
    identity = {one.name: "x" for one in fields(Baseline) if one.type == "str"}
    return make_baseline(data.selection, data.final, **identity)
