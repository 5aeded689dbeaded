"""Pairs that the rules refuse are not candidates of a session's model."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.pools import kernel_pool
from tile_oracle.arch import load_arch
from tile_oracle.evaluation.folder_model import without_refused
from tile_oracle.problem import problem_from_id

PROBLEM = problem_from_id("forward-bf16-n1-c64-k64-i9x9-f3x3-p1")
POINTWISE = problem_from_id("forward-bf16-n1-c64-k64-i9x9-f1x1")
POOL = kernel_pool("forward", "bf16", 2, "sm_90")
EXPLICIT = next(kernel for kernel in POOL if kernel.explicit_gemm)
PLAIN = next(kernel for kernel in POOL if not kernel.explicit_gemm and kernel.num_groups_to_merge == 1)


def test_the_rules_refuse_the_example() -> None:
    assert load_arch("sm_90").problem_refusal(EXPLICIT, PROBLEM)
    assert not load_arch("sm_90").problem_refusal(EXPLICIT, POINTWISE)


@pytest.mark.parametrize("status", ["ok", "unsupported", "wrong", None])
def test_only_refused_kernels_leave_the_ranking(status: str | None) -> None:
    """Others keep their place whatever became of them, and so does what was measured against the rules."""
    pairs = [(PROBLEM, EXPLICIT), (PROBLEM, PLAIN), (POINTWISE, EXPLICIT), (POINTWISE, PLAIN)]
    rankings = pd.DataFrame(
        {
            "problem": [problem.id for problem, _ in pairs],
            "kernel": [kernel.name for _, kernel in pairs],
            "predicted_tflops": [4.0, 3.0, 2.0, 1.0],
        }
    )
    records = pd.DataFrame({"problem": [], "kernel": [], "status": []}, dtype=object)
    if status is not None:
        records = rankings[["problem", "kernel"]].assign(status=status)
    left = without_refused(rankings, records, "sm_90")
    assert left["predicted_tflops"].tolist() == ([4.0, 3.0, 2.0, 1.0] if status == "ok" else [3.0, 2.0, 1.0])
    assert left.index.tolist() == list(range(len(left)))
