"""Parametrized tests of which a default run takes a sample."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], every: int) -> list[Any]:
    """Parameters for `pytest.mark.parametrize`: all but each `every`th one are marked slow."""
    return [
        value if number % every == 0 else pytest.param(*_of(value), marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]


def _of(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
