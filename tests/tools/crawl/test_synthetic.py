"""Synthetic problems."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tile_oracle.operations.grouped_conv.problem import DIRECTIONS
from tools.crawl.synthetic import synthetic_problems


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_each_problem_matches_its_stated_reason(direction: str) -> None:
    by_why = defaultdict(list)
    for problem, why in synthetic_problems(direction, "bf16", 1):
        assert (problem.direction, problem.dtype) == (direction, "bf16")
        by_why[why].append(problem)
    assert all(max(p.dilation) > 1 for why in by_why if "dilated" in why for p in by_why[why])
    assert all(p.ndim == 3 for why in by_why if "3D" in why for p in by_why[why])
    assert all(p.ndim == 2 for why in by_why if "3D" not in why for p in by_why[why])
    assert all(p.C == p.G for p in by_why["depthwise"])
    assert all(p.G > 1 for p in by_why["grouped"] + by_why["3D grouped"])
    assert {2, 4, 8} <= {p.G for p in by_why["grouped"]}
    assert all(max(p.C, p.K) >= 8 * min(p.C, p.K) for p in by_why["asymmetric channels"])
    assert any(p.C % 8 and p.K % 8 for p in by_why["odd channels"])
    assert all(max(p.filter) > 3 for p in by_why["large filter"])
    assert all(max(p.stride) > 1 for p in by_why["stride"])
    assert all(len(problems) >= 40 for problems in by_why.values())


def test_they_are_reproducible_and_unique() -> None:
    first = list(synthetic_problems("forward", "bf16", 1))
    assert first == list(synthetic_problems("forward", "bf16", 1))
    assert len({problem for problem, _ in first}) == len(first)
    assert first != list(synthetic_problems("forward", "bf16", 2))


def test_directions_get_different_geometry() -> None:
    forward, data, weight = (
        {problem.key[3:] for problem, _ in synthetic_problems(direction, "bf16", 1)}
        for direction in DIRECTIONS
    )
    assert len(forward & data) < 0.3 * len(forward)
    assert len(data & weight) < 0.3 * len(data)
