"""A project with a model and recorded measurements, for the sessions of one module."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.pytest_project import Project
    from tests.session.recorded import Recorded


@pytest.fixture(scope="module")
def recorded(make_project: Callable[[], Project]) -> Recorded:
    from tests.session.recorded import make_recorded

    return make_recorded(make_project())
