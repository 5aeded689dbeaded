"""Sick devices are found; a hard problem, or a fleet of few, makes no device sick."""

from __future__ import annotations

import math

from tile_oracle.measure.assignments import Result
from tile_oracle.measure.health import Health


def result(latency_ms: float, status: str = "ok") -> Result:
    return Result(status, "", 0, latency_ms if status == "ok" else math.nan, 0.9, 0.01, 20, "full", 9)


def fleet(*times: float, kind: str = "H200") -> Health:
    health = Health()
    for number, time in enumerate(times):
        health.calibrated(f"d{number}", kind, {"k1": result(time), "k2": result(10 * time)})
    return health


def test_equal_devices_are_healthy_and_have_a_spread() -> None:
    health = fleet(1.0, 1.05, 1.02)
    assert health.sick() == {}
    (spread,) = health.spreads()
    assert (spread.devices, spread.fastest, spread.slowest) == (3, "d0", "d1")
    assert math.isclose(spread.percent, 5.0)


def test_the_slow_device_among_three_is_sick() -> None:
    assert fleet(1.0, 3.0, 1.0).sick() == {"d1": "it takes 200 % more time than the others of its kind"}
    assert fleet(1.0, 1.2, 1.0).sick() == {}


def test_of_two_devices_none_is_known_to_be_the_slow_one() -> None:
    assert fleet(1.0, 2.0).sick() == {}


def test_when_half_are_slow_none_is_sick() -> None:
    assert fleet(1.0, 1.0, 9.0, 9.0).sick() == {}


def test_a_kernel_that_works_elsewhere_makes_a_device_sick_and_a_bad_kernel_none() -> None:
    health = fleet(1.0, 1.0)
    health.calibrated("bad", "H200", {"k1": result(1.0, "wrong"), "k2": result(10.0)})
    assert health.sick() == {"bad": "the calibration kernel k1 is wrong, and works on 2 of 3 devices"}
    every = Health()
    for name in ("a", "b", "c"):
        every.calibrated(name, "H200", {"k1": result(1.0, "wrong")})
    assert every.sick() == {}


def test_kinds_are_not_compared() -> None:
    health = fleet(1.0, 1.0, 1.0)
    health.calibrated("cpu", "EPYC", {"k1": result(99.0), "k2": result(99.0)})
    assert health.sick() == {}


def test_hardware_throttling_of_one_device_is_found_and_a_power_cap_is_not() -> None:
    health = fleet(1.0, 1.0, 1.0)
    for _ in range(64):
        health.measured("d0", "power cap")
        health.measured("d1", "hardware thermal limit, power cap")
        health.measured("d2", "")
    assert list(health.sick()) == ["d1"]
    assert "in 64 of the last 64 measurements" in health.sick()["d1"]
    for _ in range(32):
        health.measured("d1", "")
    assert health.sick() == {}, "a half is not most"


def test_a_device_that_is_gone_is_forgotten_but_not_its_calibration() -> None:
    health = fleet(1.0, 1.3, 1.0)
    health.forget("d1")
    assert health.sick() == {}
    assert set(health.results("d1")) == {"k1", "k2"}
    assert health.speed("d1") is None
