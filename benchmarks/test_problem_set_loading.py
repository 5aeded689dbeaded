"""Loading 2,000 problems from a file: well under 100 ms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem_set import format_problem_set, load_problem_set


def test_load_2000_problems(benchmark: Any, tmp_path: Path) -> None:
    problems = [
        GroupedConvProblem("forward", "bf16", 2, N=n, C=8 * c, K=64, G=1, Hi=56, Wi=56, Y=3, X=3, pad_h=1)
        for n in range(1, 41)
        for c in range(1, 51)
    ]
    path = tmp_path / "two_thousand.csv"
    path.write_text(format_problem_set(problems, ["timm/resnet50@224x224"] * len(problems), "made up"))
    loaded = benchmark(load_problem_set, path)
    assert len(loaded.problems) == 2000
