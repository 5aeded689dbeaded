"""`--first N`: the kernels that a picker ranks highest are measured on every problem before all others."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from tests.pytest_project import KERNELS, PROBLEMS, SHORTLY, TWO_KERNELS, Project
from tests.session.test_picks_file import DIMENSIONS
from tile_oracle.problem import problem_from_id
from tile_oracle.record.dataset import load_records

SMALL = ("--problem-set", "small.csv", *TWO_KERNELS[:2], "--kernel-filter", "tile_m == 16", *SHORTLY)
PICKED = KERNELS[1]
"""The second kernel of the pool."""


@pytest.fixture
def project(make_project: Callable[[], Project]) -> Project:
    project = make_project()
    rows = [
        {name: getattr(problem_from_id(one), name) for name in DIMENSIONS}
        | {"kernel_name": f"grouped_conv_forward_fp32_2d_{PICKED}", "predicted_tflops": 5}
        for one in PROBLEMS[:2]
    ]
    pd.DataFrame(rows).to_csv(project.folder / "picks.csv", index=False)
    return project


@pytest.mark.slow
def test_the_picked_kernels_come_first_and_are_judged_at_once(project: Project) -> None:
    done = project.pytest(*SMALL, "--model=picks.csv", "--first=1", "--run-name=one", "--allow=no-baseline")
    assert done.status == 0, done.output
    rows = load_records(project.folder / "reports" / "one").sort_values("time")
    swept = rows[rows["round"] == 0]
    assert swept["problem"].tolist() == [*PROBLEMS[:2]] * 2
    assert [name.endswith(PICKED) for name in swept["kernel"]] == [True, True, False, False]
    # The leaders are measured again once all kernels of their problem have been.
    again = rows[rows["round"] == 1]
    assert again["time"].min() > swept["time"].iloc[2]
    assert sorted(again["problem"]) == sorted([*PROBLEMS[:2]] * 2)
    (said,) = (line for line in done.lines if line.startswith("small: the first 1 kernels"))
    assert "of each problem, by picks, after 0:" in said
    assert "mean efficiency at most 100.0 %, P10 100.0 %, on 2 problems; the rest of the pool may be" in said


@pytest.mark.parametrize("words", [("-n", "2"), ("--target", "replay"), ("--first=0",)])
def test_where_it_has_no_meaning(project: Project, words: tuple[str, ...]) -> None:
    done = project.pytest("--problem-set", "small.csv", "--first=1", *words)
    assert done.status == 4
    assert "--first" in done.last
