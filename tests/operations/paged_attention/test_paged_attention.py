"""Attention over paged caches: lengths and counts of problems, the check, and a user's kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operations.check_data import made
from tests.pytest_project import Project
from tile_oracle.compiling.triton.child_process import triton_folder
from tile_oracle.device.bounded_rows import Repeated, outside
from tile_oracle.errors import ProblemError
from tile_oracle.operation import operation_of_columns
from tile_oracle.operations.paged_attention.on_device import WORKER
from tile_oracle.operations.paged_attention.problem import (
    HEAD_SIZES,
    LATENT,
    PagedAttentionProblem,
    least_work,
)
from tile_oracle.problem import problem_from_id
from tile_oracle.problem.number_formats import Array, decode, encode


@st.composite
def problems(draw: st.DrawFn) -> PagedAttentionProblem:
    head_dim = draw(st.sampled_from(tuple(HEAD_SIZES)))
    kv_heads = 1 if head_dim == LATENT else draw(st.integers(1, 3))
    keys = draw(st.integers(1, 90))
    return PagedAttentionProblem(
        "bf16",
        draw(st.sampled_from(("bf16", "fp8_e4m3"))),
        draw(st.integers(1, 4)),
        kv_heads * draw(st.integers(1, 3)),
        kv_heads,
        draw(st.integers(1, min(keys, 20))),
        keys,
        head_dim,
        draw(st.sampled_from((1, 16, 32))),
        draw(st.integers(0, 100)),
        *(draw(st.integers(0, most)) for most in (1, 99, 5)),
    )


@given(problems())
def test_counts_are_those_of_the_lengths(p: PagedAttentionProblem) -> None:
    assert p.lengths[0] == (p.seq_q, p.seq_kv)
    window = p.window or p.seq_kv
    seen = [
        [set(range(max(0, end - window), end)) for end in range(keys - queries + 1, keys + 1)]
        for queries, keys in p.lengths
    ]
    assert all(seen_by_query for sequence in seen for seen_by_query in sequence), (
        "each query sees its own key"
    )
    assert p.visible == sum(len(one) for sequence in seen for one in sequence)
    assert p.read_keys == sum(len(set.union(*sequence)) for sequence in seen)
    assert p.pages == sum(-(-keys // p.page_size) for _, keys in p.lengths)
    assert p.tokens == sum(queries for queries, _ in p.lengths) == p.operand_shapes[0][0]
    assert least_work(p)[1] <= p.bytes


def test_lengths_are_uniform_and_seeded() -> None:
    def keys(**fields: int) -> list[int]:
        p = PagedAttentionProblem("bf16", "bf16", 1000, 4, 1, 1, 1000, 64, 16, **fields)
        return [keys for _, keys in p.lengths]

    assert set(keys()) == {1000}
    varied = sorted(keys(variation=60))
    assert varied[0] in range(400, 410)
    assert varied[500] in range(670, 730)
    assert keys(variation=60, lengths_seed=1) != keys(variation=60)


def computed(p: PagedAttentionProblem, operands: list[Array], fault: str = "", parts: int = 1) -> Array:
    """The result as a kernel computes it that rounds weights to bf16 and merges `parts` of the keys."""
    q, lists, sinks = decode(operands[0], "bf16").reshape(p.tokens, p.heads, -1), operands[2], operands[3]
    pages = decode(operands[1], p.kv_dtype).reshape(p.pages, -1, p.page_size, p.kv_heads, p.head_dim)
    keys_at, table_at, _ = p.places
    table = lists[table_at : table_at + p.batch * p.table_width].reshape(p.batch, -1)
    out = np.zeros((p.tokens, p.heads, p.head_dim_v), np.float32)
    scale = p.scale * (2 if fault == "another scale" else 1)
    for token in range(p.tokens):
        sequence = np.searchsorted(lists[: p.batch + 1], token, side="right") - 1
        queries_end, keys = lists[sequence + 1], lists[keys_at + sequence]
        end = int(keys - (queries_end - token) + 1)
        begin = max(0, end - p.window - (fault == "a key before the window")) if p.window else 0
        begin += fault == "the window's first key"
        most_keys = p.table_width * p.page_size
        if fault == "the last page's tail":
            end = -(-end // p.page_size) * p.page_size
        if fault == "a page beyond the length":
            end = min(end + p.page_size, most_keys)
        if fault == "not the last key":
            end -= 1
        logical = np.arange(begin, end)
        place = logical // p.page_size
        if fault == "the page before":
            place = np.where(place == place[-1], np.maximum(place - 1, 0), place)
        row = table[(sequence + 1) % p.batch if fault == "another sequence's pages" else sequence]
        for head in range(p.heads):
            of_keys = (head // p.group + (fault == "another head's keys")) % p.kv_heads
            k = pages[row[place], 0, logical % p.page_size, of_keys]
            v = pages[row[place], -1, logical % p.page_size, of_keys, : p.head_dim_v]
            scores = (k @ q[token, head] * np.float32(scale)).astype(np.float32)
            merged = []
            for part in range(parts):
                some = slice(part * -(-len(logical) // parts), (part + 1) * -(-len(logical) // parts))
                sink = sinks[head] if part == 0 and fault != "no sink" else -np.inf
                most = max(scores[some].max(initial=-np.inf), sink)
                if most == -np.inf:
                    continue
                weights = np.exp(scores[some] - most)
                total = weights.sum(dtype=np.float32) + np.exp(sink - most)
                merged.append((most, total, decode(encode(weights, "bf16"), "bf16") @ v[some]))
            highest = max(most for most, _, _ in merged)
            factors = [
                1 if fault == "parts not rescaled" else np.exp(most - highest) for most, _, _ in merged
            ]
            total = sum(factor * one for factor, (_, one, _) in zip(factors, merged, strict=True))
            sums = sum(factor * one for factor, (_, _, one) in zip(factors, merged, strict=True))
            out[token, head] = sums / total
    return encode(out, "bf16").reshape(-1, p.head_dim_v)


def wrong_rows(p: PagedAttentionProblem, far: bool, fault: str = "", parts: int = 1) -> int:
    """How many rows of a result are outside of their bounds."""
    rows = p.tokens * p.heads
    operands, low, high = made(WORKER, p, rows, far=far, period=rows if far else None)
    with np.errstate(invalid="ignore"):
        out = computed(p, operands, fault, parts)
    return sum(
        outside(*(one[row : row + 1] for one in (out, low, high)), "bf16") is not None for row in range(rows)
    )


@pytest.mark.filterwarnings("ignore:invalid value")
@given(problems(), st.booleans(), st.integers(1, 4))
def test_the_check_accepts_right_results(p: PagedAttentionProblem, far: bool, parts: int) -> None:
    assert not wrong_rows(p, far, parts=parts)


DECODE = PagedAttentionProblem("bf16", "bf16", 3, 6, 2, 1, 700, 64, 16, variation=40)
WINDOW = PagedAttentionProblem("bf16", "fp8_e4m3", 2, 4, 2, 9, 300, 128, 32, 128, 1, variation=40)
MLA = PagedAttentionProblem("bf16", "bf16", 2, 8, 1, 1, 500, LATENT, 64, sinks=1, variation=30)
FAULTS = {
    DECODE: (
        *("not the last key", "the last page's tail", "a page beyond the length", "the page before"),
        *("another head's keys", "another sequence's pages"),
    ),
    WINDOW: (
        "a key before the window",
        "the window's first key",
        "no sink",
        "another scale",
        "not the last key",
    ),
    MLA: ("no sink", "the last page's tail", "another scale", "parts not rescaled"),
}


@pytest.mark.parametrize(
    ("p", "fault"),
    [(p, fault) for p, faults in FAULTS.items() for fault in faults],
    ids=lambda one: getattr(one, "id", one),
)
def test_a_fault_is_wrong(p: PagedAttentionProblem, fault: str) -> None:
    # The second set shows what the visible levels' weights are, the first each key.
    far = fault in ("no sink", "another scale", "parts not rescaled")
    assert wrong_rows(p, far, fault, 3) > p.tokens * p.heads * 0.6


def test_one_key_of_many_is_not_left_out_unseen() -> None:
    p = PagedAttentionProblem("bf16", "bf16", 1, 8, 1, 1, 60_000, 64, 256)
    assert not wrong_rows(p, False)
    assert wrong_rows(p, False, "not the last key") >= 3, "whose class has weight"


def test_caches_repeat_pages_and_a_gpus_second_set_shares_them() -> None:
    p = PagedAttentionProblem("bf16", "bf16", 32, 32, 8, 1, 8192, 128, 16, variation=50)
    random = np.random.default_rng(0)
    cache, lists, sinks = WORKER.others(p, random, None, far=False)
    assert isinstance(cache, Repeated)
    assert len(cache.values) * 4 < p.pages == cache.shape[0]
    used = set()
    keys_at, table_at, _ = p.places
    for sequence, (_, keys) in enumerate(p.lengths):
        row = lists.values[table_at + sequence * p.table_width :][: -(-keys // p.page_size)]
        used |= set(row.tolist())
        assert lists.values[keys_at + sequence] == keys
    assert used == set(range(p.pages)), "every page once"
    assert (sinks.values == -np.inf).all()
    table = WORKER.others(p, random, 1, far=True)[1].values[table_at : table_at + 32 * p.table_width]
    assert len(np.unique(table.reshape(32, -1), axis=0)) == 2


def test_the_rows_of_timed_runs_have_all_heads() -> None:
    for batch, heads, queries in ((64, 32, 1), (1, 8, 1), (3, 128, 1), (2, 64, 900)):
        p = PagedAttentionProblem("bf16", "bf16", batch, heads, 1, queries, 1000, 64, 16)
        count = WORKER.sample(p)
        rows = np.arange(count) * (p.tokens * heads // count)
        assert len(set((rows % heads).tolist())) >= min(count, heads) * 0.9


def test_tables_and_ids_are_told_apart() -> None:
    assert operation_of_columns(("heads", "kv_heads", "seq_q", "page_size")).name == "paged_attention"
    assert operation_of_columns(("heads", "kv_heads", "seq_q")).name == "attention"
    for text, message in (
        ("b1-h3-g2-q1-k9-d64-p16", "heads = 3 is no multiple of kv_heads = 2"),
        ("b1-h4-g2-q10-k9-d64-p16", "seq_q = 10 is more than seq_kv = 9"),
        ("b1-h4-g2-q1-k9-d576-p16", "head_dim 576 needs kv_heads 1"),
        ("b1-h4-g2-q1-k9-d80-p16", "head_dim 80 is not one of 64, 96, 128, 192, 256, 576"),
    ):
        with pytest.raises(ProblemError, match=message):
            problem_from_id(f"paged_attention-bf16-bf16-{text}")


USERS_FILE = """
import triton
import triton.language as tl
from tile_oracle.triton import paged_attention

CONFIGS = [{"BEYOND": beyond} for beyond in (0, 1)]


@paged_attention(grid=lambda meta: (meta["tokens"], meta["heads"]), configs=CONFIGS, head_dims=[64])
@triton.jit
def plain(q_ptr, cache_ptr, out_ptr, cu_seqlens_ptr, seqlens_ptr, block_table_ptr, sinks_ptr, batch, heads,
          kv_heads, page_size, window, table_width, scale, HEAD_DIM: tl.constexpr, BEYOND: tl.constexpr):
    token, head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, HEAD_DIM)
    sequence = 0
    while tl.load(cu_seqlens_ptr + sequence + 1) <= token:
        sequence += 1
    end = tl.load(seqlens_ptr + sequence) - tl.load(cu_seqlens_ptr + sequence + 1) + token + 1
    q = tl.load(q_ptr + (token * heads + head) * HEAD_DIM + d).to(tl.float32)
    most = tl.load(sinks_ptr + head)
    total = tl.where(most == -float("inf"), 0.0, 1.0)
    sums = tl.zeros((HEAD_DIM,), tl.float32)
    half = page_size * kv_heads * HEAD_DIM
    first = tl.where(window > 0, tl.maximum(end - window, 0), 0)
    for key in range(first, end + BEYOND):
        page = tl.load(block_table_ptr + sequence * table_width + key // page_size)
        at = page * 2 * half + (key % page_size * kv_heads + head // (heads // kv_heads)) * HEAD_DIM
        score = tl.sum(q * tl.load(cache_ptr + at + d).to(tl.float32)) * scale
        higher = tl.maximum(most, score)
        weight, shrink = tl.exp(score - higher), tl.exp(most - higher)
        total = total * shrink + weight
        sums = sums * shrink + weight * tl.load(cache_ptr + at + half + d).to(tl.float32)
        most = higher
    tl.store(out_ptr + (token * heads + head) * HEAD_DIM + d, (sums / total).to(out_ptr.dtype.element_ty))
"""


@pytest.mark.slow
@pytest.mark.skipif(triton_folder() is None, reason="Triton is not installed")
def test_a_users_kernel_that_reads_a_page_s_tail_is_wrong(project: Project) -> None:
    (project.folder / "mine.py").write_text(USERS_FILE)
    (project.folder / "two.csv").write_text(
        "batch,heads,kv_heads,seq_q,seq_kv,head_dim,head_dim_v,page_size,window,sinks,variation\n"
        "2,2,1,1,9,64,64,16,0,0,40\n1,2,1,2,9,64,64,32,4,1,40\n"
    )
    words = ("--problem-set", "two.csv", "--kernels", "mine.py", "--target", "interpret", "--model", "none")
    project.pytest(*words)
    records = project.records()
    right = records["kernel"].str.contains("BEYOND=0")
    assert list(records[right]["status"]) == ["untimed", "untimed"]
    assert set(records[~right]["status"]) == {"wrong"}
