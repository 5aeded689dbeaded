"""Fixtures: made-up measurements, and the public gfx950 files where they are at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pandas as pd

GFX950 = Path(__file__).parents[1].parent / "shared" / "gfx950"


@pytest.fixture(scope="session")
def records() -> pd.DataFrame:
    """40 problems with ten kernels."""
    from tests.made_records import make_kernels, make_problems, make_records

    return make_records(make_problems(40), make_kernels())


def _public(name: str) -> pd.DataFrame:
    path = GFX950 / name
    if not path.is_file():
        pytest.skip(f"the public gfx950 measurements are not at hand ({name} in ../shared/gfx950)")
    from tile_oracle.record.importers import import_file

    return import_file(path, "gfx950", trust_unverified=True).records


@pytest.fixture(scope="session")
def public_training() -> pd.DataFrame:
    return _public("training_data_forward_bf16_20.csv")


@pytest.fixture(scope="session")
def public_dev() -> pd.DataFrame:
    return _public("benchmark_forward_bf16_gfx950_dev.csv")


@pytest.fixture(scope="session")
def published_picks() -> Path:
    path = GFX950 / "ml_predictions_top5_dev.csv"
    if not path.is_file():
        pytest.skip("the published picks are not at hand (../shared/gfx950)")
    return path
