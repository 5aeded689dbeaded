"""Batched products and those with an epilogue, in upstream's kernel names and in calls of BLAS libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tile_oracle.errors import KernelError, RecordError
from tile_oracle.foreign.dialect import fused_kernel
from tile_oracle.foreign.importers import import_file, write_records
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import load_records

TAIL = "fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_32x32x16"
ADDED = f"gemm_{TAIL}_multid_MultiDAdd_d1"


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        (ADDED, "fused_gemm_fp16_rcr_residual_ck.gemm.epilogue=cshuffle"),
        (f"gemm_{TAIL}_multid_FastGelu_d0", "fused_gemm_fp16_rcr_gelu_tanh_ck.gemm.epilogue=cshuffle"),
        (f"gemm_batched_{TAIL}", "fused_gemm_fp16_rcr_none_ck.batched_gemm.epilogue=cshuffle"),
        (f"batched_gemm_{TAIL}", "fused_gemm_fp16_rcr_none_ck.batched_gemm.epilogue=cshuffle"),
    ],
)
def test_a_name_that_says_what_fused_gemm_is_names_a_kernel_of_it(name: str, kernel: str) -> None:
    found = fused_kernel(name)
    assert found.name.startswith(kernel)
    assert found.configuration["tile_m"] == 128
    assert parse_kernel_name(found.name) == found


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (f"gemm_{TAIL}_multid_MultiDMultiply_d2", "no epilogue that is MultiDMultiply with 2 matrices D"),
        (f"gemm_batched_{TAIL}".replace("fp16", "fp8"), "dtype 'fp8' is not one of bf16, fp16"),
        ("batched_gemm_fp16_compv3", "states no data type and layout"),
        (f"gemm_batched_{TAIL}".replace("compv3", "wavelet"), "wavelet"),
    ],
)
def test_a_name_that_says_more_is_refused_for_it(name: str, why: str) -> None:
    with pytest.raises(KernelError, match=why):
        fused_kernel(name)


def table(folder: Path, *rows: str, columns: str = "kernel,M,N,K,batch_count,latency_ms,verified") -> Path:
    (folder / "bridge.csv").write_text("\n".join([columns, *rows]) + "\n")
    return folder / "bridge.csv"


def test_results_of_such_kernels_are_records_of_fused_gemm(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        f"gemm_batched_{TAIL},1024,512,256,8,0.05,True",
        f"gemm_batched_{TAIL},1024,512,256,,0.05,True",
        f"{ADDED},1024,512,256,1,0.02,True",
        f"gemm_{TAIL},1024,512,256,1,0.02,True",
    )
    found = import_file(path, "gfx950")
    assert found.records["problem"].tolist() == [
        "fused_gemm-fp16-rcr-none-m1024-n512-k256-b8",
        "fused_gemm-fp16-rcr-residual-m1024-n512-k256",
    ]
    assert found.records["tflops"][0] == pytest.approx(2 * 8 * 1024 * 512 * 256 / 0.05e9)
    assert dict(found.summary.refused) == {
        "dimensions cannot be right": 1,
        "kernel of another operation: gemm, which --op gemm takes": 1,
    }
    write_records(found.records, tmp_path / "o.parquet")
    assert len(load_records(tmp_path / "o.parquet")) == 2


CALL = (
    "hipblaslt-bench -m 512 -n 64 -k 256 --transA T --transB N --a_type bf16_r --b_type bf16_r "
    "--batch_count {} --stride_a {} --stride_b 16384 --stride_c 32768 --stride_d 32768\n"
)


def test_calls_of_batches_are_problems_of_fused_gemm(tmp_path: Path) -> None:
    log = tmp_path / "calls.log"
    log.write_text(CALL.format(5, 131072) + CALL.format(5, 262144) + CALL.format("many", 131072))
    found = load_problem_set(str(log))
    assert [one.id for one in found.problems] == ["fused_gemm-bf16-rcr-none-m64-n512-k256-b5"]
    assert found.notes == (
        "1 left out: a batch: batch_count = 'many' is no number of products",
        "1 taken as the plain operation: batches that do not lie one after the other",
    )


def test_a_list_of_several_operations_is_that_of_most_calls(tmp_path: Path) -> None:
    log = tmp_path / "calls.log"
    log.write_text(CALL.format(1, 131072) + CALL.format(1, 0).replace("512", "128") + CALL.format(5, 131072))
    found = load_problem_set(str(log))
    assert {one.op for one in found.problems} == {"gemm"}
    assert "1 left out: they are of fused_gemm: FILE.csv:fused_gemm takes those" in found.notes
    assert {one.op for one in load_problem_set(f"{log}:fused_gemm").problems} == {"fused_gemm"}


def test_strides_that_are_not_stated_are_no_batch(tmp_path: Path) -> None:
    path = tmp_path / "tunableop_results0.csv"
    path.write_text("GemmStridedBatchedTunableOp_BFloat16_TN,tn_64_16_64_B_4,Gemm_Hipblaslt_7,0.03\n")
    with pytest.raises(RecordError, match="batches, whose strides the line does not state"):
        import_file(path, "gfx950")
