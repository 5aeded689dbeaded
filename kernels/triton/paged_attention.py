"""Attention over paged caches in Triton: softmax(Q K^T scale) V, a block of keys at a time, with fp32 sums.

    paged         a program computes BLOCK_M rows: queries of all heads that share keys, one after the other
    paged_split   the keys of such rows are split over SPLITS programs, whose sums a second launch merges

The maximum of a row's scores so far is subtracted before the exponential; it begins with the row's sink,
whose weight begins the total. Keys and values of fp8 become bf16 before the products. MLA's values are the
first part of its keys, so a block is read once.
"""

import triton
import triton.language as tl
from attention import AMD, LDS_BYTES, LOG2_E

from tile_oracle.triton import PagedAttentionView, cdiv, launch, paged_attention


@triton.jit
def rows_of_tile(
    sinks_ptr, tile, kv_head, queries, first_token, keys, heads, group, part, BLOCK_M: tl.constexpr
):  # fmt: skip
    """Of a tile's rows: their places in Q, which of them exist, their own keys, and their sinks, which are in
    the first part of the keys."""
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    token = rows // group
    there = token < queries
    head = kv_head * group + rows % group
    sink = tl.load(sinks_ptr + head, mask=there, other=-float("inf"))
    sink = tl.where(part == 0, sink * LOG2_E, -float("inf"))
    return (first_token + token).to(tl.int64) * heads + head, there, keys - queries + token, sink


@triton.jit
def over_keys(
    q_ptr, cache_ptr, table_ptr, whole_rows, there, own_key, sink, kv_head, kv_heads, begin, end, page_size,
    page_shift, window, scale, HEAD_DIM: tl.constexpr, HEAD_DIM_V: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The maxima, totals and sums of rows over the keys from begin to end."""
    LATENT: tl.constexpr = HEAD_DIM > HEAD_DIM_V
    REST: tl.constexpr = HEAD_DIM - HEAD_DIM_V if LATENT else 16
    d, e = tl.arange(0, BLOCK_D), HEAD_DIM_V + tl.arange(0, REST)
    d_there = (d < HEAD_DIM_V)[None, :]
    q_at = q_ptr + whole_rows[:, None] * HEAD_DIM
    q = tl.load(q_at + d[None, :], mask=there[:, None] & d_there, other=0.0)
    if LATENT:
        q_rest = tl.load(q_at + e[None, :], mask=there[:, None], other=0.0)
    row_elements = kv_heads * HEAD_DIM
    page_elements = (page_size * row_elements).to(tl.int64)
    to_values = 0 * page_elements
    if not LATENT:
        to_values = page_elements
        page_elements *= 2
    most = sink
    total = tl.where(sink == -float("inf"), 0.0, 1.0)
    sums = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    first_key = tl.where(window > 0, own_key - window, -1)
    for at in range(begin, end, BLOCK_N):
        keys = at + tl.arange(0, BLOCK_N)
        exist = keys < end
        page = tl.load(table_ptr + (keys >> page_shift), mask=exist, other=0).to(tl.int64)
        in_page = (keys & (page_size - 1)) * row_elements + kv_head * HEAD_DIM
        k_at = cache_ptr + (page * page_elements + in_page)[:, None]
        mask = exist[:, None]
        if BLOCK_D != HEAD_DIM_V:
            mask = mask & d_there
        k = tl.load(k_at + d[None, :], mask=mask, other=0.0).to(q.dtype)
        scores = tl.dot(q, k.T)
        if LATENT:
            k_rest = tl.load(k_at + e[None, :], mask=exist[:, None], other=0.0).to(q.dtype)
            scores = tl.dot(q_rest, k_rest.T, scores)
            v = k
        else:
            v = tl.load(k_at + to_values + d[None, :], mask=mask, other=0.0).to(q.dtype)
        seen = exist[None, :] & (keys[None, :] <= own_key[:, None]) & (keys[None, :] > first_key[:, None])
        scores = tl.where(seen, scores * (scale * LOG2_E), -float("inf"))
        higher = tl.maximum(most, tl.max(scores, axis=1))
        subtracted = tl.where(higher == -float("inf"), 0.0, higher)
        terms = tl.exp2(scores - subtracted[:, None])
        shrink = tl.exp2(most - subtracted)
        total = total * shrink + tl.sum(terms, axis=1)
        sums = tl.dot(terms.to(v.dtype), v, sums * shrink[:, None])
        most = higher
    return most, total, sums


@triton.jit
def ends_of_keys(
    tile, queries, keys, group, window, part,
    SPLITS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The first key that a part of a tile's rows sees, down to a multiple of BLOCK_N, and the end."""
    first = keys - queries + tile * BLOCK_M // group
    last = keys - queries + tl.minimum((tile * BLOCK_M + BLOCK_M - 1) // group, queries - 1)
    begin = tl.where(window > 0, tl.maximum(first + 1 - window, 0), 0) // BLOCK_N * BLOCK_N
    span = tl.cdiv(tl.cdiv(last + 1 - begin, SPLITS), BLOCK_N) * BLOCK_N
    begin += part * span
    return begin, tl.minimum(begin + span, last + 1)


# ---- configurations ------------------------------------------------------------------------------

# BLOCK_M, BLOCK_N, num_warps, num_stages
HOPPER = (
    *((16, 32, 4, 3), (16, 64, 4, 2), (16, 64, 4, 3), (16, 128, 4, 2), (16, 128, 8, 2), (32, 64, 4, 3)),
    *((64, 32, 4, 3), (64, 64, 4, 2), (64, 64, 4, 3), (64, 128, 4, 2), (64, 128, 8, 2), (128, 32, 8, 3)),
    *((128, 64, 4, 2), (128, 64, 8, 2), (128, 64, 8, 3), (128, 128, 8, 2)),
)
HOPPER_SPLIT = (
    *((16, 16, 2, 4), (16, 32, 4, 3), (16, 64, 4, 2), (16, 64, 4, 3), (16, 128, 4, 2), (16, 128, 8, 3)),
    *((32, 64, 4, 2), (64, 64, 4, 2), (64, 64, 8, 3)),
)
HOPPER_LATENT = (
    *((16, 32, 4, 2), (16, 64, 4, 2), (16, 64, 8, 2), (16, 32, 8, 3), (32, 32, 8, 2), (32, 64, 8, 2)),
    *((64, 32, 8, 2), (64, 64, 8, 1), (64, 64, 8, 2), (64, 32, 4, 2), (64, 16, 8, 3), (32, 32, 4, 3)),
)
CDNA = (
    *((16, 32, 4, 1), (16, 64, 4, 1), (16, 128, 4, 1), (32, 64, 4, 1), (64, 32, 4, 1), (64, 64, 4, 1)),
    *((64, 64, 8, 1), (128, 32, 4, 1), (128, 64, 4, 1), (128, 64, 8, 1)),
)
CDNA_SPLIT = ((16, 32, 4, 1), (16, 64, 4, 1), (16, 128, 4, 1), (32, 64, 4, 1), (64, 64, 4, 1))
CDNA_LATENT = ((16, 32, 4, 1), (16, 64, 4, 1), (16, 32, 8, 1), (32, 32, 8, 1), (64, 32, 8, 1))
SPLITS = (4, 8, 16, 32, 64)


def configurations(p: PagedAttentionView, of_hopper, of_cdna):
    """Configurations whose keys and values fit into LDS, and whose sums fit into registers."""
    amd, latent = p.arch in AMD, p.head_dim != p.head_dim_v
    width = triton.next_power_of_2(p.head_dim_v)
    groups = (HOPPER_LATENT, CDNA_LATENT) if latent else (of_hopper, of_cdna)
    for m, n, warps, stages in groups[amd]:
        buffers = stages if latent else 2 * stages
        lds_bytes = (m + max(buffers, 1) * n) * width * 2
        sums_of_thread = m * width // (warps * (64 if amd else 32))
        if lds_bytes > LDS_BYTES[p.arch] or sums_of_thread > 128 or (width >= 256 and m * n > 64 * 64):
            continue
        one = {"BLOCK_M": m, "BLOCK_N": n, "num_warps": warps, "num_stages": stages}
        yield one | ({"matrix_instr_nonkdim": 16} if amd else {})


def arguments(p: PagedAttentionView):
    """The usual ones, and the size of a tile of values."""
    return p.usual_arguments() | {"BLOCK_D": triton.next_power_of_2(p.head_dim_v)}


def of_parts(p: PagedAttentionView):
    """The same, and where the parts' maxima, totals and sums lie."""
    each = cdiv(p.tokens * p.heads * (p.configuration["SPLITS"] * 4), 256) * 256
    names = ("most_ptr", "total_ptr", "sums_ptr")
    return arguments(p) | {name: p.workspace(offset_bytes=each * i) for i, name in enumerate(names)}


def few_rows(p: PagedAttentionView, meta):
    """Rows that share keys fit into four tiles, and every part of the longest sequence has keys."""
    yield (p.group * p.seq_q <= 4 * meta["BLOCK_M"], "there are too many queries")
    yield (p.most_visible >= meta["SPLITS"] * meta["BLOCK_N"], "there are too few keys")


def tiles(meta):
    """Tiles of the rows that share keys, of the longest sequence."""
    return cdiv((meta["heads"] // meta["kv_heads"]) * meta["seq_q"], meta["BLOCK_M"])


# ---- the kernels ---------------------------------------------------------------------------------


@paged_attention(
    grid=lambda meta: (tiles(meta), meta["kv_heads"], meta["batch"]),
    configs=lambda p: list(configurations(p, HOPPER, CDNA)),
    arguments=arguments,
    aligned=(),
    archs=("sm_90", "gfx950"),
)
@triton.jit
def paged(
    q_ptr, cache_ptr, out_ptr, cu_seqlens_ptr, seqlens_ptr, block_table_ptr, sinks_ptr,
    batch, heads, kv_heads, seq_q, page_size, page_shift, table_width, window, scale,
    HEAD_DIM: tl.constexpr, HEAD_DIM_V: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One tile of rows. The last tiles, which see most keys, begin first."""
    tile, kv_head, sequence = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1), tl.program_id(2)
    group = heads // kv_heads
    first_token = tl.load(cu_seqlens_ptr + sequence)
    queries = tl.load(cu_seqlens_ptr + sequence + 1) - first_token
    if tile * BLOCK_M < queries * group:
        keys = tl.load(seqlens_ptr + sequence)
        whole_rows, there, own_key, sink = rows_of_tile(
            sinks_ptr, tile, kv_head, queries, first_token, keys, heads, group, 0, BLOCK_M
        )
        begin, end = ends_of_keys(tile, queries, keys, group, window, 0, 1, BLOCK_M, BLOCK_N)
        _, total, sums = over_keys(
            q_ptr, cache_ptr, block_table_ptr + sequence * table_width, whole_rows, there, own_key, sink,
            kv_head, kv_heads, begin, end, page_size, page_shift, window, scale, HEAD_DIM, HEAD_DIM_V,
            BLOCK_D, BLOCK_M, BLOCK_N,
        )  # fmt: skip
        d = tl.arange(0, BLOCK_D)
        out = out_ptr + whole_rows[:, None] * HEAD_DIM_V + d[None, :]
        mask = there[:, None] & (d < HEAD_DIM_V)[None, :]
        tl.store(out, (sums / total[:, None]).to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def paged_merged(
    out_ptr, most_ptr, total_ptr, sums_ptr,
    HEAD_DIM_V: tl.constexpr, BLOCK_D: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """The result of a row, from the sums of all parts of its keys."""
    row = tl.program_id(0).to(tl.int64)
    parts, d = tl.arange(0, SPLITS), tl.arange(0, BLOCK_D)
    d_there = d < HEAD_DIM_V
    most = tl.load(most_ptr + row * SPLITS + parts)
    highest = tl.max(most, axis=0)
    total = tl.sum(tl.load(total_ptr + row * SPLITS + parts) * tl.exp2(most - highest), axis=0)
    sums = tl.zeros((BLOCK_D,), tl.float32)
    for part in range(SPLITS):
        weight = tl.exp2(tl.load(most_ptr + row * SPLITS + part) - highest)
        sums += weight * tl.load(sums_ptr + (row * SPLITS + part) * HEAD_DIM_V + d, mask=d_there, other=0.0)
    tl.store(out_ptr + row * HEAD_DIM_V + d, (sums / total).to(out_ptr.dtype.element_ty), mask=d_there)


@paged_attention(
    grid=lambda meta: (tiles(meta) * meta["SPLITS"], meta["kv_heads"], meta["batch"]),
    configs=lambda p: [
        one | {"SPLITS": splits} for one in configurations(p, HOPPER_SPLIT, CDNA_SPLIT) for splits in SPLITS
    ],
    arguments=of_parts,
    constraints=few_rows,
    workspace_bytes=lambda p, meta: (
        cdiv(p.tokens * p.heads * (meta["SPLITS"] * 4), 256) * 512
        + p.tokens * p.heads * (meta["SPLITS"] * p.head_dim_v * 4)
    ),
    after=[launch(paged_merged, grid=lambda meta: (meta["tokens"] * meta["heads"],), arguments=of_parts)],
    aligned=(),
    archs=("sm_90", "gfx950"),
)
@triton.jit
def paged_split(
    q_ptr, cache_ptr, most_ptr, total_ptr, sums_ptr, cu_seqlens_ptr, seqlens_ptr, block_table_ptr, sinks_ptr,
    batch, heads, kv_heads, seq_q, tokens, page_size, page_shift, table_width, window, scale,
    HEAD_DIM: tl.constexpr, HEAD_DIM_V: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """A part of the keys for a tile of rows."""
    tile, part = tl.program_id(0) // SPLITS, tl.program_id(0) % SPLITS
    kv_head, sequence = tl.program_id(1), tl.program_id(2)
    group = heads // kv_heads
    first_token = tl.load(cu_seqlens_ptr + sequence)
    queries = tl.load(cu_seqlens_ptr + sequence + 1) - first_token
    if tile * BLOCK_M < queries * group:
        keys = tl.load(seqlens_ptr + sequence)
        whole_rows, there, own_key, sink = rows_of_tile(
            sinks_ptr, tile, kv_head, queries, first_token, keys, heads, group, part, BLOCK_M
        )
        begin, end = ends_of_keys(tile, queries, keys, group, window, part, SPLITS, BLOCK_M, BLOCK_N)
        most, total, sums = over_keys(
            q_ptr, cache_ptr, block_table_ptr + sequence * table_width, whole_rows, there, own_key, sink,
            kv_head, kv_heads, begin, end, page_size, page_shift, window, scale, HEAD_DIM, HEAD_DIM_V,
            BLOCK_D, BLOCK_M, BLOCK_N,
        )  # fmt: skip
        d = tl.arange(0, BLOCK_D)
        at = whole_rows * SPLITS + part
        tl.store(most_ptr + at, most, mask=there)
        tl.store(total_ptr + at, total, mask=there)
        mask = there[:, None] & (d < HEAD_DIM_V)[None, :]
        tl.store(sums_ptr + at[:, None] * HEAD_DIM_V + d[None, :], sums, mask=mask)
