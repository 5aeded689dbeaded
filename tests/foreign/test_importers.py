"""Foreign measurements become records; invalid ones are refused, named and counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tile_oracle.errors import RecordError
from tile_oracle.foreign.importers import import_file, write_records
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.record.dataset import load_records
from tile_oracle.record.schema import arrow_schema

KERNEL = "grouped_conv_forward_bf16_2d_64x64x64_compv3"
PROBLEM = GroupedConvProblem(
    "forward", "bf16", 2, N=2, C=64, K=32, G=1, Hi=8, Wi=8, Y=3, X=3, pad_h=1, pad_w=1
)
OUTPUTS = 2 * 8 * 8 * 32
HEADER = "kernel,problem_idx,N,C,K,G,Hi,Wi,Y,X,stride_h,stride_w,pad_h,pad_w,latency_ms,tflops,non_zero"


def line(
    kernel: str = KERNEL,
    latency: object = 0.01,
    tflops: object = None,
    non_zero: object = OUTPUTS,
    **dims: object,
) -> str:
    values = {
        "N": 2, "C": 64, "K": 32, "G": 1, "Hi": 8, "Wi": 8, "Y": 3, "X": 3,
        "sh": 1, "sw": 1, "ph": 1, "pw": 1, **dims,
    }  # fmt: skip
    stated = PROBLEM.tflops(float(str(latency))) if tflops is None else tflops
    return ",".join(map(str, [kernel, 0, *values.values(), latency, stated, non_zero]))


def csv(folder: Path, *lines: str, name: str = "bench.csv") -> Path:
    path = folder / name
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return path


def test_a_row_becomes_a_record_with_every_column(tmp_path: Path) -> None:
    found = import_file(csv(tmp_path, line()), "gfx950")
    row = found.records.iloc[0]
    assert list(found.records.columns) == arrow_schema().names
    assert row["problem"] == PROBLEM.id
    assert row["kernel"] == KERNEL + "_intrawave"
    assert (row["status"], row["arch"], row["run"]) == ("ok", "gfx950", "bench")
    assert row["tflops"] == pytest.approx(PROBLEM.tflops(0.01))
    write_records(found.records, tmp_path / "out.parquet")
    back = load_records(tmp_path / "out.parquet")
    assert back["problem"].tolist() == [PROBLEM.id]
    with pytest.raises(RecordError, match="`tile-oracle runs merge` takes them"):
        import_file(tmp_path / "out.parquet", "gfx950")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (line(latency="nan", tflops=1), "latency is not a positive number"),
        (line(latency="-1", tflops=1), "latency is not a positive number"),
        (line(latency="fast", tflops=1), "latency is not a positive number"),
        (line(tflops=99), "tflops contradicts latency and problem"),
        (line(kernel="rm -rf"), "kernel name cannot be read"),
        (line(G=5), "dimensions cannot be right"),
        (line(N=2.5), "a dimension is not an integer"),
        (line(N=""), "dimensions cannot be right"),
        (line(Hi=0), "dimensions cannot be right"),
        (line(latency=0.02), "the same row twice"),
    ],
)
def test_an_invalid_row_is_refused_and_counted(tmp_path: Path, bad: str, reason: str) -> None:
    found = import_file(csv(tmp_path, line(latency=0.02), bad), "gfx950")
    assert found.summary.refused == {reason: 1}
    assert (found.summary.rows, found.summary.ok, len(found.records)) == (2, 1, 1)
    assert reason in str(found.summary)
    assert reason in found.summary.shown[0]


def test_unwritten_output_is_wrong_unless_trusted(tmp_path: Path) -> None:
    path = csv(tmp_path, line(non_zero=int(OUTPUTS * 0.99)), line(latency=0.03, non_zero=OUTPUTS // 2))
    strict, trusting = import_file(path, "gfx950"), import_file(path, "gfx950", trust_unverified=True)
    assert strict.records["status"].tolist() == ["ok", "wrong"]
    assert strict.records["latency_ms"].isna().tolist() == [False, True]
    assert strict.records["detail"].tolist() == ["", "50.0 % of the output is zero"]
    assert (strict.summary.wrong, trusting.summary.wrong, trusting.summary.trusted) == (1, 0, 1)
    assert trusting.records["status"].tolist() == ["ok", "ok"]


def test_repeated_measurements_are_kept_apart(tmp_path: Path) -> None:
    found = import_file(csv(tmp_path, line(), line(latency=0.011), line(latency=0.012)), "gfx950")
    assert found.summary.repeats == 2
    write_records(found.records, tmp_path / "o.parquet")
    assert sorted(load_records(tmp_path / "o.parquet")["run"]) == ["bench", "bench-repeat2", "bench-repeat3"]


def test_a_log_with_json_among_noise(tmp_path: Path) -> None:
    log = f"""[build] compiling 300 kernels ... ok
problem: N=2 C=64 K=32 G=1 Hi=8 Wi=8 Y=3 X=3 stride_h=1 stride_w=1 pad_h=1 pad_w=1
{KERNEL}_intrawave: {{"latency_ms": 0.010, "note": "braces {{}} in text"}}
warning: {{not json}}
{KERNEL}_intrawave_dsb: {{"latency_ms": 0.0
{KERNEL}_intrawave_si: {{
  "perf_result": {{"latency(ms)": 0.012}}
}}
done
"""
    (tmp_path / "run.log").write_text(log)
    found = import_file(tmp_path / "run.log", "gfx950")
    assert found.records["latency_ms"].tolist() == [0.010, 0.012]
    assert [name.rsplit("_", 1)[1] for name in found.records["kernel"]] == ["intrawave", "si"]
    assert set(found.records["problem"]) == {PROBLEM.id}
    assert found.summary.refused == {"malformed JSON": 1}
    assert "_dsb" in found.summary.shown[0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "is not a table: No columns"),
        ("a.csv", "kernel,N\n", "lacks the columns latency_ms, C"),
        ("a.csv", HEADER + ",kernel\n", "more than one column kernel"),
        ("a.csv", HEADER + "\n", "holds no measurement"),
        ("a.csv", HEADER + "\n" + line() + ",1,2,3\n", "is not a table"),
        ("a.json", "{", "is not JSON"),
        ("a.json", "[" * 5000, "is not JSON"),
        ("a.json", '{"a": [1, 2]}', "holds no measurement"),
        ("a.log", "nothing here", "holds no measurement"),
        ("a.csv", HEADER + "\n" + line(kernel="x") + "\n", "holds no usable row"),
    ],
)
def test_an_unreadable_file_is_refused_in_one_line(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(RecordError, match=message) as caught:
        import_file(tmp_path / name, "gfx950")
    assert "\n" not in str(caught.value)


@given(st.text(max_size=300))
@example("\r0")
@settings(max_examples=80)
def test_no_text_makes_a_log_or_json_crash(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("any")
    for name in ("a.log", "a.json", "a.csv"):
        (folder / name).write_text('{"' + text, encoding="utf-8", errors="replace")
        with pytest.raises(RecordError):
            import_file(folder / name, "gfx950")


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot read"):
        import_file(tmp_path / "no.csv", "gfx950")
    with pytest.raises(RecordError):
        import_file(tmp_path, "gfx950")
