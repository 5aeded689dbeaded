"""Every kernel of the default pool, in each direction, 2D and 3D, on awkward problems: right, or refused."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from benchmarks.gpu.figures import numerics
from benchmarks.gpu.setting import HERE, Setting, note, run_session, write_problems
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS
from tile_oracle.problem_set import load_problem_sets

ONCE = ("--samples=1", "--kernel-budget=1ms")
DTYPES = os.environ.get("TILE_ORACLE_FIGURES_DTYPES", "bf16,fp16").split(",")


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_awkward_problems(dtype: str, direction: str, ndim: int, setting: Setting) -> None:
    problems = [
        replace(problem, dtype=dtype)  # type: ignore[type-var]
        for problem in load_problem_sets(str(HERE / "awkward.csv")).problems
        if (problem.direction, problem.ndim) == (direction, ndim)  # type: ignore[union-attr]
    ]
    assert len(problems) == {2: 20, 3: 8}[ndim]
    name = f"awkward-{direction}-{dtype}-{ndim}d"
    path = write_problems(setting, name, problems[:2] if setting.dry else problems)
    found = numerics(run_session(setting, name, path, *ONCE).records)
    note(setting, name, found)
    assert found.bad == ()
    assert found.kernels > 0
    assert found.never_ran == (), "kernels that no problem of the set could use"


def test_more_than_two_gib(setting: Setting) -> None:
    """1x1, so the device's plain reference comes to an end."""
    if setting.dry:
        pytest.skip("a dry run: a CPU would take hours")
    found = numerics(run_session(setting, "large", HERE / "large.csv", *ONCE).records)
    note(setting, "large", found)
    assert found.bad == ()
    assert found.statuses.get("ok", 0) > 0
