"""Kernels that cheat when they are timed, each in a whole sweep among innocent ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.misbehaviour.families import Family
from tests.misbehaviour.runner import Lab, lab
from tests.misbehaviour.timing import TIMING


@pytest.fixture(scope="module")
def the_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("cheats"), TIMING) as made:
        yield made


@pytest.mark.parametrize("family", TIMING, ids=lambda family: family.name)
def test_a_cheat_gets_its_status(family: Family, the_lab: Lab) -> None:
    assert not the_lab.measure(family).broken(family)
