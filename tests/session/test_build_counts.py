"""Workers tell the controller which kernels are built. The workers here are processes of execnet."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import execnet
import pytest
from execnet.gateway_base import Channel

from tile_oracle.session.build_counts import BuildCounts

WORKER = """
from tile_oracle.session import build_counts

build_counts._INTERVAL_S = 0.01
counts = channel.receive()
built = []
teller = build_counts.BuildTeller(counts, lambda: list(built), wanted=4)
for name in channel:
    if name is None:
        teller.end()
        channel.send("ended")
    else:
        built.append(name)
"""


@pytest.fixture
def group() -> Iterator[execnet.Group]:
    group = execnet.Group(["popen"] * 2)
    yield group
    group.terminate(timeout=10)


def started(group: execnet.Group, counts: BuildCounts) -> list[Channel]:
    workers = [gateway.remote_exec(WORKER) for gateway in group]
    for gateway, worker in zip(group, workers, strict=True):
        worker.send(counts.channel_from(gateway))
    return workers


def wait_for(counts: BuildCounts, built: int) -> None:
    while counts() != (built, 4):
        threading.Event().wait(0.005)


def test_a_kernel_that_several_workers_have_counts_once(group: execnet.Group) -> None:
    counts = BuildCounts()
    assert counts() == (0, 0)
    first, second = started(group, counts)
    first.send("a")
    wait_for(counts, 1)
    second.send("b")
    wait_for(counts, 2)
    for name in "ac":
        second.send(name)
    wait_for(counts, 3)
    first.send("d")
    wait_for(counts, 4)


def test_after_its_end_a_worker_tells_nothing(group: execnet.Group) -> None:
    counts = BuildCounts()
    first, second = started(group, counts)
    first.send("a")
    wait_for(counts, 1)
    first.send(None)
    assert first.receive(timeout=10) == "ended"
    first.send("b")
    second.send("c")
    wait_for(counts, 2)
