"""Products of experts: their lists, their exact check, and sessions that measure them and train on them."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operations.check_data import in_registers, made
from tests.pytest_project import Project
from tile_oracle.compiling.triton.child_process import triton_folder
from tile_oracle.compiling.triton.kernel_source import open_triton
from tile_oracle.device.bounded_rows import Repeated, outside
from tile_oracle.device.library.pytorch import grouped
from tile_oracle.errors import BuildError, KernelError, ProblemError
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.store import shipped_models
from tile_oracle.operation import operation_of_columns
from tile_oracle.operations.fused_moe.cpu_source import cpu_source
from tile_oracle.operations.fused_moe.on_device import WORKER
from tile_oracle.operations.fused_moe.problem import (
    BLOCKS,
    DTYPES,
    MOST_EXTENT,
    SCALED,
    SCALES,
    FusedMoeKernel,
    FusedMoeProblem,
)
from tile_oracle.operations.fused_moe.routing import (
    active_experts,
    experts_of,
    least_work,
    routing_array,
    shuffled,
)
from tile_oracle.problem import problem_from_id
from tile_oracle.problem.number_formats import Array, decode, encode
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import load_records
from tile_oracle.record.journal import write_part

needs_triton = pytest.mark.skipif(triton_folder() is None, reason="Triton is not installed")


@st.composite
def problems(draw: st.DrawFn) -> FusedMoeProblem:
    experts = draw(st.integers(1, 40))
    return FusedMoeProblem(
        draw(st.sampled_from(DTYPES)),
        draw(st.sampled_from(("gate_up", "down"))),
        draw(st.integers(1, 90)),
        experts,
        draw(st.integers(1, min(experts, 6))),
        *(draw(st.integers(1, 9)) for _ in range(2)),
        *(draw(st.sampled_from((0, most))) for most in (120, 70)),
        draw(st.integers(0, 5)),
    )


@given(problems())
def test_the_lists_have_each_pair_once_in_a_block_of_its_expert(p: FusedMoeProblem) -> None:
    chosen = experts_of(p)
    assert all(len(set(one)) == p.topk for one in chosen.tolist()), "different experts for each token"
    array = routing_array(p, chosen)
    for size in BLOCKS:
        count_at, experts_at, pairs_at = p.lists[size]
        assert not any(one % 4 for one in (count_at, experts_at, pairs_at)), "at multiples of 16 bytes"
        rows = int(array[count_at])
        assert rows % size == 0
        assert rows <= p.blocks(size) * size
        pairs = array[pairs_at : pairs_at + p.blocks(size) * size]
        experts = np.repeat(array[experts_at : experts_at + p.blocks(size)], size)
        real = pairs < p.pairs
        assert sorted(pairs[real]) == list(range(p.pairs))
        assert (experts[real] == chosen.reshape(-1)[pairs[real]]).all()
        assert not real[rows:].any()
        assert (experts[rows:] == -1).all()
        padding = np.bincount(experts[:rows][~real[:rows]], minlength=p.experts)
        assert (padding < size).all(), "no whole block is padding"


@given(problems(), st.integers(0, 3))
def test_data_vary_and_experts_keep_their_number_of_tokens(p: FusedMoeProblem, seed: int) -> None:
    counts = np.bincount(experts_of(p).reshape(-1), minlength=p.experts)
    other = shuffled(p, np.random.default_rng(seed), p.tokens)
    assert (np.bincount(other.reshape(-1), minlength=p.experts) == counts).all()
    periodic = shuffled(p, np.random.default_rng(seed), 7)
    assert (periodic[7:] == periodic[: max(0, p.tokens - 7)]).all()


def test_the_routing_is_what_the_problem_says() -> None:
    def largest(**routing: int) -> list[int]:
        p = FusedMoeProblem("bf16", "gate_up", 1000, 64, 2, 8, 8, **routing)
        return sorted(np.bincount(experts_of(p).reshape(-1), minlength=64).tolist(), reverse=True)[:3]

    assert max(largest()) < 60, "uniform: 31 on average"
    first, second, third = largest(zipf=100)
    assert first > 1.4 * second > 1.4 * third > 150, "about 1 : 1/2 : 1/3"
    assert largest(hot=100)[0] == 1000
    assert largest(hot=100)[1] < 60
    assert largest(hot=30)[0] in range(300, 340)
    assert largest(routing_seed=1) != largest()
    first_data, others = (shuffled(GATE_UP, np.random.default_rng(seed), 20) for seed in (0, 1))
    assert (first_data != others).any()


def computed(p: FusedMoeProblem, operands: list[Array], fault: str = "", promote: int = 0) -> Array:
    """The product as a kernel computes it that finds its rows in the lists of blocks of 16. promote: after
    how many depths sums leave registers of 14 bits; 0: they are fp32."""
    a = decode(operands[0], p.dtype).reshape(-1, p.K)
    b = decode(operands[1], p.dtype).reshape(p.experts, p.N, p.K)
    if p.scaled:
        of_a, of_b = (
            np.ones_like(one) if fault == f"no scale of {name}" else one
            for one, name in zip(operands[-2:], "AB", strict=True)
        )
        of_a = np.resize(of_a, (len(a), of_a.size // min(len(a), of_a.size)))
        of_b = of_b.reshape(p.experts, *(of_b.shape[1:] if p.scale == "block" else (-1, 1)))
        if fault == "another row's scale":
            of_a = np.roll(of_a, 1, axis=0)
        if fault == "another column's scale":
            of_b = np.roll(of_b, 1, axis=1)
        if fault == "another block's scale of A":
            of_a = np.roll(of_a, 1, axis=1)
        if fault == "another block's scale of B":
            of_b = np.roll(of_b, 1, axis=2)
        if fault == "another expert's scale":
            of_b = np.roll(of_b, 1, axis=0)
        if p.scale == "block":
            of_a, of_b = (
                np.repeat(of_a, SCALED, axis=1)[:, : p.K],
                np.repeat(of_b, SCALED, axis=2)[..., : p.K],
            )
            of_b = np.repeat(of_b, SCALED, axis=1)[:, : p.N]
        a, b = a * of_a, b * of_b
    routing, (_, experts_at, pairs_at) = operands[2], p.lists[16]
    out = np.zeros((p.pairs, p.N), np.float32)
    depth = p.K - (fault == "a depth too few")
    for block in range(p.blocks(16)):
        expert = int(routing[experts_at + block])
        if fault == "the next expert":
            expert = (expert + 1) % p.experts
        for pair in routing[pairs_at + 16 * block : pairs_at + 16 * (block + 1)]:
            if pair >= p.pairs:
                continue
            row = a[pair * p.rows_of_a // p.topk if fault != "the pair's row" else pair % len(a), :depth]
            if fault == "sums in bf16":
                sums = np.zeros(p.N, np.float32)
                for k in range(depth):
                    sums = decode(encode(sums + row[k] * b[expert, :, k], "bf16"), "bf16")
            elif promote:
                parts = (slice(k, min(k + promote, depth)) for k in range(0, depth, promote))
                of_parts = (in_registers(row[None, one], b[expert, :, one])[0] for one in parts)
                sums = np.sum([one.astype(np.float32) for one in of_parts], axis=0)
            else:
                sums = b[expert, :, :depth] @ row
            if p.product == "down" and fault != "no weight":
                sums = sums * operands[3].reshape(-1)[pair]
            out[pair] = sums
    return encode(out.reshape(p.tokens, -1), "bf16")


GATE_UP = FusedMoeProblem("bf16", "gate_up", 20, 6, 2, 300, 9)
DOWN = FusedMoeProblem("bf16", "down", 20, 6, 2, 18, 300, zipf=100)
FP8 = [replace(one, dtype="fp8_e4m3", scale=scale) for scale in SCALES for one in (GATE_UP, DOWN)]


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("p", [GATE_UP, DOWN, *FP8], ids=lambda p: p.id)
def test_the_check_accepts_exact_sums_alone(p: FusedMoeProblem, far: bool) -> None:
    operands, low, high = made(WORKER, p, p.tokens, far=far)
    assert (low == high).all()
    assert outside(computed(p, operands), low, high, "bf16") is None
    faults = ["a depth too few", "the next expert", "sums in bf16"]
    of_scales = ["another expert's scale", "no scale of A", "no scale of B"] if p.scaled else []
    of_scales += ["another row's scale"] if p.scaled and p.scale != "tensor" else []
    of_scales += ["another column's scale"] if p.scale == "row" else []
    if p.scaled and p.scale == "block" and not far:  # of whose three blocks all may have the same
        of_scales += [f"another block's scale of {one}" for one in "AB"]
    for fault in (*faults, *of_scales, "no weight" if p.product == "down" else "the pair's row"):
        said = str(outside(computed(p, operands, fault), low, high, "bf16"))
        assert int(said.split()[0]) > p.pairs * p.N / (3 if fault in faults else 6), f"{fault}: {said}"


@pytest.mark.parametrize(("promote", "depth", "right"), [(128, 1024, True), (1024, 1024, False)])
@pytest.mark.parametrize("scale", SCALES[:2])
def test_sums_that_stay_in_hoppers_registers_are_wrong(
    scale: str, promote: int, depth: int, right: bool
) -> None:
    p = FusedMoeProblem("fp8_e4m3", "gate_up", 9, 3, 2, depth, 9, scale=scale)
    operands, low, high = made(WORKER, p, p.tokens, far=True)
    said = outside(computed(p, operands, promote=promote), low, high, "bf16")
    assert (said is None) is right
    assert right or int(str(said).split()[0]) > p.pairs * p.N / 2, "most values show it"


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("product", ["gate_up", "down"])
def test_pytorchs_grouped_product_is_exact(product: str, far: bool) -> None:
    torch = pytest.importorskip("torch")
    p = FusedMoeProblem("bf16", product, 20, 6, 2, 64, 48)
    (a, b, routing, *weights), low, high = made(WORKER, p, p.tokens, far=far)
    stored = [torch.from_numpy(one.view(np.int16)).view(torch.bfloat16) for one in (a, b)]
    grouped(
        torch,
        p,
        stored[0].reshape(-1, p.K),
        stored[1].reshape(p.experts, p.N, p.K),
        torch.from_numpy(routing.reshape(-1)[: p.pairs]),
        [torch.from_numpy(one.reshape(-1, 1)) for one in weights],
        result := torch.zeros((p.pairs, p.N), dtype=torch.bfloat16),
    )()
    out = result.view(torch.int16).numpy().view(low.dtype).reshape(p.tokens, -1)
    assert outside(out, low, high, "bf16") is None


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_are_integers_below_2_to_the_24_at_the_largest_depth(dtype: str, far: bool) -> None:
    p = FusedMoeProblem(dtype, "down", 3, 2, 1, 40, MOST_EXTENT)
    (a, b, *more), _, _ = made(WORKER, p, p.tokens, far=far)
    x, y = (decode(one, dtype).reshape(-1, p.K)[0].astype(np.float64) for one in (a, b))
    of_block = SCALED * integers(x).max() * integers(y).max()
    if p.scaled:
        assert of_block < 2**14, "as far as Hopper's fp8 instructions are exact"
        x, y = x * np.repeat(more[-2][0], SCALED), y * np.repeat(more[-1][0, 0], SCALED)
    assert integers(x).max() * integers(y).max() * p.K < 2**24
    terms = x * y
    assert (np.cumsum(terms.astype(np.float32), dtype=np.float32) == np.cumsum(terms)).all()


def integers(row: Array) -> Array:
    """The sizes of values as multiples of the largest power of two that divides all."""
    unit = next(2.0**power for power in range(9, -30, -1) if not (np.abs(row) % 2.0**power).any())
    return np.abs(row) / unit


def test_large_weights_repeat_rows_but_no_experts() -> None:
    p = FusedMoeProblem("bf16", "gate_up", 3, 384, 8, 8192, 256)
    b = WORKER.others(p, np.random.default_rng(0), None, far=False)[0]
    assert isinstance(b, Repeated)
    assert b.shape == (384, 512, 8192)
    rows = len(b.values)
    assert rows < 2000
    starts = {expert * p.N % rows for expert in range(p.experts)}
    assert len(starts) == p.experts


@pytest.mark.parametrize("scale", SCALES)
def test_tokens_repeat_with_their_scales(scale: str) -> None:
    p = FusedMoeProblem("fp8_e4m3", "down", 20, 6, 2, 18, 300, scale=scale)
    of_a = WORKER.others(p, np.random.default_rng(1), 7, far=True)[-2].whole()
    assert of_a.shape == p.operand_shapes[-3]
    assert scale == "tensor" or ((of_a[7:] == of_a[:-7]).all() and (of_a[1:] != of_a[:-1]).any())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_kernel_of_each_data_type_has_a_source(dtype: str) -> None:
    kernel = parse_kernel_name(f"fused_moe_{dtype}_down_rows16_columns4")
    assert isinstance(kernel, FusedMoeKernel)
    assert ("NUMBERS[" in cpu_source(kernel)) == (dtype != "bf16")


def test_a_scale_is_named_where_it_is_not_of_blocks() -> None:
    usual, of_rows = (
        "fused_moe-fp8_e4m3-down-t1-e8-k2-h64-i64",
        "fused_moe-fp8_e4m3-row-down-t1-e8-k2-h64-i64",
    )
    by_block, by_row = map(problem_from_id, (usual, of_rows))
    assert (by_block.id, by_row.id) == (usual, of_rows)
    assert by_row == replace(by_block, scale="row")
    assert by_row.title == "down, 1 token to 2 of 8 experts, 64 by 64, scales by row"
    assert [p.operand_shapes[-3:-1] for p in (by_block, by_row, replace(by_row, scale="tensor"))] == [
        ((1, 2), (8, 1, 1)), ((1, 2), (8, 64)), ((1,), (8,))
    ]  # fmt: skip
    for scale, kernel in (("block", "fp8_e4m3_down"), ("row", "fp8_e4m3_row_down")):
        name = f"fused_moe_{kernel}_rows16_columns4"
        assert parse_kernel_name(name).kind == replace(by_block, scale=scale).kind
        assert parse_kernel_name(name).name == name
    for wrong in (
        "fused_moe_fp8_e4m3_block_down_rows16_columns4",
        "fused_moe_fp8_e4m3_rows_down_rows16_columns4",
    ):
        with pytest.raises(KernelError, match="one looks like fused_moe_bf16_gate_up_rows1_columns1"):
            parse_kernel_name(wrong)
    with pytest.raises(ProblemError, match="did you mean 'fused_moe-fp8_e4m3-down-"):
        problem_from_id("fused_moe-fp8_e4m3-block-down-t1-e8-k2-h64-i64")
    with pytest.raises(ProblemError, match="bf16 has no scales: leave out the scale row, or give the dtype"):
        problem_from_id("fused_moe-bf16-row-down-t1-e8-k2-h64-i64")
    with pytest.raises(ProblemError, match="scale 'mx' is not one of tensor, row, block"):
        replace(by_row, scale="mx")


def test_least_work_reads_the_experts_that_have_tokens() -> None:
    few = FusedMoeProblem("bf16", "down", 1, 128, 2, 64, 32)
    assert active_experts(few) == 2
    assert least_work(few)[1] == 2 * (2 + 2 * 64) * 32
    assert few.bytes > 2 * 128 * 64 * 32
    assert least_work(replace(few, dtype="fp8_e4m3"))[1] == (2 + 2 * 64) * 32


def test_tables_names_and_ids_are_told_apart() -> None:
    assert operation_of_columns(("tokens", "experts", "topk", "hidden", "intermediate")).name == "fused_moe"
    with pytest.raises(KernelError, match="no fused_moe kernel with rows 8"):
        parse_kernel_name("fused_moe_bf16_down_rows8_columns4")
    with pytest.raises(ProblemError, match="topk = 9 is not an integer from 1 to 8"):
        problem_from_id("fused_moe-bf16-down-t1-e8-k9-h1-i1")
    with pytest.raises(ProblemError, match="did you mean 'fused_moe-bf16-gate_up-t64-e8-k2-h8-i8'"):
        problem_from_id("fused_moe-bf16-gate_up-t64-e8-k2-h8-i8-zipf0")


IDS = {
    "fused_moe_training": "cea4cd2e5532", "fused_moe_more_training": "926bddc3c6e0",
    "fused_moe_validation": "a85af4864d67", "fused_moe_fp8_training": "0da7d908e759",
    "fused_moe_fp8_validation": "67dada9cb916",
}  # fmt: skip
"""Problem set -> the digest of its ids when problems had no scale."""


@pytest.mark.parametrize("name", IDS)
def test_ids_from_before_there_were_scales_are_unchanged(name: str) -> None:
    ids = "\n".join(problem.id for problem in load_problem_set(name).problems)
    assert hashlib.sha256(ids.encode()).hexdigest().startswith(IDS[name])
    assert all(problem_from_id(one).id == one for one in ids.splitlines())


def test_records_from_before_there_were_scales_have_those_of_blocks(tmp_path: Path) -> None:
    (file,) = (shipped_models() / "fused_moe_fp8_e4m3_sm_90").glob(
        "*/fused_moe_fp8_validation/triton.parquet"
    )
    pq.write_table(pq.read_table(file).drop_columns("scale"), tmp_path / "older.parquet")
    older = load_records(tmp_path / "older.parquet")
    assert set(older["scale"]) == {"block"}
    assert {parse_kernel_name(one).kind.words["scale"] for one in older["kernel"]} == {"block"}
    rows = older.head(3).astype(object).where(older.head(3).notna(), None).to_dict("records")
    without = [{name: value for name, value in row.items() if name != "scale"} for row in rows]
    write_part(tmp_path / "part.parquet", without)
    assert load_records(tmp_path / "part.parquet")["scale"].tolist() == ["block"] * 3


def test_models_know_the_scale_but_for_the_older_ones() -> None:
    older, newer = schema_named("fused_moe_pool_1"), schema_named("fused_moe_pool_2")
    assert newer.names == (*older.names, "scales")
    rows = pd.DataFrame([
        replace(FP8[0], scale=scale).as_row() | {"kernel": "fused_moe_bf16_down_triton.experts.BLOCK_M=16"}
        for scale in SCALES
    ])  # fmt: skip
    found = newer.compute(rows, hardware_features("sm_90"))
    assert found[:, -1].tolist() == [0, 1, 2]
    assert (found[:, :-1] == older.compute(rows.drop(columns="scale"), hardware_features("sm_90"))).all()


USERS_FILE = """
import triton
import triton.language as tl
from tile_oracle.triton import cdiv, fused_moe

CONFIGS = [{"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "MASKED": masked} for masked in (True, False)]


@fused_moe(grid=lambda meta: (cdiv(meta["EM"], meta["BLOCK_SIZE_M"]), cdiv(meta["N"], meta["BLOCK_SIZE_N"])),
           configs=CONFIGS)
@triton.jit
def plain(a_ptr, b_ptr, c_ptr, topk_weights_ptr, sorted_token_ids_ptr, expert_ids_ptr,
          num_tokens_post_padded_ptr, N, K, num_valid_tokens, top_k, MUL_ROUTED_WEIGHT: tl.constexpr,
          BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, MASKED: tl.constexpr):
    block = tl.program_id(0)
    if block * BLOCK_SIZE_M < tl.load(num_tokens_post_padded_ptr):
        pair = tl.load(sorted_token_ids_ptr + block * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M))
        n = tl.program_id(1) * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
        there = pair < num_valid_tokens
        b = b_ptr + tl.load(expert_ids_ptr + block) * N * K
        sums = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
        for k in range(K):
            x = tl.load(a_ptr + pair // top_k * K + k, mask=there, other=0.0).to(tl.float32)
            y = tl.load(b + n * K + k, mask=n < N, other=0.0).to(tl.float32)
            sums += x[:, None] * y[None, :]
        if MUL_ROUTED_WEIGHT:
            sums *= tl.load(topk_weights_ptr + pair, mask=there, other=0.0)[:, None]
        store = n[None, :] < N
        if MASKED:
            store = store & there[:, None]
        tl.store(c_ptr + pair[:, None] * N + n[None, :], sums.to(c_ptr.dtype.element_ty), mask=store)
"""


@pytest.mark.slow
@needs_triton
def test_a_users_kernel_that_writes_rows_of_padding_is_wrong(project: Project) -> None:
    (project.folder / "mine.py").write_text(USERS_FILE)
    (project.folder / "two.csv").write_text(
        "product,tokens,experts,topk,hidden,intermediate\ngate_up,3,3,2,4,5\ndown,3,3,2,5,4\n"
    )
    project.pytest(
        *("--problem-set", "two.csv", "--kernels", "mine.py", "--target", "interpret", "--model", "none")
    )
    records = project.records()
    masked = records["kernel"].str.contains("MASKED=True")
    assert sorted(records[masked]["product"]) == ["down", "gate_up"]
    assert set(records[masked]["status"]) == {"untimed"}
    assert set(records[~masked]["status"]) <= {"wrong", "crash"}


@needs_triton
def test_a_configuration_without_rows_of_a_block_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(USERS_FILE.replace('"BLOCK_SIZE_M": 16', '"BLOCK_SIZE_M": 8'))
    with pytest.raises(BuildError, match=r"needs BLOCK_M or BLOCK_SIZE_M, one of 16, 32, 64, 128, 256"):
        open_triton("sm_90", os.fspath(file))
