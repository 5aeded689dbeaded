"""Sessions whose candidates are cuBLASLt's algorithms, on the emulated GPU with tests/shims/cublaslt.c."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from tests.libraries.conftest import Machine, MakeMachine
from tests.shims.recording import read_record

PROBLEM = "gemm-bf16-rcr-m5-n7-k24"
OTHERS = (
    "gemm-fp16-rcr-m3-n4-k16",
    "gemm-bf16-rrr-m3-n4-k16",
    "gemm-bf16-crr-m3-n4-k16",
    "gemm-bf16-ccr-m3-n4-k16",
)
SCALED = (
    "scaled_gemm-fp8_e4m3-tensor-m3-n4-k16",
    "scaled_gemm-fp8_e5m2-row-m3-n5-k32",
    "scaled_gemm-fp8_e4m3-block-m2-n3-k400",
)
FUSED = (
    "fused_gemm-bf16-rcr-none-m5-n6-k8-b3",
    "fused_gemm-fp16-crr-none-m7-n3-k9-b2",
    "fused_gemm-bf16-ccr-residual-m4-n5-k16-b2",
    "fused_gemm-fp16-rrr-bias-m3-n4-k16-b2",
    "fused_gemm-bf16-rcr-bias_residual-m3-n7-k24",
    "fused_gemm-bf16-rcr-bias_gelu_tanh-m6-n5-k32",
    "fused_gemm-fp16-crr-gelu_tanh-m9-n4-k16",
)
SLOW = "cublaslt.a7.tile=15"
RIGHT = "cublaslt.a1.stages=8.tile=18"
WRONG = "cublaslt.a1.stages=8.tile=20"
DEADLY = "cublaslt.a1.stages=8.swizzle=1.tile=18"
FAILING = "cublaslt.a66.stages=9.tile=20"
SPLIT = "cublaslt.a1.reduction=2.split_k=2.stages=8.tile=18"


@pytest.fixture
def machine(machine_with: MakeMachine) -> Machine:
    machine = machine_with("cublaslt")
    machine.problems(PROBLEM)
    return machine


@pytest.mark.slow
def test_a_session_measures_what_the_library_offers(machine: Machine) -> None:
    finished = machine.run("--model=vendor")
    assert finished.status == 1, finished.output[-4000:]
    offered = machine.offers.of_problem[PROBLEM]
    assert [one.rank for one in offered.offers[:4]] == [0, 1, 2, None]
    assert offered.too_large, "one custom option needs a gigabyte"
    sweep = machine.sweep().set_index("name")
    assert set(sweep.index) == {f"cublaslt.{one.algorithm}" for one in offered.offers}
    assert set(sweep["implementation"]) == {"cublaslt"}
    status = sweep["status"]
    assert status[SLOW] == status[RIGHT] == status[SPLIT] == "ok"
    assert status[WRONG] == "wrong"
    assert status[DEADLY] == "crash"
    assert status[FAILING] == "unsupported"
    assert "CUBLAS_STATUS_EXECUTION_FAILED" in sweep["detail"][FAILING]
    (hidden,) = (name for name in sweep.index if re.fullmatch(r"cublaslt\.a66\.bits=x\w+\.tile=20", name))
    ok = sweep[status == "ok"]
    assert set(ok["toolchain"]) == {"cublaslt 13.1.0"}
    assert ok["latency_ms"].idxmin() == hidden
    assert ("matmul", "66", "20") in read_record(machine.calls)
    assert "the own choice of cublaslt" in finished.output
    (run,) = machine.project.runs
    (chosen,) = pd.read_parquet(run / "selection.parquet").to_dict("records")
    assert chosen["pick_kernel"].endswith(SLOW), "the library's first choice"
    assert chosen["oracle_kernel"].endswith(hidden), "its second choice takes half the time"
    assert 0.4 < chosen["efficiency"] < 0.8
    assert chosen["oracle_rank"] == 2


@pytest.mark.slow
def test_a_process_that_dies_while_it_asks_loses_one_problem(machine: Machine) -> None:
    others = [*OTHERS, *(f"gemm-bf16-rcr-m{rows}-n8-k16" for rows in range(8, 28))]  # for several processes
    machine.problems(PROBLEM, *others)
    finished = machine.run("--collect-only", environment={"OFFERS_DIE": "5"})
    assert f"{PROBLEM}-cublaslt" not in finished.output
    assert all(f"{problem}-cublaslt" in finished.output for problem in others)


@pytest.mark.slow
def test_every_layout_is_right_and_workers_agree_on_the_pool(machine: Machine) -> None:
    machine.problems(*OTHERS)
    finished = machine.run("--library-algorithms=3", "-n", "2", "--resume")
    sweep = machine.sweep()
    assert finished.counts()["passed"] >= 12, finished.output[-4000:]
    assert set(sweep["status"]) == {"ok"}
    assert sweep.groupby("problem").size().to_dict() == dict.fromkeys(OTHERS, 3)
    replayed = machine.run("--library-algorithms=3", "-n", "2", "--resume")
    assert "(resumed)" in replayed.output
    assert len(machine.sweep()) == 12, "nothing is measured again"


@pytest.mark.slow
def test_scales_come_to_their_operands(machine: Machine) -> None:
    uneven = "scaled_gemm-fp8_e4m3-block-m2-n3-k256"
    machine.problems(*SCALED, uneven)
    finished = machine.run("--library-algorithms=3")
    sweep = machine.sweep()
    assert sweep.groupby("problem").size().to_dict() == dict.fromkeys(SCALED, 3), finished.output[-4000:]
    assert set(sweep["status"]) == {"ok"}
    assert "K = 256 has 2 blocks" in machine.offers.of_problem[uneven].why_none


@pytest.mark.slow
def test_batches_and_epilogues_are_the_operations(machine: Machine) -> None:
    """Checked as on a GPU, with operands that lie by rows and by columns."""
    lacking = "fused_gemm-bf16-rcr-silu_mul-m3-n4-k16"
    machine.problems(*FUSED, lacking)
    finished = machine.run("--library-algorithms=3")
    sweep = machine.sweep()
    assert sweep.groupby("problem").size().to_dict() == dict.fromkeys(FUSED, 3), finished.output[-4000:]
    assert set(sweep["status"]) == {"ok"}, sweep["detail"].dropna().unique()
    assert "the library has none of silu_mul" in machine.offers.of_problem[lacking].why_none
