"""Foreign measurements become records; invalid ones are refused, named and counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tile_oracle.errors import ModelError, ProblemSetError, RecordError, RuleError
from tile_oracle.foreign.formats import FORMATS, recognised
from tile_oracle.foreign.importers import import_file, write_records
from tile_oracle.model.predictor import Predictor
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.pool.rules import load_rule_set
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import load_records
from tile_oracle.record.schema import arrow_schema
from tools.formats_page import ARCH, DOORS, FILES, LAYOUT, PAGE, known_files, outcome, page

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
        ("a.csv", "", "cannot be read: it is empty"),
        ("a.csv", "kernel,N\n", "lacks the columns latency_ms, C"),
        ("a.csv", HEADER + ",kernel\n", "more than one column kernel"),
        ("a.csv", HEADER + "\n", "holds no measurement"),
        (
            "a.csv",
            HEADER + "\n" + line() + ",1,2,3\n",
            "line 2 has 20 cells, not 17: mend it",
        ),
        (
            "a.csv",
            HEADER + "\n\n" + line().rpartition(",")[0] + "\n",
            "line 3 has 16 cells, not 17: mend it",
        ),
        ("a.csv", HEADER.replace(",", ";"), "line 1: 'kernel.* is one column: write commas, kernel"),
        ("a.tsv", HEADER.replace(",", "\t"), "line 1: 'kernel.* is one column: write commas, kernel"),
        ("a.log", "\xff\xfe{\0", "a.log is UTF-16: save it as text in UTF-8"),
        ("a.csv.gz", "\x1f\x8b\0", "a.csv.gz is compressed by gzip: unpack it"),
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
    (tmp_path / name).write_text(text, "latin-1")
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


# Every known format's smallest file, and what each command does with it.

KNOWN = known_files()


def test_every_format_has_a_file_and_every_file_a_format() -> None:
    assert {known.what for known in KNOWN.values() if known} == {one.what for one in FORMATS}
    assert [path.name for path, known in KNOWN.items() if known is None] == ["other.json"]


@pytest.mark.parametrize("path", KNOWN, ids=lambda path: path.name)
def test_a_command_reads_a_file_or_says_what_it_is(path: Path) -> None:
    known = KNOWN[path]
    for door in DOORS:
        read, refused = outcome(path, door, known)
        takes = known is not None and door in known.taken_by
        assert bool(read) == takes, f"{door}: {refused}"
        if known is not None and not takes:
            assert known.said in refused, door


def test_the_page_is_fresh() -> None:
    assert page() == PAGE.read_text("utf-8"), "python -m tools.formats_page writes it anew"


@pytest.mark.parametrize(
    ("file", "kernels"),
    [
        ("tunableop_results0.csv", ["gemm_bf16_rcr_hipblaslt.s71", "gemm_bf16_rcr_rocblas.s35"]),
        ("profile.gemm.csv", [
            "gemm_fp16_rcr_cutlass.cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_f16_f16_128x128x64_2x1x1_0_"
            "tnn_align8_warpspecialized_cooperative_epi_tma.raster_order=heuristic.split_k_slices=1",
            "gemm_fp16_rcr_cutlass.cutlass_tensorop_s16816gemm_f16_128x64_32x6_tn_align8.raster_order=heuristic."
            "split_k_slices=1",
        ]),
        ("inductor.log", [
            "gemm_fp16_rcr_inductor.mm",
            "gemm_fp16_rcr_inductor.triton_mm.ACC_TYPE=tl_float32.BLOCK_K=128.BLOCK_M=64."
            "BLOCK_N=64.EVEN_K=True.GROUP_M=8.num_stages=5.num_warps=4",
        ]),
        ("gfx95064.HIP.fdb.txt", [
            "grouped_conv_bwd_weight_bf16_2d_miopen.ConvHipImplicitGemmGroupWrwXdlops",
            "grouped_conv_forward_fp16_2d_miopen.ConvHipImplicitGemmGroupFwdXdlops",
            "grouped_conv_forward_fp16_2d_miopen.GemmFwdRest",
        ]),
        ("trace.jsonl", ["gemm_fp16_rcr_flashinfer.triton_v1"]),
        ("tuned_gemm.csv", ["gemm_bf16_rcr_aiter.bf16gemm_64x64_splitk.libtype=asm.solidx=5.splitk=4"]),
    ],
)  # fmt: skip
def test_the_kernels_of_other_tuners_replay_under_their_names(
    tmp_path: Path, file: str, kernels: list[str]
) -> None:
    found = import_file(FILES / file, ARCH)
    write_records(found.records, tmp_path / "o.parquet")
    assert sorted(load_records(tmp_path / "o.parquet")["kernel"]) == kernels


def test_the_problems_of_other_tuners_are_ours() -> None:
    def ids(name: str) -> list[str]:
        return [one.id for one in load_problem_set(str(FILES / name)).problems]

    assert ids("tunableop_results0.csv") == [f"gemm-bf16-rcr-m{m}-n512-k1024" for m in (64, 128, 256)]
    assert ids("profile.gemm.csv") == ["gemm-fp16-rcr-m1024-n512-k1024"]
    assert ids("experts.csv") == [
        "fused_moe-bf16-gate_up-t64-e256-k8-h7168-i256",
        "fused_moe-bf16-down-t64-e256-k8-h7168-i256",
        "fused_moe-bf16-down-t128-e8-k2-h4096-i512",
        "fused_moe-fp8_e4m3-row-gate_up-t64-e256-k8-h7168-i256",
        "fused_moe-fp8_e4m3-row-down-t64-e256-k8-h7168-i256",
        "fused_moe-fp8_e4m3-gate_up-t16-e256-k8-h7168-i256",
        "fused_moe-fp8_e4m3-down-t16-e256-k8-h7168-i256",
        "fused_moe-fp8_e4m3-tensor-gate_up-t32-e128-k8-h4096-i384",
        "fused_moe-fp8_e4m3-tensor-down-t32-e128-k8-h4096-i384",
    ]
    assert ids("heuristics.json") == ["gemm-fp16-rcr-m512-n1024-k256"]
    assert ids("heuristics.json:fused_gemm") == ["fused_gemm-bf16-rrr-none-m64-n32-k16-b4"]
    assert ids("sweep_fp16.csv") == ["forward-fp16-n16-c256-k128-i28x28-f3x3-p1"]
    assert ids("inductor.log") == ["gemm-fp16-rcr-m128-n4096-k4096"]
    assert ids("ranking_gfx950_bf16_NN.csv") == ["gemm-bf16-rrr-m1024-n512-k256"]
    assert ids("gfx95064.HIP.fdb.txt") == [
        "forward-fp16-n16-c64-k128-i28x28-f3x3-p1",
        "bwd_weight-bf16-n16-g2-c64-k128-i28x28-f1x1-s2",
    ]


def test_a_tuner_that_does_not_state_the_layout_needs_it(tmp_path: Path) -> None:
    file = FILES / "matmul_kernel.autotune.json"
    with pytest.raises(RecordError, match="does not state the layout: give it"):
        import_file(file, ARCH)
    with pytest.raises(ProblemSetError, match="does not state the layout: give it"):
        load_problem_set(str(file))
    records = import_file(file, ARCH, layout=LAYOUT).records
    assert records["status"].tolist() == ["ok", "unsupported"]
    assert records["latency_ms"].tolist()[0] == 0.0082


def test_other_commands_say_what_a_file_is(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="; this is a TunableOp file of PyTorch: tile-oracle runs"):
        load_rule_set(str(FILES / "tunableop_results0.csv"))
    with pytest.raises(RuleError, match="; this is JSON of no known kind"):
        load_rule_set(str(FILES / "other.json"))
    with pytest.raises(ModelError, match="is no model folder; this is a file of Triton's autotuner"):
        Predictor.load(FILES / "matmul_kernel.autotune.json")
    (tmp_path / "x.csv").write_text("# of 2026\nM,N,K\n1,2,3\n")
    known = recognised(tmp_path / "x.csv", (tmp_path / "x.csv").read_text())
    assert known.what == "a table of problems"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("x.autotune.json", '{"key": [1, 2, 3], "configs_timings": [[7, 8], 9]}'),
        ("x.jsonl", '{"definition": 1, "workload": {"axes": {}}, "evaluation": [1]}'),
        ("x.csv", "Problem,Provider,OperationKind,Operation,gemm_kind\n1,CUTLASS,gemm,one,universal\n"),
        ("gfx950.fdb.txt", f"{'9' * 5000}-1-1-1x1-1-1-1-1-0x0-1x1-1x1-0-NHWC-FP16-F=a:1,0,b"),
        ("x.log", "AUTOTUNE mm(1x1, 1x1)\nstrides: [1, [1\n"),
    ],
)
def test_damaged_files_are_refused_in_one_line(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(RecordError, match=r"\A[^\n]+\Z"):
        import_file(tmp_path / file, ARCH, layout=LAYOUT)
    with pytest.raises(ProblemSetError, match=r"\A[^\n]+\Z"):
        load_problem_set(str(tmp_path / file))
