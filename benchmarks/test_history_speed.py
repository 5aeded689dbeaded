"""How long the history of 1,000 runs of 300 problems takes: read, and shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.history.made_runs import noisy_means, write_nights
from tile_oracle.history.group import groups_of
from tile_oracle.history.page import history_html
from tile_oracle.history.runs import read_runs

RUNS, PROBLEMS = 1000, 300


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A level with one step; every night three oracles of near equals swap."""
    root = tmp_path_factory.mktemp("nights")
    random = np.random.default_rng(1)
    means = noisy_means(RUNS, 1)
    means[600:] -= 1
    write_nights(
        root,
        means,
        problems=lambda n: PROBLEMS,
        oracles=lambda n: {int(one): 2 for one in random.integers(0, PROBLEMS, 3)},
        speed=lambda n: float(np.exp(0.002 * random.standard_normal())),
    )
    return root


def test_reading(nights: Path, benchmark: Any) -> None:
    found = benchmark.pedantic(lambda: read_runs(nights), rounds=2)
    assert len(found.runs) == RUNS


def test_steps_and_page(nights: Path, benchmark: Any) -> None:
    found = read_runs(nights)

    def page() -> str:
        return history_html(found, groups_of(found.runs), nights / "history.html")

    html = benchmark(page)
    benchmark.extra_info["page_bytes"] = len(html.encode())
    assert "step" in html
