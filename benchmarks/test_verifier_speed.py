"""Verifying the waits of a kernel for gfx950: under 0.3 s of processor time a kernel."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.source import gpu_code_refusal
from tile_oracle.operation import Kind
from tile_oracle.pool import pool_of_kind
from tile_oracle.verify.verifier import verify_assembly

ARCH = "gfx950"
KINDS = (
    Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2),
    Kind.of("gemm", dtype="bf16", layout="rcr"),
)
OF_EACH = 12


def test_verify_a_kernel(benchmark: Any, tmp_path: Path) -> None:
    """A random sample of the default pools. Compiling them is not part of the time."""
    kernels = []
    for kind in KINDS:
        with_code = [one for one in pool_of_kind(kind, ARCH) if gpu_code_refusal(one, ARCH) is None]
        kernels += random.Random(1).sample(with_code, OF_EACH)
    with Builder(ARCH, build_dir=tmp_path, runs_here=False) as builder:
        texts = [builder.assembly(kernel) for kernel in kernels]
    longest, rounds = 0.0, []

    def verify_all() -> None:
        nonlocal longest
        first = time.process_time()
        for text in texts:
            begun = time.process_time()
            assert not verify_assembly(text).findings
            longest = max(longest, time.process_time() - begun)
        rounds.append(time.process_time() - first)

    benchmark.pedantic(verify_all, rounds=2)
    # Of the processor, which other work on the machine disturbs less than the time on a clock.
    benchmark.extra_info["mean_s"] = min(rounds) / len(kernels)
    benchmark.extra_info["longest_s"] = longest
    print(f"\n{len(kernels)} kernels: {benchmark.extra_info['mean_s']:.3f} s each, {longest:.3f} s at most")
