"""The process that makes what the host computes of the next problem."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tile_oracle.device.data_maker import taken
from tile_oracle.measure.data_ahead import DataAhead
from tile_oracle.operation.on_device import on_gpu
from tile_oracle.problem import Problem, problem_from_id

FIRST, SECOND, THIRD = (
    problem_from_id(name)
    for name in (
        "fused_moe-bf16-down-t9-e4-k2-h64-i32",
        "rms_norm-bf16-r20-c40",
        "fused_gemm-bf16-crr-bias-m20-n40-k9",
    )
)
ON_THE_DEVICE = problem_from_id("gemm-bf16-rcr-m5-n7-k24")


@pytest.fixture
def ahead() -> Iterator[DataAhead]:
    opened = DataAhead()
    yield opened
    opened.close()


def pid_of(ahead: DataAhead) -> int:
    assert ahead._process is not None
    return ahead._process.pid


@pytest.mark.parametrize("problem", [FIRST, SECOND, THIRD], ids=lambda one: one.op)
def test_it_makes_what_the_worker_would_make(ahead: DataAhead, problem: Problem) -> None:
    ahead.ask(problem, 7)
    file = ahead.take(problem)
    assert ahead.take(problem) == "", "it is for one worker"
    there, here = taken(file), on_gpu(problem.op).host_data(problem, 7)
    assert not Path(file).exists()
    assert there.changing == here.changing
    for name in ("contents", "low", "high", "repeated_low", "repeated_high"):
        assert np.array_equal(getattr(there, name), getattr(here, name)), name
    for one, other in zip(there.usual + there.repeating, here.usual + here.repeating, strict=True):
        assert np.array_equal(one.values, other.values)
        assert one.shape == other.shape
    assert (there.low is there.high) == (here.low is here.high), "they are kept once on the device"


def made(ahead: DataAhead, problem: Problem, seed: int = 7) -> Path:
    """Has it make a problem's data, and waits. Returns the file, which is still to be taken."""
    ahead.ask(problem, seed)
    ahead.ask(problem, seed)
    while ahead.is_making(problem):
        pass
    return Path(ahead._made[problem])


def test_the_data_of_a_problem_wait_while_the_next_are_made(ahead: DataAhead) -> None:
    first, second = made(ahead, FIRST), made(ahead, SECOND)
    assert ahead.take(FIRST) == str(first)
    assert ahead.take(SECOND) == str(second)


def test_what_nobody_took_is_removed(ahead: DataAhead) -> None:
    first, second, third = (made(ahead, one) for one in (FIRST, SECOND, THIRD))
    assert [one.is_file() for one in (first, second, third)] == [False, True, True]
    assert ahead.take(FIRST) == ""
    ahead.ask(FIRST, 7)
    folder = third.parent.parent
    ahead.close()
    assert not folder.exists()


def test_data_that_cannot_be_made_are_the_workers_to_refuse(ahead: DataAhead) -> None:
    for problem, seed in ((FIRST, -1), (SECOND, -1), (THIRD, 7)):  # no seed is negative
        made(ahead, problem, seed)
    assert ahead.take(SECOND) == ""
    assert ahead.take(THIRD)


def test_a_problem_whose_data_the_device_makes_ends_it(ahead: DataAhead) -> None:
    ahead.ask(ON_THE_DEVICE, 7)
    assert ahead.take(ON_THE_DEVICE) == ""
    ahead.ask(FIRST, 7)
    assert ahead.take(FIRST) == ""


def test_without_it_the_worker_makes_all(ahead: DataAhead) -> None:
    ahead.ask(FIRST, 7)
    os.kill(pid_of(ahead), signal.SIGKILL)
    assert ahead.take(FIRST) == ""
    ahead.ask(SECOND, 7)
    assert ahead.take(SECOND) == ""
