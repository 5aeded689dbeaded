"""Foreign measurements of GEMM kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tile_oracle.cli import main
from tile_oracle.errors import RecordError
from tile_oracle.foreign.importers import import_file, write_records
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import load_records
from tile_oracle.record.schema import arrow_schema

NAMES = [
    "gemm_fp8_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x128x128_2x2x1_32x32x64",
    "gemm_fp8_rcr_mem_default_interwave_True_True_True_True_16x64x128_1x4x1_16x16x128",
]
PROBLEM = GemmProblem("fp8", "rcr", 16, 1536, 7168)


def perf(problem: GemmProblem, latency_ms: float) -> dict[str, float]:
    return {"latency(ms)": latency_ms, "tflops(TFlops)": problem.tflops(latency_ms),
            "bandwidth(GB/s)": problem.bytes / (latency_ms * 1e6)}  # fmt: skip


def results() -> list[dict[str, object]]:
    """As benchmark programs print them."""
    shape = {"split_k": 1, "m": 16, "n": 1536, "k": 7168, "dtype_a": "fp8", "layout_a": "RowMajor"}
    return [
        {"name": name, "problem": shape, "perf_result": perf(PROBLEM, 0.01 * (1 + place))}
        for place, name in enumerate(NAMES)
    ]


def check(records: pd.DataFrame) -> None:
    assert list(records.columns) == arrow_schema("gemm").names
    assert set(records["problem"]) == {PROBLEM.id}
    assert records["kernel"].tolist() == NAMES
    assert records["latency_ms"].tolist() == [0.01, 0.02]
    assert records["tflops"].tolist() == [pytest.approx(PROBLEM.tflops(t)) for t in (0.01, 0.02)]
    assert records[["M", "N", "K", "split_k"]].drop_duplicates().to_numpy().tolist() == [[16, 1536, 7168, 1]]
    assert records["persistent"].tolist() == [False, True]
    assert set(records["op"]) == {"gemm"}


@pytest.mark.parametrize(
    "document",
    [
        results(),
        {"metadata": {"arch": "gfx950"}, "benchmarks": results()},
        {
            "shapes": [
                {
                    "m": 16, "n": 1536, "k": 7168,
                    "results": [{"kernel": n, "latency_ms": 0.01 * (1 + i)} for i, n in enumerate(NAMES)],
                }
            ]
        },
    ],
)  # fmt: skip
def test_json_results(document: object, tmp_path: Path) -> None:
    path = tmp_path / "benchmark_results_fp8_rcr.json"
    path.write_text(json.dumps(document))
    imported = import_file(path, "gfx950")
    check(imported.records)
    assert (imported.summary.rows, imported.summary.ok) == (2, 2)
    write_records(imported.records, tmp_path / "out.parquet")
    check(load_records(tmp_path / "out.parquet"))


@pytest.mark.parametrize("said", ["Shape 3: M=16 N=1536 K=7168", "m: 16, n: 1536, k: 7168, split_k: 1"])
def test_a_log_with_noise(said: str, tmp_path: Path) -> None:
    lines = ["[ 12%] Building gemm_universal ...", said]
    for place, name in enumerate(NAMES):
        lines += [f"Running {name}", json.dumps(perf(PROBLEM, 0.01 * (1 + place)), indent=1), "Segfault? no."]
    lines += [f"{NAMES[0]} " + '{"latency(ms)": 0.3, "tflops', "done"]
    path = tmp_path / "testrun.log"
    path.write_text("\n".join(lines))
    imported = import_file(path, "gfx950")
    check(imported.records)
    assert imported.summary.refused == {"malformed JSON": 1}


def published_table() -> pd.DataFrame:
    """In the format of a published converter: one row per result, with configuration columns and the name."""
    return pd.DataFrame(
        [
            {
                "kernel_name": name, "op_type": "gemm_universal", "dtype": "fp8", "layout": "rcr", "m": 16,
                "n": 1536, "k": 7168, "split_k": 1, "is_valid": True,
                "tile_m": (128, 16)[place], "pipeline": ("compv3", "mem")[place],
                "latency_ms": 0.01 * (1 + place), "measured_tflops": PROBLEM.tflops(0.01 * (1 + place)),
            }
            for place, name in enumerate(NAMES)
        ]
    )  # fmt: skip


def test_foreign_parquet(tmp_path: Path) -> None:
    path = tmp_path / "gemm_universal_fp8_rcr_gfx950.parquet"
    published_table().to_parquet(path)
    check(import_file(path, "gfx950").records)
    table = published_table()
    table.loc[1, "layout"] = "rrr"
    table.to_parquet(path)
    assert import_file(path, "gfx950").summary.refused == {
        "layout contradicts the kernel or dense matrices": 1
    }
    table.drop(columns=["latency_ms", "k"]).to_parquet(path)
    with pytest.raises(RecordError, match="lacks the columns latency_ms, K"):
        import_file(path, "gfx950")
    path.write_bytes(b"no parquet")
    with pytest.raises(RecordError, match="parquet"):
        import_file(path, "gfx950")


def test_one_call_imports_one_operation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gemm, conv = tmp_path / "gemm.json", tmp_path / "conv.json"
    gemm.write_text(json.dumps(results()))
    row = {"N": 1, "C": 8, "K": 8, "Hi": 9, "Wi": 9, "Y": 1, "X": 1, "latency_ms": 1.0}
    name = "grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave"
    conv.write_text(json.dumps([{"kernel": name, **row}]))
    out = str(tmp_path / "o.parquet")
    assert main(["runs", "import", str(gemm), str(conv), "--arch", "gfx950", "-o", out]) == 2
    assert "several operations, gemm and grouped_conv" in capsys.readouterr().err


def test_mem_kernels_are_padded_whatever_their_names_say(tmp_path: Path) -> None:
    """As in the conversion of benchmark results that comes with CK Tile's own heuristics."""
    bare = NAMES[1].replace("True_True_True_True", "False_False_False_True")
    row = {"m": 16, "n": 1536, "k": 7168, "is_valid": True}
    document = {
        "metadata": {"dtype": "fp8", "layout": "rcr"},
        "results": [
            {
                "kernel_config": {"name": name, "pipeline": "mem", "pad_m": False},
                "benchmarks": [{**row, "avg_time_ms": time}],
            }
            for name, time in ((bare, 0.02), (NAMES[1], 0.03))
        ],
    }
    path = tmp_path / "benchmark_results_fp8_rcr.json"
    path.write_text(json.dumps(document))
    imported = import_file(path, "gfx950")
    assert imported.records["kernel"].tolist() == [NAMES[1], NAMES[1]]
    assert imported.records[["pad_m", "pad_n", "pad_k"]].to_numpy().all()
    assert (imported.summary.padded, imported.summary.repeats) == (1, 1)
    assert "1 of mem kernels read as padded" in str(imported.summary)


BRIDGE = "kernel,problem_idx,M,N,K,device,latency_ms,tflops,non_zero,max_rel,verified\n"
TDM = "gemm_fp16_rcr_comp_tdm_tdm_intrawave_False_False_False_False_128x128x64_2x2x1_16x16x32"


def test_the_bridges_table_of_gfx1250_replays(tmp_path: Path) -> None:
    """What `gemm_full_benchmark.py --verify` writes on a host of two GPUs."""
    other = TDM.replace("comp_tdm_tdm", "compv4_cshuffle")
    path = tmp_path / "gemm_results.csv"
    path.write_text(
        BRIDGE + f"{TDM},0,1024,1024,1024,0,0.012,178.95,1048576,0.0001,True\n"
        f"{other},0,1024,1024,1024,1,0.010,214.74,1048576,0.31,False\n"
        f"{other},1,2048,1024,1024,1,0.020,214.74,2097152,0.0001,True\n"
    )
    with pytest.raises(RecordError, match="rows of several devices, 0, 1: choose one by --device NAME"):
        import_file(path, "gfx1250")
    found = import_file(path, "gfx1250", device="all").records
    assert found["kernel"].tolist() == [TDM, other, other]
    assert found["status"].tolist() == ["ok", "wrong", "ok"]
    assert import_file(path, "gfx1250", device="1").records["kernel"].tolist() == [other, other]
    write_records(found, tmp_path / "gfx1250.parquet")
    assert set(load_records(tmp_path / "gfx1250.parquet")["arch"]) == {"gfx1250"}


# A file of several operations: which one is read, what says so, and how to choose another.

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
