"""A file of several operations: which one is read, what says so, and how to choose another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tile_oracle.cli import main
from tile_oracle.errors import RecordError
from tile_oracle.foreign.importers import import_file
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import load_records

TAIL = "fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_32x32x16"
GEMM, FUSED = f"gemm_{TAIL}", f"gemm_{TAIL}_multid_MultiDAdd_d1"
CONV = "grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave"
CONV_SIZES = "N=2 C=64 K=32 G=1 Hi=8 Wi=8 Y=3 X=3 stride_h=1 stride_w=1 pad_h=1 pad_w=1"
HEADER = "transA,transB,batch_count,m,n,k,a_type,b_type,hipblaslt-Gflops,us"


def table() -> str:
    rows = [f"{GEMM},1024,{n},256,0.02" for n in (512, 256)] + [f"{FUSED},1024,512,256,0.03"]
    return "\n".join(["kernel,M,N,K,latency_ms", *rows]) + "\n"


def document() -> str:
    sizes = {"M": 1024, "N": 512, "K": 256}
    names = (GEMM, GEMM, FUSED)
    return json.dumps([{"kernel": one, **sizes, "latency_ms": 0.02 + n / 100} for n, one in enumerate(names)])


def log_of_tile_engine() -> str:
    said = [f"{one} M = 1024, N = 512, K = 256" for one in (GEMM, GEMM, FUSED)]
    return "\n".join(f'{one}: {{"latency_ms": {0.02 + n / 100}}}' for n, one in enumerate(said)) + "\n"


def log_of_hipblaslt() -> str:
    flops = 2 * 512 * 64 * 256
    rows = [("1", "512", 5.0, 7), ("1", "256", 5.0, 8), ("3", "512", 9.0, 9)]
    return "".join(
        f"[0]:{HEADER}\n    T,N,{batch},{m},64,256,bf16_r,bf16_r,"
        f"{flops * int(batch) * int(m) / 512 / us / 1e3:.4f},{us}\n    --Solution index: {index}\n"
        for batch, m, us, index in rows
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", table()),
        ("a.json", document()),
        ("a.log", log_of_tile_engine()),
        ("bench.log", log_of_hipblaslt()),
    ],
)
def test_the_operation_of_most_rows_is_read_unless_another_is_asked_for(
    tmp_path: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    found = import_file(tmp_path / name, "gfx950")
    assert found.records["op"].tolist() == ["gemm", "gemm"]
    assert dict(found.summary.refused) == {
        "kernel of another operation: fused_gemm, which --op fused_gemm takes": 1
    }
    out = tmp_path / "o.parquet"
    call = ["runs", "import", str(tmp_path / name), "--arch", "gfx950", "-o", str(out)]
    assert main([*call, "--op", "fused_gemm"]) == 0
    assert load_records(out)["op"].tolist() == ["fused_gemm"]
    assert "2 refused: kernel of another operation: gemm, which --op gemm takes" in capsys.readouterr().out


def test_a_line_with_another_kernel_ends_what_was_said_before_it(tmp_path: Path) -> None:
    """Its time would be that of the kernel and the sizes above it."""
    (tmp_path / "run.log").write_text(
        f'{CONV_SIZES}\n{CONV}: {{"latency_ms": 0.01}}\n{CONV}_si: {{"latency_ms": 0.02}}\n'
        f'{GEMM} M = 64, N = 64, K = 64\n{{"latency_ms": 0.03}}\n'
    )
    found = import_file(tmp_path / "run.log", "gfx950")
    assert found.records["latency_ms"].tolist() == [0.01, 0.02]
    assert dict(found.summary.refused) == {"kernel of another operation: gemm, which --op gemm takes": 1}
    assert import_file(tmp_path / "run.log", "gfx950", op="gemm").records["latency_ms"].tolist() == [0.03]


def test_an_operation_that_a_file_has_not_is_refused_with_the_one_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(table())
    with pytest.raises(RecordError, match=r"lacks the columns C, Hi.* of grouped_conv \(--op names another"):
        import_file(tmp_path / "a.csv", "gfx950", op="grouped_conv")
    (tmp_path / "bench.log").write_text(log_of_hipblaslt())
    with pytest.raises(RecordError, match="kernel of another operation: gemm, which --op gemm takes"):
        import_file(tmp_path / "bench.log", "gfx950", op="attention")


def test_a_table_of_an_operation_without_names_of_its_own_is_read_where_it_is_asked_for(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.csv").write_text(
        "kernel,tokens,hidden,latency_us\nrms_norm_bf16_ck.rmsnorm2d,4096,1024,20\n"
    )
    with pytest.raises(RecordError, match="--op names another operation"):
        import_file(tmp_path / "a.csv", "gfx950")
    found = import_file(tmp_path / "a.csv", "gfx950", op="rms_norm").records
    assert found["problem"].tolist() == ["rms_norm-bf16-r4096-c1024"]


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (FUSED, "their kernels are of fused_gemm: tile-oracle runs import --op fused_gemm reads them"),
        (GEMM.replace("fp16", "bf8"), "' states no data type of ours"),
        (GEMM.replace("gemm_", "gemm_multi_d_").replace("rcr", "rcrr"), "one with further operands"),
        (GEMM.replace("gemm_", "gemm_preshuffle_"), "a GEMM whose B is shuffled beforehand"),
        (f"{GEMM}_streamk", "stream-K, which shares tiles among workgroups"),
    ],
)
def test_a_row_whose_kernel_is_none_of_a_plain_product_is_no_problem(
    tmp_path: Path, kernel: str, why: str
) -> None:
    rows = (f"{GEMM},64,64,64,0.02", f"{kernel},128,64,64,0.02", "layer 1,256,64,64,0.02")
    (tmp_path / "a.csv").write_text("\n".join(["kernel,M,N,K,latency_ms", *rows]) + "\n")
    found = load_problem_set(str(tmp_path / "a.csv"))
    assert [one.M for one in found.problems] == [64, 256]
    assert any(note.startswith("1 left out: ") and why in note for note in found.notes)
