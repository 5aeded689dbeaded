"""A session whose candidates are native kernels, kernels written in Triton, and a library's algorithms."""

from __future__ import annotations

import pytest

from tests.libraries.conftest import MakeMachine
from tile_oracle.compiling.triton.child_process import triton_folder

pytestmark = [pytest.mark.slow, pytest.mark.skipif(triton_folder() is None, reason="Triton is not installed")]
PROBLEM = "gemm-bf16-rcr-m5-n7-k24"
COPY = """\
import triton
import triton.language as tl
from tile_oracle.triton import gemm

@gemm(
    grid=lambda meta: (triton.cdiv(meta["M"], meta["BLOCK"]),),
    dtypes=["bf16"],
    layouts=["rcr"],
    constraints=lambda p, meta: [(p.M >= meta["BLOCK"], "fewer rows than a block has")],
)
@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=4)], key=["M"])
@triton.jit
def copy(a_ptr, c_ptr, M, N, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(c_ptr + rows * N, tl.load(a_ptr + rows, mask=rows < M), mask=rows < M)
"""
"""The emulated GPU runs no code of Triton: the constraint excludes the problem."""
FEW = "tile_m == 64 and tile_n == 64 and tile_k == 64 and pipeline == 'mem' and scheduler == 'intrawave'"


def test_native_triton_and_a_library_in_one_session(machine_with: MakeMachine) -> None:
    machine = machine_with("cublaslt")
    machine.problems(PROBLEM)
    folder = machine.project.folder
    (folder / "mine.py").write_text(COPY)
    sources = f"--kernels=native,mine.py,cublaslt={machine.library}"
    finished = machine.run(sources, f"--kernel-filter={FEW}", "--library-algorithms=3")
    assert finished.status == 10, finished.output[-4000:]  # there is no baseline
    sweep = machine.sweep()
    statuses = sweep.groupby("implementation")["status"].agg(lambda column: set(column)).to_dict()
    assert statuses == {"native": {"ok", "unsupported"}, "triton": {"unsupported"}, "cublaslt": {"ok"}}
    (triton,) = sweep[sweep["implementation"] == "triton"].to_dict("records")
    assert triton["detail"] == "constraint: fewer rows than a block has"
    assert {"source", "native", "cublaslt"} <= {line.split(" ")[0] for line in finished.output.splitlines()}
    again = machine.run(sources, f"--kernel-filter={FEW}", "--library-algorithms=3", "--resume")
    assert "(resumed)" in again.output, again.output[-4000:]
    assert len(machine.sweep()) == len(sweep), "nothing is measured again"
    (run,) = machine.project.runs
    replayed = machine.project.pytest(f"--oracle={run}", "--problem-set=one.csv", "--run-name=again")
    assert "fastest on" in replayed.output, replayed.output[-4000:]
