"""The lowest versions of the dependencies."""

from __future__ import annotations

import pytest

from tools.tested_versions import NoFloorError, dependencies, lowest_versions


def test_every_dependency_has_a_lowest_version() -> None:
    found = lowest_versions(dependencies())
    assert len(found) == len(dependencies())
    assert "pytest-xdist==3.7" in found
    assert any(one.startswith("ziglang==") for one in found), "the marker of the machine is left out"


@pytest.mark.parametrize(
    "requirement", ["numpy", "numpy<2", "numpy>=1.26,<3", "numpy==1.26", "numpy @ file:///x"]
)
def test_a_dependency_without_one_is_refused(requirement: str) -> None:
    with pytest.raises(NoFloorError, match="has no lowest version: write NAME>=VERSION"):
        lowest_versions([requirement])
