"""Sessions whose candidates are what hipBLASLt or MIOpen rank, on an emulated gfx950 (tests/shims)."""

from __future__ import annotations

import pytest

from tests.libraries.conftest import MakeMachine
from tests.shims.recording import read_record

PRODUCTS = ("gemm-bf16-rcr-m5-n7-k24", "gemm-fp16-crr-m3-n4-k16")
CONVOLUTIONS = (
    "forward-bf16-n1-c8-k6-i5x4-f3x3-p1",
    "forward-fp16-n2-g2-c8-k6-i7x6-f3x2-s2x1-p1x0-d1x2",
    "bwd_data-bf16-n2-g2-c8-k6-i7x6-f3x2-s2x1-p1x0",
    "forward-bf16-n1-c4-k3-i3x4x5-f2x1x3-p0x0x1",
)
WEIGHT = "bwd_weight-bf16-n2-g2-c8-k6-i7x6-f3x2-s2x1-p1x0"
"""A convolution for which MIOpen has one solution."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "ranked", "more", "first", "version", "call"),
    [
        ("hipblaslt", PRODUCTS, (), 40, "1.1.2", ("matmul", "41", "256")),
        ("miopen", CONVOLUTIONS, (WEIGHT,), 20, "3.5.0", ("immediate", "21", "1")),
    ],
    ids=["hipblaslt", "miopen"],
)
def test_a_session_measures_the_ranking(
    machine_with: MakeMachine,
    library: str,
    ranked: tuple[str, ...],
    more: tuple[str, ...],
    first: int,
    version: str,
    call: tuple[str, ...],
) -> None:
    """Of the first three the first is slow, the second fast, the third wrong."""
    machine = machine_with(library)
    machine.problems(*ranked, *more)
    finished = machine.run()
    assert finished.status == 1, finished.output[-4000:]
    sweep = machine.sweep()
    slow, fast, wrong = (f"{library}.s{number}" for number in range(first, first + 3))
    for problem in ranked:
        of_problem = sweep[sweep["problem"] == problem].set_index("name")
        assert of_problem["status"].to_dict() == {slow: "ok", fast: "ok", wrong: "wrong"}, finished.output
        assert of_problem["latency_ms"][fast] < of_problem["latency_ms"][slow]
        assert [one.rank for one in machine.offers.of_problem[problem].offers] == [0, 1, 2]
    for problem in more:
        assert sweep[sweep["problem"] == problem].set_index("name")["status"].to_dict() == {slow: "ok"}
    assert set(sweep["toolchain"].dropna()) == {f"{library} {version}"}
    assert call in read_record(machine.calls)
    assert f"the own choice of {library}" in finished.output
