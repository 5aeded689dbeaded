"""Parametrized tests of which a default run takes a sample."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

ONE_AND_TWO_WORKERS = [
    pytest.param((), id="one process"),
    pytest.param(("-n2",), id="two workers", marks=pytest.mark.slow),
]
"""Parameters of a test that gives its sessions further options."""


def sampled(values: Iterable[Any], every: int) -> list[Any]:
    """Parameters for `pytest.mark.parametrize`: all but each `every`th one are marked slow."""
    parameters: list[Any] = []
    for number, value in enumerate(values):
        parameters += [value] if number % every == 0 else slow(value)
    return parameters


def slow(*values: Any) -> list[Any]:
    """Parameters for `pytest.mark.parametrize` that are marked slow."""
    return [pytest.param(*_of(value), marks=pytest.mark.slow) for value in values]


def _of(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
