"""Fixtures: synthetic measurements, and the public gfx950 files if available."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pandas as pd

GFX950_VARIABLE = "TILE_ORACLE_GFX950_MEASUREMENTS"
"""Names the folder with the public gfx950 measurements (CONTRIBUTING.md)."""


def gfx950_folder() -> Path | None:
    """The folder with the public gfx950 measurements; None where the variable does not name one."""
    folder = Path(os.environ.get(GFX950_VARIABLE) or "-")
    return folder if folder.is_dir() else None


def gfx950_file(name: str) -> Path:
    """One of the public files; the test is skipped where it is not at hand."""
    folder = gfx950_folder()
    if folder is None or not (folder / name).is_file():
        pytest.skip(f"needs {name} of the public gfx950 measurements: {GFX950_VARIABLE} names their folder")
    return folder / name


@pytest.fixture(scope="session")
def records() -> pd.DataFrame:
    """40 problems with ten kernels."""
    from tests.made_records import make_kernels, make_problems, make_records

    return make_records(make_problems(40), make_kernels())


def _public(name: str) -> pd.DataFrame:
    path = gfx950_file(name)
    from tile_oracle.foreign.importers import import_file

    return import_file(path, "gfx950", trust_unverified=True).records


@pytest.fixture(scope="session")
def public_training() -> pd.DataFrame:
    return _public("training_data_forward_bf16_20.csv")


@pytest.fixture(scope="session")
def public_dev() -> pd.DataFrame:
    return _public("benchmark_forward_bf16_gfx950_dev.csv")


@pytest.fixture(scope="session")
def published_picks() -> Path:
    return gfx950_file("ml_predictions_top5_dev.csv")
