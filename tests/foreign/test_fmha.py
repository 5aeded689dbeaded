"""Tables of CK Tile's benchmark of attention: records and problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from tile_oracle.errors import RecordError
from tile_oracle.foreign.importers import import_file, write_records
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import load_records

HEADER = (
    "kernel,dtype,hdim_q,hdim_v,pipeline,mode,mask,bias,tile_m0,tile_n0,tile_k0,tile_n1,tile_k1,tile_k0max,"
    "num_splits,batch,nhead_q,nhead_k,seqlen_q,seqlen_k,latency_ms,tflops,max_err,status\n"
)
FLOPS = 4 * 2 * 8 * 1024 * 1024 * 128
ID = "attention-bf16-b2-h8-g8-q1024-k1024-d128"


def row(ms: float = 0.05, **changes: object) -> str:
    values = {
        "kernel": "fmha_fwd_x", "dtype": "bf16", "hdim_q": 128, "hdim_v": 128, "pipeline": "qr_async",
        "mode": "batch", "mask": "no", "bias": "no", "tile_m0": 128, "tile_n0": 64, "tile_k0": 32,
        "tile_n1": 128, "tile_k1": 32, "tile_k0max": 128, "num_splits": "", "batch": 2, "nhead_q": 8,
        "nhead_k": 8, "seqlen_q": 1024, "seqlen_k": 1024, "latency_ms": ms,
        "tflops": round(FLOPS / ms / 1e9, 2), "max_err": 0.001, "status": "PASS", **changes,
    }  # fmt: skip
    return ",".join(str(values[name]) for name in HEADER.strip().split(",")) + "\n"


def table(folder: Path, *rows: str) -> Path:
    path = folder / "fmha_results.csv"
    path.write_text(HEADER + "".join(rows))
    return path


def test_rows_are_records_of_kernels_that_state_their_tiles(tmp_path: Path) -> None:
    path = table(tmp_path, row(), row(0.04, tile_m0=64), row(0.03, tile_m0=32, status="FAIL"))
    found = import_file(path, "gfx950")
    assert found.records["problem"].tolist() == [ID] * 3
    assert found.records["status"].tolist() == ["ok", "ok", "crash"]
    assert found.records["kernel"].iloc[0] == (
        "attention_bf16_d128_causal0_ck.fmha_fwd.pipeline=qr_async.tile_k0=32.tile_k0max=128.tile_k1=32"
        ".tile_m0=128.tile_n0=64.tile_n1=128"
    )
    assert not found.summary.unknown
    write_records(found.records, tmp_path / "fmha.parquet")
    assert load_records(tmp_path / "fmha.parquet")["latency_ms"].tolist()[:2] == pytest.approx([0.05, 0.04])


def test_problems_are_those_of_the_rows(tmp_path: Path) -> None:
    causal = row(mask="top_left", nhead_k=2)
    assert [one.id for one in load_problem_set(table(tmp_path, row(), row(), causal)).problems] == [
        ID,
        ID.replace("g8", "g2") + "-causal",
    ]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"mask": "top_left", "seqlen_k": 2048},
            "the mask 'top_left' is neither none nor causal to the last",
        ),
        ({"mask": "window"}, "the mask 'window' is neither none nor causal"),
        ({"hdim_v": 64}, "heads of Q and V have different sizes"),
        ({"dtype": "fp8"}, "dtype"),
        ({"mode": "group"}, "mode says that it is another operation"),
        ({"bias": "alibi"}, "bias says that more than the operation is done"),
        ({"tflops": 3.0}, "TFLOPS"),
        ({"seqlen_q": "many"}, "seq_q = 'many' is not an integer"),
    ],
)
def test_what_is_another_operation_is_refused(tmp_path: Path, changes: dict[str, object], why: str) -> None:
    path = table(tmp_path, row(0.02), row(**changes))
    found = import_file(path, "gfx950")
    assert len(found.records) == 1
    assert why.lower() in str(found.summary).lower()
    with pytest.raises(RecordError):
        import_file(table(tmp_path, row(**changes)), "gfx950")
