"""Sessions whose candidates are hipBLASLt's algorithms, on an emulated gfx950 (tests/shims/hipblaslt.c)."""

from __future__ import annotations

import pytest

from tests.libraries.conftest import MakeMachine
from tests.shims.recording import read_record

PROBLEMS = ("gemm-bf16-rcr-m5-n7-k24", "gemm-fp16-crr-m3-n4-k16")
SLOW, FAST, WRONG = "hipblaslt.s40", "hipblaslt.s41", "hipblaslt.s42"


@pytest.mark.slow
def test_a_session_measures_the_ranking(machine_with: MakeMachine) -> None:
    machine = machine_with("hipblaslt")
    machine.problems(*PROBLEMS)
    finished = machine.run()
    assert finished.status == 1, finished.output[-4000:]
    sweep = machine.sweep()
    for problem in PROBLEMS:
        of_problem = sweep[sweep["problem"] == problem].set_index("name")
        assert of_problem["status"].to_dict() == {SLOW: "ok", FAST: "ok", WRONG: "wrong"}
        assert of_problem["latency_ms"][FAST] < of_problem["latency_ms"][SLOW]
        assert [one.rank for one in machine.offers.of_problem[problem].offers] == [0, 1, 2]
    assert set(sweep["toolchain"].dropna()) == {"hipblaslt 1.1.2"}
    assert ("matmul", "41", "256") in read_record(machine.calls)
    assert "the own choice of hipblaslt" in finished.output
