"""Every known format's smallest file, and what each command does with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tile_oracle.errors import ModelError, ProblemSetError, RecordError, RuleError
from tile_oracle.foreign.formats import FORMATS, recognised
from tile_oracle.foreign.importers import import_file, write_records
from tile_oracle.model.predictor import Predictor
from tile_oracle.pool.rules import load_rule_set
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import load_records
from tools.formats_page import ARCH, DOORS, FILES, LAYOUT, PAGE, known_files, outcome, page

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
