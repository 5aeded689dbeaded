"""Sessions whose candidates are cuDNN's engines, on the emulated GPU with tests/shims/cudnn.c."""

from __future__ import annotations

import pytest

from tests.libraries.conftest import Machine, MakeMachine
from tests.shims.recording import read_record

SLOW, FAST, PLAIN, WRONG = "cudnn.e0", "cudnn.e1.stages=2", "cudnn.e1", "cudnn.e1.stages=3"
PROBLEM = "forward-bf16-n1-c8-k6-i5x4-f3x3-p1"
OTHERS = (
    "forward-fp16-n2-g2-c8-k6-i7x6-f3x2-s2x1-p1x0-d1x2",
    "bwd_data-bf16-n2-g2-c8-k6-i7x6-f3x2-s2x1-p1x0",
    "bwd_weight-bf16-n2-g2-c8-k6-i7x6-f3x2-s2x1-p1x0",
    "forward-bf16-n1-c4-k3-i3x4x5-f2x1x3-p0x0x1",
)


ATTENTION = (
    "attention-bf16-b1-h2-g1-q5-k9-d64-causal",
    "attention-fp16-b1-h2-g2-q6-k6-d64-causal",
    "attention-bf16-b2-h1-g1-q3-k7-d64",
    "attention-bf16-b2-h2-g1-q1-k7-d64-causal",
)


@pytest.fixture
def machine(machine_with: MakeMachine) -> Machine:
    machine = machine_with("cudnn")
    machine.problems(PROBLEM)
    return machine


@pytest.mark.slow
def test_a_session_measures_the_engines_that_have_a_plan(machine: Machine) -> None:
    finished = machine.run()
    assert finished.status == 1, finished.output[-4000:]
    offers = machine.offers.of_problem[PROBLEM].offers
    assert [(one.algorithm, one.rank) for one in offers] == [
        ("e0", 0),
        ("e1.stages=2", 1),
        ("e1.stages=3", None),
        ("e1", None),
    ]
    sweep = machine.sweep().set_index("name")
    assert sweep["status"].to_dict() == {SLOW: "ok", FAST: "ok", PLAIN: "ok", WRONG: "wrong"}
    assert sweep["latency_ms"][FAST] < sweep["latency_ms"][SLOW]
    assert set(sweep["implementation"]) == {"cudnn"}
    assert set(sweep["toolchain"][[SLOW, FAST]]) == {"cudnn 9.28.1"}
    assert ("execute", "1", "3") in read_record(machine.calls)
    assert "the own choice of cudnn" in finished.output


@pytest.mark.slow
def test_every_direction_and_rank_is_right(machine: Machine) -> None:
    machine.problems(*OTHERS)
    finished = machine.run("--library-algorithms=2")
    sweep = machine.sweep()
    assert set(sweep["status"]) == {"ok"}, sweep["detail"].unique()
    assert sweep.groupby("problem").size().to_dict() == dict.fromkeys(OTHERS, 2)
    assert finished.status == 10, "there is no baseline"


@pytest.mark.slow
def test_attention_is_one_operation_with_a_mask(machine: Machine) -> None:
    machine.problems(*ATTENTION)
    finished = machine.run()
    sweep = machine.sweep()
    for problem in ATTENTION:
        status = sweep[sweep["problem"] == problem].set_index("name")["status"].to_dict()
        assert status == {SLOW: "ok", FAST: "ok", PLAIN: "ok", WRONG: "wrong"}, finished.output[-4000:]
    assert "the own choice of cudnn" in finished.output
