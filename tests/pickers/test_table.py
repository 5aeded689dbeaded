"""Files of other tuners as pickers, through the readers of `foreign.formats`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.errors import ModelError
from tile_oracle.foreign.aiter import Winner, tuned_table
from tile_oracle.judge.picker import Origin
from tile_oracle.kernel import Kernel, NamedKernel, parse_kernel_name
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.scaled_gemm.problem import ScaledGemmProblem
from tile_oracle.pickers.installed import Chosen, picker_of
from tile_oracle.pickers.picker import EXACT, nearest
from tile_oracle.pickers.table import aiter_padded_m, picker_of_file
from tile_oracle.problem import problem_from_id

KIND = GemmProblem("bf16", "rcr", 1, 1, 1).kind


def kernel(m: int, n: int, k: int = 64) -> NamedKernel:
    return NamedKernel(KIND, "triton", "tiles", (("BLOCK_M", m), ("BLOCK_N", n), ("BLOCK_K", k)))


POOL = (kernel(16, 128), kernel(128, 16), kernel(128, 256), kernel(256, 128))


def picked(path: Path, problems: list[GemmProblem], arch: str = "gfx942") -> tuple[dict[str, Kernel], Origin]:
    picker = picker_of_file(path, arch)
    table, origin = Chosen(picker.name, picker, arch).rank(problems, lambda problem: POOL)
    known = {one.name: one for one in POOL}
    first = {} if table is None else table.drop_duplicates("problem").set_index("problem")["kernel"].to_dict()
    return {problem: known[name] for problem, name in first.items()}, origin


def test_a_ranking_is_of_column_major_products_whose_tiles_turn_with_them(tmp_path: Path) -> None:
    path = tmp_path / "ranking_gfx942_bf16_TN.csv"
    path.write_text(
        "problem,rank,latency,mt_m,mt_n,mt_k,mi_m,mi_n,mi_k,occ,wgm\n"
        "4096x16x512x1,1,120,256,128,64,16,16,16,1,1\n"
        "4096x16x512x1,0,100,128,16,64,16,16,16,1,1\n"
        "64x64x64x8,0,10,16,16,64,16,16,16,1,1\n"
    )
    few = GemmProblem("bf16", "rcr", 16, 4096, 512)
    found, origin = picked(path, [few, GemmProblem("bf16", "rcr", 4096, 16, 512)])
    assert found == {few.id: kernel(16, 128)}
    assert not origin.mapped
    said = r"a ranking of Origami, whose times are predicted ranking_gfx942_bf16_TN\.csv sha256:[0-9a-f]{12}"
    assert re.fullmatch(said, origin.identity)
    with pytest.raises(ModelError, match=r"no choice for gfx950 \(3 rows left out: of gfx942\)"):
        picker_of_file(path, "gfx950")


def test_a_ranking_whose_name_says_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ranking.csv"
    path.write_text("problem,rank,latency,mt_m,mt_n,mt_k\n16x16x16x1,0,1,16,16,16\n")
    with pytest.raises(ModelError, match="has to say architecture, type and transposition"):
        picker_of_file(path, "gfx942")


def test_a_log_of_picks_is_read_among_other_lines(tmp_path: Path) -> None:
    path = tmp_path / "picks.log"
    path.write_text(
        "hipBLASLt version: 1\n"
        "[TILEWRIGHT_PICK] m=4096 n=16 k=512 b=1 tA=T tB=N leaf=Large|Tiny|Mid|Bnone top1_sig=("
        "mt_m=128,mt_n=32,mt_k=64,mi_m=16,mi_n=16,mi_k=32,cha=0,chb=0) top1_score=0.5 n_configs=3\n"
    )
    few = GemmProblem("bf16", "rcr", 16, 4096, 512)
    found, origin = picked(path, [few])
    assert found == {few.id: kernel(16, 128)}
    assert origin.mapped == {few.id: "tile_m=32 tile_n=128 tile_k=64"}, "the nearest one is told"


def test_a_tuned_table_serves_a_shape_by_the_row_of_a_larger_one_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "bf16_tuned_gemm.csv"
    own, padded = GemmProblem("bf16", "rcr", 64, 4096, 512), GemmProblem("bf16", "rcr", 50, 4096, 512)
    power, none = GemmProblem("bf16", "rcr", 100, 4096, 512), GemmProblem("bf16", "rcr", 300, 4096, 512)
    rows = [(own, POOL[0]), (GemmProblem("bf16", "rcr", 128, 4096, 512), POOL[2])]
    winners = [Winner(problem, kernel.name, 10.0) for problem, kernel in rows]
    path.write_text(tuned_table(winners, "gfx942", 80, tuned_table(winners, "gfx942", 304)[0])[0])
    found, origin = picked(path, [own, padded, power, none])
    assert found == {own.id: POOL[0], padded.id: POOL[0], power.id: POOL[2]}
    assert origin.fallback == (padded.id, power.id, none.id)
    assert origin.lacking == {none.id: "its default"}
    assert "2 rows left out: of 80 compute units, not 304" in origin.identity


def test_a_table_of_mx_is_asked_as_others_of_aiter_are() -> None:
    picker = picker_of_file(FILES / "a4w4_blockscale_tuned_gemm.csv", "gfx950")
    own, smaller = (ScaledGemmProblem("fp4_e2m1", "mx", m, 512, 1024) for m in (16, 15))
    kernel = "aiter._ZN5aiter41f4gemm_bf16_per1x32Fp4_BpreShuffle_64x128E.kernelid=29.splitk=0"
    for problem, fallback in ((own, False), (smaller, True)):
        (found,) = picker.pick(problem, ())
        assert (found.kernel, found.fallback) == (f"scaled_gemm_fp4_e2m1_mx_{kernel}", fallback)
    assert not picker.pick(ScaledGemmProblem("fp8_e4m3", "block", 16, 512, 1024), ())


@given(st.integers(1, 20_000), st.sampled_from([1024, 8192]))
def test_a_padded_m_is_no_smaller_and_its_own_padding(m: int, n: int) -> None:
    step, power = aiter_padded_m(m, n, 0), aiter_padded_m(m, n, 1)
    assert step >= m
    assert aiter_padded_m(step, n, 0) == step
    assert power >= m or (power == 8192 and n > 4096)
    assert power & (power - 1) == 0


FILES = Path(__file__).parents[1] / "foreign" / "formats"
SMALL = GemmProblem("fp16", "rcr", 1024, 512, 256)


@pytest.mark.parametrize(
    ("file", "problem", "choices"),
    [
        ("tunableop_results0.csv", GemmProblem("bf16", "rcr", 64, 512, 1024), ["hipblaslt.s71"]),
        ("tuning.txt", SMALL, ["hipblaslt.s0"]),
        ("chunk_0000.csv", SMALL, ["hipblaslt.s11", "hipblaslt.s10"]),
        ("rocke_autotune.json", SMALL, ["rocke.t256x128x32_wpe2", "rocke.t128x128x32"]),
        ("profile.gemm.csv", SMALL, []),
        ("gfx95064.HIP.fdb.txt", "forward-fp16-n16-c64-k128-i28x28-f3x3-p1",
         ["miopen.ConvHipImplicitGemmGroupFwdXdlops", "miopen.GemmFwdRest"]),
        ("trace.jsonl", GemmProblem("fp16", "rcr", 64, 512, 256), ["flashinfer.triton_v1"]),
    ],
)  # fmt: skip
def test_a_file_of_times_picks_its_fastest_kernel(
    file: str, problem: GemmProblem | str, choices: list[str]
) -> None:
    picker = picker_of_file(FILES / file, "gfx950", "rcr")
    of = problem_from_id(problem) if isinstance(problem, str) else problem
    assert [
        one.kernel.partition("_rcr_")[2] or one.kernel.partition("2d_")[2] for one in picker.pick(of, ())
    ] == choices


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("inductor_lut.json",
         {"tile_m": 128, "tile_n": 64, "tile_k": 64, "group_m": 8, "warps": 4, "stages": 2}),
        ("matmul_kernel.autotune.json",
         {"tile_m": 128, "tile_n": 64, "tile_k": 64, "group_m": 8, "warps": 4, "stages": 3}),
    ],
)  # fmt: skip
def test_a_kernel_with_a_tile_means_the_nearest_one_of_another_pool(
    tmp_path: Path, file: str, values: dict[str, int]
) -> None:
    problem = SMALL if "lut" in file else GemmProblem("fp16", "rcr", 512, 1024, 256)
    kind = problem.kind
    picker = picker_of_file(FILES / file, "gfx950", "rcr")
    first = picker.pick(problem, ())[0]
    assert first.values == {"split_k": 1, **values}
    pool = [
        NamedKernel(kind, "triton", "tiles", (("BLOCK_M", m), ("BLOCK_N", 64), ("BLOCK_K", 64)))
        for m in (64, 128)
    ]
    found = nearest(first, pool)
    assert found[0] == pool[1]
    own = parse_kernel_name(first.kernel)
    assert nearest(first, [*pool, own]) == (own, EXACT)


def test_rows_that_were_wrong_or_are_of_another_device_are_no_choices(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "gfx,cu_num,M,N,K,dtype,outdtype,us,kernelName,err_ratio\n"
        "gfx942,304,64,4096,512,torch.bfloat16,torch.bfloat16,5.0,bf16gemm_a,0.9\n"
        "gfx942,304,64,4096,512,torch.bfloat16,torch.bfloat16,9.0,bf16gemm_b,0.0\n"
        "gfx950,256,64,4096,512,torch.bfloat16,torch.bfloat16,1.0,bf16gemm_c,0.0\n"
    )
    picker = picker_of_file(path, "gfx942")
    assert [one.kernel for one in picker.pick(GemmProblem("bf16", "rcr", 64, 4096, 512), ())] == [
        "gemm_bf16_rcr_aiter.bf16gemm_b"
    ]
    assert "1 rows left out: err_ratio is above 0.1" in picker.identity
    assert "1 rows left out: of gfx950" in picker.identity


def test_a_model_names_a_file_and_the_layout_that_it_lacks() -> None:
    named = picker_of(f"{FILES / 'rocke_autotune.json'}:rcr", "gfx950", ())
    assert named.name == "rocke_autotune"
    with pytest.raises(ModelError, match="does not state the layout: give it"):
        picker_of(str(FILES / "rocke_autotune.json"), "gfx950", ())


def test_other_files_are_no_such_pickers(tmp_path: Path) -> None:
    path = tmp_path / "picks.csv"
    path.write_text("M,N,K,kernel_name,predicted_tflops\n")
    assert picker_of_file(path, "gfx942") is None
    with pytest.raises(ModelError, match=r"cannot read .*none.csv: No such file"):
        picker_of_file(tmp_path / "none.csv", "gfx942")
