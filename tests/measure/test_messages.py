"""Valid messages of a worker (types, values, order); everything else ends the conversation."""

from __future__ import annotations

import math
import os
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measure.simulated_engine import KERNELS, PROBLEMS
from tests.processes import LONGEST_S
from tile_oracle.measure.answer import measurement_of
from tile_oracle.measure.messages import Conversation, checked
from tile_oracle.measure.protocol import ChannelGarbled, WatchedChannel
from tile_oracle.problem import problem_from_id

DONE: dict[str, Any] = {
    "done": 1,
    "status": "ok",
    "kernel_seconds": 0.5,
    "detail": "",
    "latency_ms": 0.2,
    "latency_min_ms": 0.1,
    "spread": math.nan,
    "samples": 7,
    "busy_ms": 3.0,
}
SETTLED: dict[str, Any] = {"settled": "a", "dirty": [], "unfair": [], "processes": 0}


def test_valid_messages_are_accepted() -> None:
    for message in (
        {"opened": {"name": "x", "driver": "y"}},
        {"loaded": "p"},
        {"began": 3},
        {"resting": 2},
        DONE,
        {**DONE, "sampling": "censored", "at_least_ms": 0.15},
        {**DONE, "samples": 1, "busy_ms": 0, "latency_ms": 0.1, "precision": 0.0},
        SETTLED,
        {"done": 1, "status": "wrong", "kernel_seconds": 0},
    ):
        assert checked(message) == message


@pytest.mark.parametrize(
    "change",
    [
        {"done": "1"},
        {"done": {"a": 1}},
        {"done": -2},
        {"done": True},
        {"status": "crash"},
        {"status": ["ok"]},
        {"kernel_seconds": -1},
        {"kernel_seconds": math.inf},
        {"busy_ms": -1},
        {"check_ms": math.inf},
        {"precision": math.inf},
        {"precision": -0.1},
        {"latency_ms": None},
        {"latency_ms": None, "latency_min_ms": None},
        {"latency_ms": math.nan},
        {"latency_ms": -0.2},
        {"latency_ms": 0.05},
        {"at_least_ms": 0.21},
        {"at_least_ms": 0.0},
        {"latency_min_ms": None},
        {"samples": 0},
        {"samples": 0, "latency_ms": None, "latency_min_ms": None, "sample_ms": [0.1]},
        {"samples": 1.5},
        {"sample_ms": [0.1, "x"]},
        {"sample_ms": [0.1, 0]},
        {"facts": {"vgprs": "many"}},
        {"began": 1},
    ],
    ids=str,
)
def test_an_implausible_result_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ChannelGarbled):
        checked(DONE | change)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
words = st.sampled_from(["began", "done", "settled", "resting", "status", "dirty", "latency_ms", "x"])


@pytest.mark.slow
@given(st.lists(st.dictionaries(words, json_values, max_size=5), max_size=8))
def test_any_message_fits_or_breaks_the_conversation(messages: list[dict[str, Any]]) -> None:
    talk = Conversation()
    talk.handed()
    talk.expect({1: "a", 2: "b"}, interleaved=False)
    for message in messages:
        try:
            fit = checked(message)
            if "began" in fit:
                assert talk.began(fit) == 1
            elif "done" in fit:
                talk.done(fit)
            elif "settled" in fit:
                talk.settled(fit)
            elif "resting" in fit:
                talk.resting(fit)
        except ChannelGarbled:
            return


def test_results_come_in_the_order_in_which_kernels_were_sent() -> None:
    talk = Conversation()
    talk.expect({1: "a", 2: "b"}, interleaved=False)
    for wrong in (lambda: talk.began({"began": 2}), lambda: talk.done(DONE), lambda: talk.settled(SETTLED)):
        with pytest.raises(ChannelGarbled):
            wrong()
    assert talk.began({"began": 1}) == 1
    for wrong in (lambda: talk.began({"began": 1}), lambda: talk.done(DONE | {"done": 2})):
        with pytest.raises(ChannelGarbled):
            wrong()
    talk.done(DONE)
    for wrong in (lambda: talk.done(DONE), lambda: talk.settled(SETTLED | {"settled": "b"})):
        with pytest.raises(ChannelGarbled):
            wrong()
    assert talk.running == 1  # to be blamed for what is garbled now
    assert talk.settled(SETTLED)["done"] == 1
    assert talk.running is None
    with pytest.raises(ChannelGarbled):
        talk.done(DONE)  # twice
    assert talk.open


def test_an_idle_worker_without_all_commands_has_missed_one() -> None:
    talk = Conversation()
    talk.handed()
    talk.handed()
    assert talk.resting({"resting": 1})
    assert not talk.resting({"resting": 2})
    with pytest.raises(ChannelGarbled):
        talk.resting({"resting": 3})


def test_data_of_another_process_are_refused() -> None:
    ours, theirs = socket.socketpair()
    channel = WatchedChannel(ours)
    with theirs:
        theirs.send(b'{"began":1}\n')
        assert channel.receive(LONGEST_S) == {"began": 1}
        child = os.fork()
        if child == 0:
            theirs.send(b'{"began":2}\n')
            os._exit(0)
        os.waitpid(child, 0)
        theirs.send(b'{"began":3}\n')
        assert channel.sender == os.getpid()
        with pytest.raises(ChannelGarbled):
            channel.receive(LONGEST_S)
    channel.close()


def test_what_a_kernel_does_to_its_worker_counts_before_its_result() -> None:
    problem, kernel = problem_from_id(PROBLEMS[0]), KERNELS[0]
    answer = {**DONE, "spread": 0.01, "dirty": [], "unfair": [], "processes": 0}

    def measured(**change: object) -> tuple[str, str, float]:
        found = measurement_of(problem, kernel, answer | change)
        return found.status, found.detail, found.latency_ms

    assert measured() == ("ok", "", 0.2)
    assert measured(dirty=["signals", "threads"]) == ("ok", "its worker was replaced (signals, threads)", 0.2)
    assert measured(dirty=["signals"], status="wrong", detail="so")[:2] == ("wrong", "so")
    for change, status, detail in (
        ({"processes": 2, "unfair": ["a"]}, "crash", "left 2 processes running behind it"),
        ({"unfair": ["a", "b"]}, "wrong", "a; b"),
    ):
        assert measured(**change)[:2] == (status, detail)
    assert measured(unfair=["a"], status="flaky", detail="so")[:2] == ("flaky", "so")
