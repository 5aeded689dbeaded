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
from tile_oracle.problem import problem_from_id

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
    made = DataAhead()
    yield made
    made.close()


def pid_of(ahead: DataAhead) -> int:
    assert ahead._process is not None
    return ahead._process.pid


@pytest.mark.parametrize("problem", [FIRST, SECOND, THIRD], ids=lambda one: one.op)
def test_it_makes_what_the_worker_would_make(ahead: DataAhead, problem: object) -> None:
    ahead.ask(problem, 7)
    file = ahead.take(problem)
    assert ahead.take(problem) == "", "it is for one worker"
    made, here = taken(file), on_gpu(problem.op).host_data(problem, 7)
    assert not Path(file).exists()
    assert made.changing == here.changing
    for name in ("contents", "low", "high", "repeated_low", "repeated_high"):
        assert np.array_equal(getattr(made, name), getattr(here, name)), name
    for one, other in zip(made.usual + made.repeating, here.usual + here.repeating, strict=True):
        assert np.array_equal(one.values, other.values)
        assert one.shape == other.shape
    assert (made.low is made.high) == (here.low is here.high), "they are kept once on the device"


def test_what_nobody_took_is_removed_when_another_is_asked_for(ahead: DataAhead) -> None:
    ahead.ask(FIRST, 7)
    while ahead.is_making(FIRST):
        pass
    (unused,) = filter(None, ahead._made.values())
    assert Path(unused).is_file()
    ahead.ask(SECOND, 7)
    ahead.ask(SECOND, 7)
    assert not Path(unused).exists()
    assert ahead.take(FIRST) == ""
    folder = Path(ahead.take(SECOND)).parent
    assert folder.is_dir()
    ahead.close()
    assert not folder.exists()


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
