"""Files of other tuners as pickers: Origami's ranking, tilewright's log, AITER's tuned table."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.errors import ModelError
from tile_oracle.foreign.aiter import Winner, tuned_table
from tile_oracle.judge.model import Origin
from tile_oracle.kernel import Kernel, NamedKernel
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.pickers.chosen import Chosen
from tile_oracle.pickers.table import aiter_padded_m, picker_of_file

KIND = GemmProblem("bf16", "rcr", 1, 1, 1).kind


def kernel(m: int, n: int, k: int = 64) -> NamedKernel:
    return NamedKernel(KIND, "triton", "tiles", (("BLOCK_M", m), ("BLOCK_N", n), ("BLOCK_K", k)))


POOL = (kernel(16, 128), kernel(128, 16), kernel(128, 256), kernel(256, 128))


def picked(path: Path, problems: list[GemmProblem], arch: str = "gfx942") -> tuple[dict[str, Kernel], Origin]:
    picker = picker_of_file(path, arch)
    assert picker is not None
    table, origin = Chosen(picker, None, arch).rank(problems, lambda problem: POOL)
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
    assert origin.identity.startswith("Origami's ranking ranking_gfx942_bf16_TN.csv sha256:")
    assert origin.identity.endswith("(1 rows left out: batched)")
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


@given(st.integers(1, 20_000), st.sampled_from([1024, 8192]))
def test_a_padded_m_is_no_smaller_and_its_own_padding(m: int, n: int) -> None:
    step, power = aiter_padded_m(m, n, 0), aiter_padded_m(m, n, 1)
    assert step >= m
    assert aiter_padded_m(step, n, 0) == step
    assert power >= m or (power == 8192 and n > 4096)
    assert power & (power - 1) == 0


def test_other_files_are_no_such_pickers(tmp_path: Path) -> None:
    path = tmp_path / "picks.csv"
    path.write_text("M,N,K,kernel_name,predicted_tflops\n")
    assert picker_of_file(path, "gfx942") is None
    with pytest.raises(ModelError, match=r"cannot read .*none.csv: No such file"):
        picker_of_file(tmp_path / "none.csv", "gfx942")
