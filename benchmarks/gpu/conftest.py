"""Skips this folder where there is no GPU, saying why, unless a dry run on the CPU is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu.setting import Setting, find_setting, why_no_setting

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    why = why_no_setting()
    for item in items:
        if why and item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def setting() -> Setting:
    """Target, kernels and output folder of this session."""
    return find_setting()
