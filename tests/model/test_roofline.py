"""The roofline model: the formula's properties, its files, and what it picks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.pools import gemm_pool
from tile_oracle.arch import load_arch
from tile_oracle.errors import ModelError
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.feature_table import Array
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas.roofline import ROOFLINE
from tile_oracle.features.schemas.tile_work import tile_work
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.fitting_model import models_for
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.roofline import RooflineModel, roofline_folder
from tile_oracle.model.store import read_manifest
from tile_oracle.operation import Kind
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.selector.selector_file import NativeModel, selector_bytes

KIND = Kind.of("gemm", dtype="bf16", layout="rcr")


def triton(
    function: str, m: int, n: int, k: int = 64, warps: int = 8, stages: int = 4, **more: object
) -> Kernel:
    values = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "num_warps": warps, "num_stages": stages, **more}
    words = ".".join(f"{name}={value}" for name, value in sorted(values.items()))
    return parse_kernel_name(f"gemm_bf16_rcr_triton.{function}.{words}")


LARGE, SMALL = triton("tiles", 128, 256), triton("tiles", 64, 64, warps=4)
FEW = triton("tiles", 16, 64, 128, 4, 5)
LIBRARY = parse_kernel_name("gemm_bf16_rcr_cublaslt.a66.stages=36.tile=20")
MODEL = RooflineModel("sm_90")


def times_ms(
    problems: Sequence[GemmProblem], kernels: Sequence[Kernel], model: RooflineModel = MODEL
) -> Array:
    log_time = model.log_time(pair_columns(problems, kernels), {})
    return np.asarray(np.exp(log_time).reshape(len(problems), len(kernels)))


def square(size: int) -> GemmProblem:
    return GemmProblem("bf16", "rcr", size, size, size)


def test_every_kernel_of_a_mixed_pool_has_a_time() -> None:
    kernels = [*gemm_pool("bf16", "rcr", "sm_90"), LARGE, SMALL, FEW, LIBRARY]
    problems = [GemmProblem("bf16", "rcr", *size) for size in ((1, 1, 1), (37, 168, 8), (4096, 50257, 1600))]
    found = times_ms(problems, kernels)
    assert np.isfinite(found).all()
    assert (found > 0).all()


@pytest.mark.parametrize("arch", ["sm_90", "gfx950"])
def test_no_time_is_beyond_the_peak_rates(arch: str) -> None:
    problems = [square(8192), GemmProblem("bf16", "rcr", 1, 131072, 8192)]
    found = times_ms(problems, [LARGE, SMALL, FEW, LIBRARY], RooflineModel(arch))
    peak = load_arch(arch).peak
    hardware = load_arch(arch).hardware
    flops = peak.flops_a_cu_and_clock["bf16"] * hardware.num_cus * hardware.max_clock_mhz * 1e6
    for problem, times in zip(problems, found, strict=True):
        least_ms = 1e3 * max(problem.flops / flops, problem.bytes / (1e9 * peak.memory_gb_s))
        assert (times > least_ms).all()
        assert times.min() < 3 * least_ms


def test_large_products_need_large_tiles_and_few_rows_small_ones() -> None:
    large, few = times_ms([square(8192), GemmProblem("bf16", "rcr", 4, 8192, 8192)], [LARGE, SMALL, FEW])
    assert list(np.argsort(large)) == [0, 1, 2]
    assert few.argmin() == 2


def test_a_partial_tile_costs_as_much_as_a_full_one() -> None:
    whole, more, next_whole = times_ms(
        [GemmProblem("bf16", "rcr", m, 4096, 4096) for m in (4096, 4112, 4224)], [LARGE]
    )
    assert more > whole
    assert more == pytest.approx(next_whole, rel=0.03)


def test_splitting_the_depth_pays_for_few_tiles_only() -> None:
    split = triton("split_k", 128, 256, SPLIT_K=8)
    deep, wide = times_ms([GemmProblem("bf16", "rcr", 128, 256, 65536), square(8192)], [LARGE, split])
    assert deep[1] < deep[0]
    assert wide[1] > wide[0]


def test_unaligned_rows_are_slow_for_copies_and_not_for_descriptors() -> None:
    kernels = [LARGE, triton("tma", 128, 256)]
    aligned, odd = times_ms([square(4096), GemmProblem("bf16", "rcr", 4096, 4096, 4097)], kernels)
    assert odd[0] > 2 * aligned[0]
    assert odd[1] < 1.1 * aligned[1]


def test_what_names_say() -> None:
    assert tile_work(triton("tma_uneven", 128, 64, MORE_N=32).name).tile == (128, 96, 64)
    assert tile_work(triton("tma_swapped", 16, 64).name).swapped
    assert tile_work(triton("stream_k", 128, 128).name).streams
    rows = tile_work("gemm_bf16_rcr_triton.few_rows.BLOCK_K=512.BLOCK_N=8.ROWS=2.STAGES=4.num_warps=4")
    assert (rows.engine, rows.tile, rows.stages) == ("rows", (2, 8, 512), 4)
    columns = tile_work(
        "gemm_bf16_rcr_triton.few_columns.BLOCK_K=512.BLOCK_M=8.COLUMNS=2.STAGES=4.num_warps=4"
    )
    assert (columns.engine, columns.tile, columns.stages) == ("columns", (8, 2, 512), 4)
    warps = tile_work(triton("tma_warps", 128, 128, warps=4, MORE_N=48, GROUPS=2).name)
    assert (warps.engine, warps.tile[1], warps.waves) == ("warps", 176, 8)
    assert warps.pieces == 3, "of 128, 32 and 16 columns"
    assert warps.wide
    held = tile_work(triton("tma_warps", 128, 128, MORE_N=48, REGISTERS=True).name)
    assert held.read_by_groups < warps.read_by_groups, "the rows stay in registers"
    assert tile_work(triton("tma_uneven", 128, 64, MORE_N=32).name).engine == "uneven"
    assert tile_work(triton("pieces", 16, 64, MORE_N=8).name).engine == "pieces"
    assert tile_work(triton("tma_split_k", 16, 64, SPLIT_K=2, SWAPPED=True).name).engine == "swapped"


def test_what_a_librarys_names_say() -> None:
    library = tile_work(LIBRARY.name)
    assert (library.engine, library.tile[2], library.stages) == ("library", 128, 0), "as many as fit"
    clustered = tile_work("gemm_bf16_rcr_cublaslt.a66.cluster=3.custom=7.stages=35.tile=20")
    assert (clustered.engine, clustered.cluster, clustered.tile[2]) == ("library_7", (1, 2), 64)
    assert tile_work("gemm_bf16_rcr_cublaslt.a66.custom=90.tile=20").engine == "library"
    older = tile_work("gemm_bf16_rcr_cublaslt.a23.cluster=3.stages=15.tile=20")
    assert (older.engine, older.stages, older.cluster) == ("library_a23", 3, (1, 1))
    assert tile_work("gemm_bf16_rcr_cublaslt.a41.tile=20").engine == "library_older"


def test_a_cluster_loads_what_it_shares_once() -> None:
    """Two tiles of rows that share their columns: what limits them is the way from the cache."""
    alone, rows = (
        parse_kernel_name(f"gemm_bf16_rcr_cublaslt.a66.{cluster}stages=35.tile=15")
        for cluster in ("", "cluster=5.")
    )
    times = times_ms([GemmProblem("bf16", "rcr", 128, 3072, 4096)], [alone, rows])[0]
    assert times[1] < 0.97 * times[0]


def test_matrices_that_fit_the_cache_stay_there() -> None:
    """One row by 32 MB and by 512 MB: the memory's bandwidth limits the second alone."""
    row = parse_kernel_name("gemm_bf16_rcr_triton.few_rows.BLOCK_K=256.BLOCK_N=8.ROWS=1.STAGES=4.num_warps=2")
    problems = [GemmProblem("bf16", "rcr", 1, n, 4096) for n in (4096, 65536)]
    peak = load_arch("sm_90").peak
    in_memory = [problem.bytes / (1e6 * peak.memory_gb_s) for problem in problems]
    fitting, larger = times_ms(problems, [row])[:, 0]
    assert fitting < in_memory[0]
    assert larger > in_memory[1]


def test_a_tile_of_many_streamed_parts_is_slow_to_add_up() -> None:
    """132 programs share one tile, or 4,096."""
    kernels = [triton("stream_k", 64, 64), triton("tiles", 64, 64)]
    problems = [GemmProblem("bf16", "rcr", 64, 64, 64 * 132), square(4096)]
    part_us = 0.102
    slower = replace(ROOFLINE, features=tuple(
        replace(one, formula=lambda t: np.asarray(2 * part_us)) if one.name == "part_us" else one
        for one in ROOFLINE.features
    ))  # fmt: skip
    rows, hardware = pair_columns(problems, kernels), hardware_features("sm_90")
    times = (schema.compute(rows, hardware, ("total_us",)) for schema in (slower, ROOFLINE))
    more = np.subtract(*times).reshape(2, 2)
    assert more[0, 0] == pytest.approx(132 * part_us, rel=1e-6)
    assert more[1, 0] < more[0, 0] / 1000
    assert (more[:, 1] == 0).all()


def test_rows_without_matrix_instructions_pay_for_their_sums() -> None:
    """A wide block has as many sums in few groups, whose addition nothing else hides."""
    wide, narrow = (
        parse_kernel_name(
            f"gemm_bf16_rcr_triton.few_rows.BLOCK_K=256.BLOCK_N={n}.ROWS=1.STAGES=4.num_warps={warps}"
        )
        for n, warps in ((32, 8), (8, 2))
    )
    found = times_ms([GemmProblem("bf16", "rcr", 1, 32768, 512)], [wide, narrow])[0]
    assert found[0] > 1.1 * found[1]


def test_a_folder_ranks_pools_of_several_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILE_ORACLE_CACHE", str(tmp_path))
    folder = roofline_folder(KIND, "sm_90")
    assert roofline_folder(KIND, "sm_90") == folder
    assert read_manifest(folder)["constants_from"] == ["the times of 1,129 products on an NVIDIA H200"]
    predictor = Predictor.load(folder)
    assert predictor.ranks_named
    ranked = predictor.rank(square(8192), [FEW, SMALL, LARGE])
    assert [kernel for kernel, _ in ranked] == [LARGE, SMALL, FEW]
    assert models_for(KIND, "sm_90", [folder.parent], kernels=[FEW]).folder is None, "only by its name"
    with pytest.raises(ModelError, match="C\\+\\+ cannot compute the roofline model"):
        selector_bytes(NativeModel.load(folder), [LARGE])


@pytest.mark.parametrize(
    ("op", "dtype", "arch", "message"),
    [
        ("grouped_conv", "bf16", "sm_90", "is for gemm, not for grouped_conv"),
        ("gemm", "fp8", "cpu", "is not in kernels/arch_specs.json"),
        ("gemm", "bf16", "gfx908", "is not in kernels/arch_specs.json"),
    ],
)
def test_what_has_no_roofline_gets_one_line(op: str, dtype: str, arch: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        roofline_folder(Kind.of(op, dtype=dtype), arch)
