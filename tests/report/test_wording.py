"""Numbers and names as reports show them."""

from __future__ import annotations

import math

import pytest

from tile_oracle.pages.words import amount, listed, microseconds, tflops


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1784.54, "1,785"),
        (531.39, "531.4"),
        (23.018, "23.02"),
        (2.64, "2.640"),
        (0.37, "0.370"),
        (0.0, "0"),
        (None, "-"),
        (math.nan, "-"),
    ],
)
def test_a_time_has_four_digits_and_at_most_nanoseconds(value: float | None, shown: str) -> None:
    assert microseconds(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (156e9, "156 G"),
        (4990.0, "4.99 k"),
        (48.0, "48"),
        (999.6e6, "1.00 G"),
        (999.4e6, "999 M"),
        (12.34e12, "12.3 T"),
        (1000.0, "1.00 k"),
        (2e18, "2,000 P"),
        (None, "-"),
    ],
)
def test_operations_have_three_digits_and_a_prefix(value: float | None, shown: str) -> None:
    assert amount(value) == shown


def test_a_prefix_stands_before_its_unit() -> None:
    assert amount(1.216e9, "B") == "1.22 GB"
    assert amount(48.0, "FLOP") == "48 FLOP"


@pytest.mark.parametrize(
    ("value", "shown"), [(1.0, "1.000"), (338.0, "338.0"), (999.97, "1,000"), (0.0061, "0.006100")]
)
def test_a_speed_keeps_its_four_digits(value: float, shown: str) -> None:
    assert tflops(value) == shown


def test_a_list_in_a_sentence() -> None:
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
