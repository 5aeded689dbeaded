"""A row is believed only if nothing that its file states denies it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.errors import RecordError
from tile_oracle.foreign.contract import FIELDS, arch_named, status_named
from tile_oracle.foreign.dialect import CONVOLUTIONS, GEMMS
from tile_oracle.foreign.importers import import_file, write_records
from tile_oracle.foreign.summary import Imported
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.record.dataset import load_records
from tile_oracle.record.schema import STATUSES

KERNEL = "gemm_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_256x256x64_2x2x1_32x32x16"
PROBLEM = GemmProblem("fp16", "rcr", 1024, 1024, 1024)
ROW = {"kernel": KERNEL, "M": 1024, "N": 1024, "K": 1024, "latency_ms": 0.01}
OTHER = {**ROW, "kernel": KERNEL.replace("256x256x64", "128x128x64"), "latency_ms": 0.02}


def table(folder: Path, *rows: dict[str, Any], name: str = "bench.csv") -> Path:
    names = list(dict.fromkeys(key for row in rows for key in row))
    lines = [",".join(str(row.get(key, "")) for key in names) for row in rows]
    (folder / name).write_text("\n".join([",".join(names), *lines]) + "\n")
    return folder / name


def document(folder: Path, *rows: dict[str, Any]) -> Path:
    (folder / "bench.json").write_text(json.dumps({"results": rows}))
    return folder / "bench.json"


def outcome(found: Imported) -> str:
    """The status of the row beside OTHER, or why it was refused."""
    rows = found.records[found.records["kernel"] == KERNEL]
    return str(rows["status"].iloc[0]) if len(rows) else next(iter(found.summary.refused))


DENIALS = [
    ({"verified": "False", "max_rel": 0.9}, "wrong"),
    ({"verified": "maybe"}, "wrong"),
    ({"verified": "True", "max_rel": 0.9}, "wrong"),
    ({"max_rel": "nan"}, "wrong"),
    ({"is_valid": False}, "wrong"),
    ({"is_valid": True, "error": "verification failed"}, "wrong"),
    ({"failed": 1}, "wrong"),
    ({"mismatches": 37}, "wrong"),
    ({"timed_out": True}, "wrong"),
    ({"Result of the day": " Incorrect"}, "wrong"),
    ({"card": "MI300X"}, "card states another architecture"),
    ({"Ran on": "NVIDIA H100 80GB HBM3"}, "ran on states another architecture"),
    ({"status": "TIMEOUT"}, "timeout"),
    ({"status": "compile error"}, "build_error"),
    ({"status": "so-so"}, "the status is unknown"),
    ({"latency_ms": 1e20}, "crash"),
    ({"latency_ms": 1e300}, "crash"),
    ({"latency_ms": 3e5}, "slower than any run of one kernel"),
    ({"latency_ms": 1e-300}, "faster than the device can be"),
    ({"latency_ms": 1e-4, "tflops": PROBLEM.tflops(1e-4)}, "faster than the device can be"),
    ({"tflops": 6.8e298}, "tflops contradicts latency and problem"),
    ({"gflops": PROBLEM.tflops(0.01)}, "tflops contradicts latency and problem"),
    ({"bandwidth(GB/s)": 5.0}, "bandwidth contradicts latency and problem"),
    ({"latency_us": 12.5}, "latency_ms is stated twice, differently"),
    ({"unit": "us"}, "the unit contradicts the time's name"),
    ({"unit": "jiffies"}, "the unit of time is unknown"),
    ({"arch": "gfx942"}, "arch states another architecture"),
    ({"gfx": "gfx1250"}, "gfx states another architecture"),
    ({"device_name": "NVIDIA H100 80GB HBM3"}, "device_name states another architecture"),
    ({"datatype": "bf16"}, "datatype contradicts the kernel or dense matrices"),
    ({"q_dtype_w": "torch.int8"}, "q_dtype_w contradicts the kernel or dense matrices"),
    ({"layout": "rrr"}, "layout contradicts the kernel or dense matrices"),
    ({"layout_a": "Diagonal"}, "layout_a contradicts the kernel or dense matrices"),
    ({"dtype_c": "fp32"}, "dtype_c contradicts the kernel or dense matrices"),
    ({"stride_a": 8192}, "stride_a contradicts the kernel or dense matrices"),
    ({"stride_c": 16}, "stride_c contradicts the kernel or dense matrices"),
    ({"structured_sparsity": True}, "structured_sparsity contradicts the kernel or dense matrices"),
    ({"non_zero": 5}, "wrong"),
    ({"non_zero": "nan"}, "non_zero is no such number"),
    ({"non_zero": 2**20 + 1}, "non_zero is more than the output holds"),
    ({"batch_count": 4}, "batch_count says that it is another operation"),
    ({"B": 16}, "b says that it is another operation"),
    ({"op_type": "gemm_multi_d"}, "op_type says that it is another operation"),
    ({"scale_a": True}, "scale_a says that more than the operation is done"),
    ({"bpreshuffle": True}, "bpreshuffle says that more than the operation is done"),
    ({"tile_m": 128}, "tile_m contradicts the kernel or dense matrices"),
    ({"pipeline": "compv4"}, "pipeline contradicts the kernel or dense matrices"),
]  # fmt: skip


@pytest.mark.parametrize("make", [table, document])
@pytest.mark.parametrize(("said", "expected"), DENIALS)
def test_what_a_row_denies_is_not_ok(tmp_path: Path, make: Any, said: dict[str, Any], expected: str) -> None:
    found = import_file(make(tmp_path, {**ROW, **said}, OTHER), "gfx950")
    assert outcome(found) == expected
    assert found.summary.ok == 1
    assert any("row 1: " in line for line in found.summary.shown)


def test_rows_that_something_denies_replay(tmp_path: Path) -> None:
    rows = [{**ROW, **said, "M": 1024 + number} for number, (said, _) in enumerate(DENIALS)]
    found = import_file(document(tmp_path, *rows), "gfx950")
    assert set(found.records["status"]) >= {"wrong", "crash", "timeout", "build_error"}
    write_records(found.records, tmp_path / "o.parquet")
    assert len(load_records(tmp_path / "o.parquet")) == len(found.records)


AFFIRMED = {
    "verified": True, "max_rel": 0.001, "is_valid": "true", "error": "",
    "status": "ok", "arch": "gfx950:xnack-",
    "device_name": "AMD Instinct MI355X", "dtype_a": "torch.float16", "layout_b": "ColumnMajor",
    "stride_a": 1024, "stride_b": 0,
    "batch_count": 1, "beta": 0, "bias": "False", "op_type": "gemm_universal", "tile_m": 256,
    "persistent": False,
    "unit": "ms", "gflops": 1e3 * PROBLEM.tflops(0.01), "split_k": 1, "problem_idx": 7,
}  # fmt: skip


def test_the_mark_that_spreadsheets_begin_with_is_no_part_of_a_name(tmp_path: Path) -> None:
    path = table(tmp_path, ROW)
    path.write_text("\ufeff" + path.read_text())
    assert import_file(path, "gfx950").summary.ok == 1


UNKNOWN = {"weather": "fine; once it failed", "card": "MI355X", "cpu": "AMD EPYC 9654", "tile": "a16w16"}


@pytest.mark.parametrize("make", [table, document])
def test_what_agrees_is_ok_and_other_fields_are_listed(tmp_path: Path, make: Any) -> None:
    found = import_file(make(tmp_path, {**ROW, **AFFIRMED, **UNKNOWN}, OTHER), "gfx950")
    assert found.summary.ok == 2
    assert found.summary.unknown == set(UNKNOWN)
    assert "unknown fields, not read: card, cpu, tile, weather" in str(found.summary)


UNTIMED = {key: item for key, item in ROW.items() if key != "latency_ms"}
TIMES = ({"time(ns)": 10_000}, {"avg_time_ms": 0.01}, {"latency[s]": 1e-5}, {"latency": 10.0, "unit": "us"})


@pytest.mark.parametrize("time", [{"latency_us": 10}, *TIMES])
def test_units_are_converted(tmp_path: Path, time: dict[str, Any]) -> None:
    for make in (table, document):
        found = import_file(make(tmp_path, {**UNTIMED, **time}), "gfx950")
        assert found.records["latency_ms"].tolist() == pytest.approx([0.01])


@pytest.mark.parametrize("name", ["gemm_preshuffle_" + KERNEL[5:], KERNEL.replace("compv3", "preshufflev2")])
def test_another_layout_of_b_is_another_operation(tmp_path: Path, name: str) -> None:
    found = import_file(table(tmp_path, {**ROW, "kernel": name}, OTHER), "gfx950")
    shuffled = "a GEMM whose B is shuffled beforehand"
    assert dict(found.summary.refused) == {f"kernel of another operation: {shuffled}": 1}


def test_an_outer_denial_holds_for_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for outer, inner in (({"is_valid": False}, {}), ({"is_valid": False}, {"is_valid": True})):
        path.write_text(json.dumps({**outer, "results": [{**ROW, **inner}]}))
        assert import_file(path, "gfx950").records["status"].tolist() == ["wrong"]
    path.write_text(json.dumps({"elapsed_s": 100, "results": [ROW, {**OTHER, "check": {"passed": False}}]}))
    assert import_file(path, "gfx950").records["status"].tolist() == ["ok", "wrong"]


def test_a_failure_without_a_time_is_a_row(tmp_path: Path) -> None:
    found = import_file(document(tmp_path, {**UNTIMED, "error": "illegal access"}, OTHER), "gfx950")
    assert found.records["status"].tolist() == ["wrong", "ok"]


def test_rows_of_several_devices_need_a_choice(tmp_path: Path) -> None:
    path = table(tmp_path, {**ROW, "device": 0}, {**ROW, "device": 1, "latency_ms": 0.03}, OTHER)
    with pytest.raises(RecordError, match="rows of several devices, 0, 1: choose one by --device"):
        import_file(path, "gfx950")
    found = import_file(path, "gfx950", device="1")
    assert found.records["latency_ms"].tolist() == [0.03]
    assert dict(found.summary.refused) == {"of another device than 1": 2}
    assert import_file(path, "gfx950", device="all").summary.ok == 3


def test_output_extents_give_or_contradict_the_padding(tmp_path: Path) -> None:
    row = {
        "kernel": "grouped_conv_forward_bf16_2d_64x64x64_compv3", "N": 1, "C": 72, "K": 72, "Hi": 29,
        "Wi": 29, "Y": 3, "X": 3, "Ho": 29, "Wo": 29, "latency_ms": 0.01,
    }  # fmt: skip
    found = import_file(table(tmp_path, row, {**row, "latency_ms": 0.02, "pad_h": 0}), "gfx950")
    assert found.records["problem"].tolist() == ["forward-bf16-n1-c72-k72-i29x29-f3x3-p1"]
    assert dict(found.summary.refused) == {"dimensions cannot be right": 1}


@pytest.mark.parametrize(
    ("text", "arch"),
    [
        ("AMD Instinct MI300X", "gfx942"), ("gfx942:sramecc+:xnack-", "gfx942"), ("MI355X", "gfx950"),
        ("NVIDIA H200", "sm_90"), ("sm90", "sm_90"), ("NVIDIA RTX A400", "sm_86"), ("cpu", "cpu"), ("0", ""),
        ("MI355X, 256 CUs", "gfx950"), ("NVIDIA GB200", "sm_100"), ("some card", ""),
    ],
)  # fmt: skip
def test_devices_name_their_architecture(text: str, arch: str) -> None:
    assert arch_named(text) == arch


def test_every_declared_field_has_a_use() -> None:
    for fields in (FIELDS, GEMMS.fields, CONVOLUTIONS.fields):
        for name, field in fields.items():
            assert name == name.lower()
            assert (field.holds is None) == (field.why == ""), name
    assert {status_named(word) for word in STATUSES} <= set(STATUSES)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["1", "ok", "us"]),
)


@given(st.dictionaries(st.sampled_from(sorted(GEMMS.fields)), VALUES, max_size=4), st.booleans())
def test_what_is_imported_replays(
    tmp_path_factory: pytest.TempPathFactory, said: dict[str, Any], as_table: bool
) -> None:
    folder = tmp_path_factory.mktemp("any")
    path = folder / "x.json"
    path.write_text(json.dumps([{**ROW, **said}, OTHER]))
    if as_table:
        path = folder / "x.csv"
        cells = [
            {**ROW, **{name: "".join(str(value).split()).replace(",", "") for name, value in said.items()}}
        ]
        path = table(folder, *(row for row in [*cells, OTHER]), name="x.csv")
    try:
        found = import_file(path, "gfx950", device="all")
    except RecordError:
        return
    write_records(found.records, folder / "o.parquet")
    assert len(load_records(folder / "o.parquet")) == len(found.records)
