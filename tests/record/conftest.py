"""Rows as the measuring side makes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harness.kernel import GroupedConvKernel
from harness.measure.measurement import Measurement
from harness.problem import GroupedConvProblem

Row = dict[str, Any]


@pytest.fixture
def make_row() -> Callable[..., Row]:
    """make_row(n, **columns): the row of the n-th pair of a run, measured n seconds after its start."""

    def make(n: int = 0, **columns: Any) -> Row:
        problem = GroupedConvProblem("forward", "fp32", 2, 1, 4, 4, 1, 5 + n // 4, 5, 3, 3)
        kernel = GroupedConvKernel("forward", "fp32", 2, 16, 16 + n % 4, 16, 1, 1, 1, 4, 16, 1)
        measurement = Measurement(
            problem, kernel, "ok", "", 0, 0.5 + n, 0.25 + n, 0.01, 11, check="full", check_points=36
        )
        time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) + timedelta(seconds=n)
        return {"run": "r", "time": time.isoformat(), **measurement.as_row(), **columns}

    return make
