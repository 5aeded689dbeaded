"""Folders of runs with known figures, written as a session writes them, without measuring."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tile_oracle.files.sealed_json import seal
from tile_oracle.record.sealed_parquet import table_bytes

KERNEL = "grouped_conv_forward_bf16_2d_64x64x64_compv{}_intrawave_v{}x{}x{}"
FIRST = datetime(2026, 1, 1, 2, tzinfo=UTC)


def write_run(
    folder: Path,
    *,
    number: int = 0,
    mean: float = 95.0,
    problems: int = 5,
    picks: Mapping[int, int] | None = None,
    oracles: Mapping[int, int] | None = None,
    speed: float = 1.0,
    environment: Mapping[str, str] | None = None,
    sources: str = "a" * 64,
    measure_s: float = 0.0,
    **run: Any,
) -> Path:
    """One run. number: nights after FIRST. picks, oracles: problem -> number of a kernel, 1 elsewhere. speed:
    factor on every oracle's TFLOPS. measure_s: seconds between the first and the last of its measurements,
    four of 90 ms device time; 0: no measurements. run: members of the verdict's run."""
    folder.mkdir(parents=True)
    kernels = [KERNEL.format(3 + n % 3, 2**n, 2**n, 2**n) for n in range(4)]
    names = [f"forward-bf16-n1-c64-k{64 * (n + 1)}-i14x14-f1x1" for n in range(problems)]
    when = FIRST + timedelta(days=number)
    verdict = {
        "schema": 1,
        "state": "passed",
        "verdict": {"new_failures": []},
        "efficiency": {
            "mean_percent": mean,
            "median_percent": mean + 2,
            "p10_percent": mean - 10,
            "min_percent": mean - 20,
            "coverage_percent": 100.0,
        },
        "model": {"kind": "folder", "name": "old"},
        "run": {
            "name": folder.name,
            "problem_set": "forward_smoke",
            "kernel_set": "default",
            "arch": "gfx950",
            "device": "AMD Instinct MI350X",
            "created": when.isoformat(),
            "environment": {"driver": "amdgpu 6.16", "toolchain": "clang 22", **(environment or {})},
            "replayed": "",
            **run,
        },
        "scope": {"measured": 100, "complete": True},
    }
    (folder / "verdict.json").write_text(json.dumps(seal(verdict)))
    purpose = {"purpose": {"sources and toolchain": sources}, "started": when.isoformat()}
    (folder / "run.json").write_text(json.dumps(seal(purpose)))
    (folder / "report.html").write_text("<title>report</title>")
    chosen = {
        "problem": names,
        "pick_kernel": [kernels[(picks or {}).get(n, 1)] for n in range(problems)],
        "oracle_kernel": [kernels[(oracles or {}).get(n, 1)] for n in range(problems)],
        "efficiency": [mean / 100] * problems,
        "oracle_tflops": [speed * (10.0 + n) for n in range(problems)],
    }
    (folder / "selection.parquet").write_bytes(table_bytes(pa.table(chosen)))
    if measure_s:
        (folder / "measurements").mkdir()
        rows = {
            "problem": names[:4],
            "busy_ms": [90.0] * 4,
            "time": [when + timedelta(seconds=measure_s * i / 3) for i in range(4)],
        }
        (folder / "measurements" / "part-main-1-1.parquet").write_bytes(table_bytes(pa.table(rows)))
    return folder


def write_nights(root: Path, means: Any, **varying: Callable[[int], Any]) -> None:
    """One run a night with these means. varying: what `write_run` takes, as a function of the night."""
    for number, mean in enumerate(means):
        values = {name: of(number) for name, of in varying.items()}
        write_run(root / f"night-{number:04}", number=number, mean=float(mean), **values)


def noisy_means(count: int, seed: int, level: float = 95.0, noise: float = 0.3) -> np.ndarray:
    """Means around one level."""
    return level + noise * np.random.default_rng(seed).standard_normal(count)
