"""Sessions whose candidates are MIOpen's solutions, on an emulated gfx950 (tests/shims/miopen.c)."""

from __future__ import annotations

import pytest

from tests.libraries.conftest import MakeMachine
from tests.shims.recording import read_record

PROBLEMS = (
    "forward-bf16-n1-c8-k6-i5x4-f3x3-p1",
    "forward-fp16-n2-g2-c8-k6-i7x6-f3x2-s2x1-p1x0-d1x2",
    "bwd_data-bf16-n2-g2-c8-k6-i7x6-f3x2-s2x1-p1x0",
    "forward-bf16-n1-c4-k3-i3x4x5-f2x1x3-p0x0x1",
)
WEIGHT = "bwd_weight-bf16-n2-g2-c8-k6-i7x6-f3x2-s2x1-p1x0"
SLOW, FAST, WRONG = "miopen.s20", "miopen.s21", "miopen.s22"


@pytest.mark.slow
def test_a_session_measures_the_solutions(machine_with: MakeMachine) -> None:
    machine = machine_with("miopen")
    machine.problems(*PROBLEMS, WEIGHT)
    finished = machine.run()
    assert finished.status == 1, finished.output[-4000:]
    sweep = machine.sweep()
    for problem in PROBLEMS:
        of_problem = sweep[sweep["problem"] == problem].set_index("name")
        assert of_problem["status"].to_dict() == {SLOW: "ok", FAST: "ok", WRONG: "wrong"}, finished.output
        assert of_problem["latency_ms"][FAST] < of_problem["latency_ms"][SLOW]
        assert [one.rank for one in machine.offers.of_problem[problem].offers] == [0, 1, 2]
    assert sweep[sweep["problem"] == WEIGHT].set_index("name")["status"].to_dict() == {SLOW: "ok"}
    assert set(sweep["toolchain"].dropna()) == {"miopen 3.5.0"}
    assert ("immediate", "21", "1") in read_record(machine.calls)
    assert "the own choice of miopen" in finished.output
