"""The end of a sweep: leaders measured again, and kernels that have lost, which are not measured in full."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from evil_target import evil_kernel, small_problem

from tests.measure.sweeping import GOOD, LONGER, PROBLEM, SEQUENTIAL, SETTINGS, Opener, built, mode_of
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.record.schema import ROUND_FINAL, ROUND_SWEEP


def test_the_leaders_are_measured_again_and_the_slow_are_not(open_supervisor: Opener) -> None:
    kernels = [evil_kernel("good", i) for i in (1, 2)] + [evil_kernel("slow")]
    measurements = list(open_supervisor(settings=LONGER).sweep(PROBLEM, kernels))
    finals = [m for m in measurements if m.round == ROUND_FINAL]
    assert sorted(m.kernel.name for m in finals) == sorted(k.name for k in kernels[:2])
    for m in finals:
        assert (m.status, m.check, m.check_points) == ("ok", "full", 245)
        assert m.samples > 0
    slow = next(m for m in measurements if m.kernel == kernels[2])
    assert slow.latency_ms > 2 * min(m.latency_ms for m in finals)


@pytest.mark.slow
def test_a_kernel_that_crashes_in_the_final_round_is_recorded_and_the_others_finish(
    flag: Path, open_supervisor: Opener
) -> None:
    kernels = [evil_kernel("crashes_when_flagged"), evil_kernel("slow"), evil_kernel("slow", 2)]
    settings = SweepSettings(timing=SETTINGS.timing, leaders_within=math.inf, final_passes=2)
    sweep = open_supervisor(settings=settings).sweep(PROBLEM, kernels)
    assert [next(sweep).status for _ in kernels] == ["ok"] * 3
    flag.touch()
    finals = [(m.kernel, m.status, m.round) for m in sweep]
    assert finals[0] == (kernels[0], "crash", ROUND_FINAL)
    assert sorted(finals[1:], key=lambda f: f[0].tile_n) == [(k, "ok", ROUND_FINAL) for k in kernels[1:]]


def test_known_measurements_are_not_repeated_but_can_lead(open_supervisor: Opener) -> None:
    kernels = [evil_kernel("good", i) for i in (1, 2, 3)]
    supervisor = open_supervisor(settings=SweepSettings(timing=SETTINGS.timing, leaders_within=math.inf))
    first = list(supervisor.sweep(PROBLEM, kernels[:2]))
    assert len(first) == 4
    again = list(supervisor.sweep(PROBLEM, kernels[2:], first))
    assert [(m.kernel, m.round) for m in again] == [(kernels[2], ROUND_SWEEP), (kernels[2], ROUND_FINAL)]


def test_a_kernel_that_cannot_lead_gets_fewer_samples(open_supervisor: Opener) -> None:
    supervisor = open_supervisor(settings=SEQUENTIAL)
    kernels = built(supervisor, GOOD, evil_kernel("slow"))
    list(supervisor.sweep(small_problem(N=7, C=16, K=20), kernels))
    for images in (8, 10, 12, 14):
        problem = small_problem(N=images, C=16, K=20)
        # The kernel that was faster on the first problem comes first, whatever the order of the request.
        swept = list(supervisor.sweep(problem, kernels[::-1]))
        assert [m.kernel for m in swept[:2]] == kernels
        if swept[1].sampling == "coarse":
            break  # else other work on this machine has made the good kernel slow, too
    assert [(m.status, m.sampling) for m in swept[:2]] == [("ok", "full"), ("ok", "coarse")]
    good, slow = swept[:2]
    assert 3 <= slow.samples <= 90, "at most six looks"
    assert 0 <= slow.as_row()["precision"] < 2
    assert slow.latency_ms > 3 * good.latency_ms

    # The best time of an earlier session counts, too: here the slow kernel is the first one of its worker.
    resumed = open_supervisor(settings=SEQUENTIAL)
    (again, *_) = resumed.sweep(problem, built(resumed, evil_kernel("slow")), [good])
    assert (again.kernel, again.status, again.sampling) == (slow.kernel, "ok", "coarse")
    # Another problem has another best time.
    (other, *_) = resumed.sweep(small_problem(N=9, C=16, K=20), built(resumed, evil_kernel("slow")))
    assert other.sampling == "full"


# ---- kernels that have lost ---------------------------------------------------------------------------

LONG = small_problem(N=160, C=16, K=20)
"""A naive run takes some 15 ms, a slow one over 100: enough to tell by one run."""


def eight(best: Measurement) -> list[Measurement]:
    """A measured kernel, as if seven more had been as fast."""
    return [best, *(replace(best, kernel=evil_kernel("good", number)) for number in range(101, 108))]


@pytest.mark.slow
def test_a_kernel_that_has_lost_by_its_first_checked_run_is_censored(open_supervisor: Opener) -> None:
    supervisor = open_supervisor(settings=SEQUENTIAL)
    (good,) = supervisor.sweep(LONG, built(supervisor, GOOD), finals=False)
    kernels = built(supervisor, evil_kernel("slow"), evil_kernel("slow", 2))
    swept = list(supervisor.sweep(LONG, kernels, eight(good), picks=kernels[1:], finals=False))
    lost, pick = sorted(swept, key=lambda m: m.kernel.tile_n)
    assert (lost.status, lost.sampling, lost.samples) == ("ok", "censored", 1)
    assert (lost.check, lost.check_points) == (good.check, good.check_points), "its result was compared"
    assert 3 * good.latency_ms < lost.at_least_ms < lost.latency_ms
    assert lost.as_row()["at_least_ms"] == lost.at_least_ms
    assert (pick.status, pick.sampling) == ("ok", "coarse"), "what a model picks passes all checks"
    assert pick.as_row()["at_least_ms"] is None
    (seventh,) = supervisor.sweep(LONG, kernels[:1], eight(good)[:7], finals=False)
    assert not seventh.is_censored, "it is one of the eight fastest"


@pytest.mark.slow
def test_a_kernel_that_has_lost_is_still_wrong(open_supervisor: Opener) -> None:
    supervisor = open_supervisor(settings=SEQUENTIAL)
    (good,) = supervisor.sweep(LONG, built(supervisor, GOOD), finals=False)
    kernels = built(supervisor, evil_kernel("slow_and_wrong"))
    (bad,) = supervisor.sweep(LONG, kernels, eight(good), finals=False)
    assert (bad.status, bad.is_censored) == ("wrong", False)


@pytest.mark.slow
@pytest.mark.parametrize(("second", "found_in"), [("slow", 1), ("slow_and_wrong_later", 0)])
def test_kernels_that_had_lost_to_one_that_fails_are_checked_in_full(
    second: str, found_in: int, flag: Path, open_supervisor: Opener
) -> None:
    """The fastest kernels crash when they are measured again. One of those that had lost to them must win
    now, and is not trusted by its first run. second: the second fastest by its first run, which is measured
    with the fastest."""
    supervisor = open_supervisor(settings=replace(SEQUENTIAL, final_passes=5, final_total_ms=1e6))
    best, *others = built(
        supervisor, *map(evil_kernel, ("crashes_when_flagged", "slow", "slow_and_wrong_later"))
    )
    (first,) = supervisor.sweep(LONG, [best], finals=False)
    lost = list(supervisor.sweep(LONG, others, eight(first), finals=False))
    assert [(m.status, m.sampling) for m in (first, *lost)] == [("ok", "full"), *[("ok", "censored")] * 2]
    flag.touch()
    least = min(m.latency_ms for m in lost) / 2  # below what either will take, measured again
    lost = [replace(m, latency_ms=least * (1 if mode_of(m.kernel) == second else 1.1)) for m in lost]
    again = list(supervisor.sweep(LONG, (), [first, *lost]))
    status = {(mode_of(m.kernel), m.round): (m.status, m.is_censored) for m in again}
    assert status["crashes_when_flagged", ROUND_FINAL] == ("crash", False)
    assert status["slow", ROUND_FINAL + 1] == ("ok", False)
    assert status["slow_and_wrong_later", ROUND_FINAL + found_in][0] in ("wrong", "flaky")
    assert status["slow", ROUND_FINAL + 2] == ("ok", False)
