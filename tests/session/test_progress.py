"""Counting pairs and reporting the progress of a sweep."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.session.progress import Progress, ProgressLine
from tile_oracle.session.time_left import (
    Measured,
    Work,
    beyond_s,
    expected_times,
    fit_pair_time,
    time_left_s,
    where_time_went,
)


def fact(
    problem: str, kernel: str, status: str = "ok", tflops: float | None = None, **more: object
) -> dict[str, object]:
    return {"problem": problem, "kernel": kernel, "status": status, "tflops": tflops} | more


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch) -> Progress:
    """Two problems of two pairs; every reading of the clock is a second later."""
    now = iter(range(1000))
    monkeypatch.setattr("time.monotonic", lambda: float(next(now)))
    made = Progress()
    made.plan([("p", "a"), ("q", "a"), ("p", "b"), ("q", "b")])
    return made


def test_a_problem_is_reported_after_its_last_pair(progress: Progress) -> None:
    assert progress.finished(fact("p", "a", tflops=0.5)) is None
    line = progress.finished(fact("p", "b", tflops=1.25))
    assert line.fitting(None).startswith("[1/2] p  2 ok  best 1.25 TFLOPS  ")
    assert line.fitting(None).endswith(" left  b")
    assert line.failures == 0


def test_failures_are_counted_by_status(progress: Progress) -> None:
    progress.finished(fact("p", "a", "wrong"))
    line = progress.finished(fact("p", "b", "unsupported"))
    assert line.fitting(None).startswith("[1/2] p  1 wrong, 1 unsupported  no ok kernel  ")
    assert line.fitting(None).endswith(" left")
    assert line.failures == 1, "unsupported is an answer"


def test_only_ok_kernels_can_be_the_best(progress: Progress) -> None:
    progress.finished(fact("p", "a", "noisy", 9.0))
    line = progress.finished(fact("p", "b", "ok", 1.0))
    assert line.fitting(None).endswith("  b")


def test_only_pairs_of_the_plan_count_and_each_once(progress: Progress) -> None:
    assert progress.finished(fact("elsewhere", "a")) is None
    assert progress.finished(fact("p", "of their own")) is None
    assert "0 of 4 pairs" in progress.status("")
    progress.finished(fact("p", "a"))
    assert progress.finished(fact("p", "a")) is None
    assert "1 of 4 pairs" in progress.status("")


def test_rate_and_time_left_come_from_measured_pairs(progress: Progress) -> None:
    progress.finished(fact("p", "a"))
    # Planned at 1 s, measured at 2 s: the other three take 3 s, one of which has passed.
    assert "1 of 4 pairs  1 pairs/s  0:02 left" in progress.status("p")


def test_the_time_left_does_not_grow_while_a_pair_takes_its_time(progress: Progress) -> None:
    progress.finished(fact("p", "a"))
    left = [progress.time_left() for _ in range(6)]
    assert left == ["0:02", "0:01", "0:00", "0:00", "0:00", "0:00"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which the test sets."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_long_problems_are_expected_to_take_longer(clock: list[float]) -> None:
    progress = Progress()
    flops = {"short": 1e6, "middle": 1e9, "long": 4e9}
    progress.plan([(name, kernel) for name in flops for kernel in "ab"], flops)
    for name, took_s in (("short", 0.1), ("middle", 1.1)):
        for kernel in "ab":
            clock[0] += took_s
            progress.finished(fact(name, kernel))
    assert progress.time_left() == "0:02", "the long ones are expected to take 2.2 s, as the middle ones"


def test_while_larger_problems_are_left_the_time_is_a_range(clock: list[float]) -> None:
    """Its upper end: they reach half of the rate of the best kernel so far, and run five times."""
    progress = Progress()
    flops = {"short": 1e9, "long": 1e13}
    progress.plan([(name, kernel) for name in flops for kernel in "abcd"], flops)
    clock[0] = 1.0
    progress.finished(fact("short", "a", tflops=0.5))
    clock[0] = 2.0
    assert progress.time_left() == "0:06 to 13:25", "four times 200 s"
    for kernel in "bcd":
        clock[0] += 1.0
        progress.finished(fact("short", kernel, tflops=2.0))
    clock[0] += 1.0
    progress.finished(fact("long", "a", tflops=2.0))
    assert "to" not in progress.time_left()


def test_what_the_first_pair_waited_for_compilers_does_not_count(clock: list[float]) -> None:
    progress = Progress()
    progress.builds = lambda: (48, 48)
    plan = [
        (name, kernel)
        for name, kernels in (("p", "ab"), ("q", "ab"), ("r", "abcdefghij"))
        for kernel in kernels
    ]
    progress.plan(plan, {"p": 1e6, "q": 1e9, "r": 1e9})
    for name, kernel, now in (("p", "a", 60.0), ("q", "a", 61.0), ("p", "b", 62.0), ("q", "b", 63.0)):
        clock[0] = now
        progress.finished(fact(name, kernel))
    clock[0] = 64.0
    assert progress.time_left() == "0:09", "three pairs took three seconds, and ten are left"


def test_a_replay_counts_problems_and_builds_nothing() -> None:
    progress = Progress()
    progress.replay(12)
    assert progress.status("p") == "[ 0/12] p  replaying"
    progress.ended()
    assert progress.status("q") == "[ 1/12] q  replaying"


def test_resumed_pairs_do_not_count_for_the_rate(progress: Progress) -> None:
    for kernel in "ab":
        line = progress.finished(fact("p", kernel, tflops=0.25, resumed=True))
    assert line.fitting(None).endswith("  resumed  a")
    progress.finished(fact("q", "a"))
    assert "3 of 4 pairs  1 pairs/s  0:00 left" in progress.status("q")


def test_the_first_state_is_building_kernels_which_are_counted(progress: Progress) -> None:
    assert progress.status("p") == "[0/2] p  0 of 4 pairs  building kernels"
    # Until the first pair is measured; five seconds for the fourth part leave fifteen.
    progress._started = -4.0
    progress.builds = lambda: (12, 48)
    assert progress.status("p").startswith("[0/2] p  0 of 4 pairs  built 12 of 48 kernels  0:")
    for nothing in ((0, 48), (48, 48), (50, 48), (0, 0)):
        progress.builds = lambda nothing=nothing: nothing  # type: ignore[misc]
        assert progress.status("p") == "[0/2] p  0 of 4 pairs  building kernels"


def test_the_wait_for_the_compiler_does_not_count_for_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pair took a minute of compiling: the others need not expect it."""
    now = iter([0.0, 0.0, 60.0, 61.0, 61.0, 61.0, 61.0])
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    progress = Progress()
    progress.builds = lambda: (48, 48)
    progress.plan([("p", kernel) for kernel in "abcd"])
    progress.finished(fact("p", "a"))
    assert progress.status("p").endswith("1 of 4 pairs  measuring")
    progress.finished(fact("p", "b"))
    assert progress.status("p").endswith("2 of 4 pairs  1 pairs/s  0:02 left")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_narrow_line_shortens_the_name_and_keeps_the_time_left(progress: Progress, width: int) -> None:
    name = "forward-bf16-n1-c64-k256-i56x56-f1x1-p1-and-a-longer-one-than-any-terminal-is-wide"
    progress.builds = lambda: (12, 48)
    line = progress.status(name, width)
    assert len(line) <= width or width == 40
    assert "built 12 of 48 kernels" in line
    assert line.endswith(" left")
    assert (name in line) == (width == 200)


def test_long_times_show_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 100000, 100))
    monkeypatch.setattr("time.monotonic", lambda: float(next(now)))
    progress = Progress()
    progress.plan(("p", str(number)) for number in range(101))
    progress.finished(fact("p", "0"))
    assert progress.time_left() == "2:45:00"


def test_a_narrow_terminal_drops_the_last_parts() -> None:
    line = ProgressLine(("[1/2] p", "2 ok", "best 1", "fast", "kernel"), 0)
    assert line.fitting(None) == "[1/2] p  2 ok  best 1  fast  kernel"
    assert line.fitting(35) == "[1/2] p  2 ok  best 1  fast  kernel"
    assert line.fitting(34) == "[1/2] p  2 ok  best 1  fast"
    assert line.fitting(22) == "[1/2] p  2 ok  best 1"
    assert line.fitting(3) == "[1/2] p  2 ok", "which problem, and what came of it, is always said"
    assert ProgressLine(("x", "1 wrong", "no ok kernel", "1/s", ""), 1).fitting(None).endswith("  1/s")


# The time left of a sweep as a function of what was measured.

PAIRS = st.integers(1, 5_000)
FLOPS = st.floats(1.0, 1e13)
SECONDS = st.floats(1e-3, 1e4)
WORK = st.builds(Work, PAIRS, FLOPS)
MEASURED = st.builds(Measured, PAIRS, FLOPS, SECONDS)


@given(
    st.lists(WORK, min_size=2, max_size=20),
    st.floats(1e-4, 10.0),
    st.floats(0.0, 1e-9),
    st.lists(PAIRS, min_size=1, max_size=5),
)
def test_times_that_grow_with_the_operations_are_found(
    works: list[Work], constant: float, per_flop: float, left: list[int]
) -> None:
    measured = [Measured(w.pairs, w.flops, w.pairs * (constant + per_flop * w.flops)) for w in works]
    rest = [replace(works[number % len(works)], pairs=pairs) for number, pairs in enumerate(left)]
    expected = sum(one.pairs * (constant + per_flop * one.flops) for one in rest)
    elapsed = sum(one.seconds for one in measured)
    assert time_left_s(fit_pair_time(measured), measured, rest, elapsed) == pytest.approx(expected, rel=1e-3)


@given(st.lists(MEASURED, max_size=20), FLOPS, PAIRS, PAIRS, SECONDS)
def test_equal_problems_take_equally_long(
    measured: list[Measured], flops: float, done: int, left: int, elapsed: float
) -> None:
    """Whatever others took: the rest is proportional to what was done of them."""
    found = time_left_s(fit_pair_time(measured), [Work(done, flops)], [Work(left, flops)], elapsed)
    assert found == pytest.approx(elapsed * left / done)


@given(st.lists(MEASURED, min_size=1, max_size=20), st.lists(WORK, max_size=10), SECONDS)
def test_a_pair_is_not_expected_to_take_longer_than_the_largest_measured_one(
    measured: list[Measured], left: list[Work], elapsed: float
) -> None:
    expected = fit_pair_time(measured)
    assert min(expected.constant, expected.per_flop) >= 0
    largest = max(one.flops for one in measured)
    limited = [replace(one, flops=min(one.flops, largest)) for one in left]
    found = time_left_s(fit_pair_time(measured), measured, left, elapsed)
    assert found == time_left_s(fit_pair_time(measured), measured, limited, elapsed)
    most = expected.of_all([Work(1, largest)])
    assert expected.of_all(left) <= sum(one.pairs for one in left) * most * (1 + 1e-9)


@given(st.lists(MEASURED, min_size=1, max_size=20), st.lists(WORK, max_size=10), WORK, SECONDS)
def test_more_work_takes_no_less_time(
    measured: list[Measured], left: list[Work], more: Work, elapsed: float
) -> None:
    found = time_left_s(fit_pair_time(measured), measured, left, elapsed)
    assert 0 <= found <= time_left_s(fit_pair_time(measured), measured, [*left, more], elapsed)


@given(st.lists(MEASURED, min_size=1, max_size=20), st.lists(WORK, min_size=1, max_size=10), SECONDS)
def test_units_do_not_matter(measured: list[Measured], left: list[Work], elapsed: float) -> None:
    found = time_left_s(fit_pair_time(measured), measured, left, elapsed)
    scaled = [Measured(one.pairs, one.flops / 1024, one.seconds / 64) for one in measured]
    rest = [replace(one, flops=one.flops / 1024) for one in left]
    assert time_left_s(fit_pair_time(scaled), scaled, rest, elapsed) == pytest.approx(found, rel=1e-6)


@given(st.integers(0, 19), st.floats(1.0, 1e4))
def test_one_problem_that_waited_for_a_compiler_does_not_mislead(place: int, waited_s: float) -> None:
    """Of twenty, whose pairs take 10 ms and 1 ms per GFLOP."""
    measured = [Measured(100, 1e9 * n, 100 * (0.01 + 0.001 * n)) for n in range(20)]
    measured[place] = replace(measured[place], seconds=measured[place].seconds + waited_s)
    expected = fit_pair_time(measured)
    assert expected.constant == pytest.approx(0.01, rel=0.25)
    assert expected.per_flop == pytest.approx(1e-12, rel=0.25)


def test_without_times_all_pairs_are_equal() -> None:
    assert time_left_s(fit_pair_time([]), [Work(2, 1e9)], [Work(6, 1e9), Work(4, 1e12)], 3.0) == 15.0
    assert time_left_s(fit_pair_time([]), [], [Work(6, 1e9)], 0.0) == 0.0
    assert time_left_s(fit_pair_time([Measured(4, 1e9, 0.0)]), [Work(4, 1e9)], [Work(8, 1e9)], 0.0) == 0.0


def test_larger_problems_and_more_kernels_are_expected_to_take_longer() -> None:
    large, small = "forward-fp32-n8-c64-k64-i56x56-f3x3-p1", "forward-fp32-n1-c8-k8-i6x6-f3x3"
    times = expected_times({small: 10, large: 10, "forward-fp32-n1-c16-k16-i5x5-f1x1": 15})
    assert sorted(times, key=lambda name: times[name]) == [small, "forward-fp32-n1-c16-k16-i5x5-f1x1", large]


def test_larger_problems_may_take_as_long_as_the_largest_measured_ones_rate_says() -> None:
    assert beyond_s([Work(10, 2e12)], 1e12, 1.0) == pytest.approx(10 * 5 * 1e12 / 0.5e12)
    assert beyond_s([Work(10, 1e12)], 2e12, 1.0) == 0.0
    assert beyond_s([Work(10, 1e12)], 0.0, 0.0) == 0.0, "nothing is known"


# Where a session's time went, in one line.

BEGAN = datetime(2026, 1, 2, tzinfo=UTC)


def rows(*ms: tuple[int, float, float, float | None]) -> pd.DataFrame:
    """Rows of (minutes since the session began, timed runs, checks, waiting for compilers)."""
    return pd.DataFrame(
        [
            {
                "time": pd.Timestamp(BEGAN) + timedelta(minutes=minutes),
                "busy_ms": busy,
                "check_ms": check,
                "build_wait_ms": wait,
            }
            for minutes, busy, check, wait in ms
        ]
    )


def test_the_shares_are_of_the_wall_time_and_of_all_workers() -> None:
    run = rows((-5, 60e3, 60e3, 60e3), (1, 30e3, 20e3, 10e3), (2, 10e3, 0.0, None))
    assert where_time_went(run, BEGAN, 100.0, 1, 5.0) == (
        "timed runs 40 %, checks 20 %, waiting for compilers 10 %, pytest 5 %, host 25 % of 100 s"
    )
    assert where_time_went(run, BEGAN, 100.0, 2, 5.0) == (
        "timed runs 20 %, checks 10 %, waiting for compilers 5 %, pytest 2 %, host 62 % of 100 s on 2 workers"
    )
    assert where_time_went(rows((-5, 1.0, 1.0, 1.0)), BEGAN, 100.0, 1, 5.0) == ""
    assert where_time_went(rows(), BEGAN, 100.0, 1, 5.0) == ""
