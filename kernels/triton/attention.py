"""Attention in Triton: softmax(Q K^T scale) V, a block of keys at a time, with fp32 sums.

    attention_prefill   a program computes BLOCK_M queries of one head
    attention_decode    for few queries: those of all heads that share keys are rows of one tile, and the keys
                        are split over SPLITS programs, whose fp32 sums a second launch combines

The maximum of a row's scores so far is subtracted before the exponential; when it grows, the sums shrink
(T. Dao, FlashAttention-2, 2023). The weights of the second product have the data type of V.
"""

import triton
import triton.language as tl

from tile_oracle.triton import AttentionView, attention, cdiv, launch

AMD = ("gfx950", "gfx942", "gfx90a")
LOG2_E = tl.constexpr(1.4426950408889634)
LDS_BYTES = {"sm_90": 227 * 1024, "gfx950": 160 * 1024, "gfx942": 64 * 1024, "gfx90a": 64 * 1024}


@triton.jit
def over_keys(
    sums,
    most,
    total,
    q,
    k_ptr,
    v_ptr,
    begin,
    end,
    last_key,
    seq_kv,
    scale,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Adds the keys from begin to end, which is a multiple of BLOCK_N or the last. scale: times log2(e).

    MASKED: some of the keys may not exist, or come after a row's last_key.
    """
    d = tl.arange(0, HEAD_DIM)
    for at in range(begin, end, BLOCK_N):
        keys = at + tl.arange(0, BLOCK_N)
        k_at, v_at = (
            k_ptr + keys[None, :] * HEAD_DIM + d[:, None],
            v_ptr + keys[:, None] * HEAD_DIM + d[None, :],
        )
        if MASKED:
            k = tl.load(k_at, mask=(keys < seq_kv)[None, :], other=0.0)
            v = tl.load(v_at, mask=(keys < seq_kv)[:, None], other=0.0)
        else:
            k = tl.load(k_at)
            v = tl.load(v_at)
        scores = tl.dot(q, k) * scale
        if MASKED:
            seen = (keys < seq_kv)[None, :]
            if CAUSAL:
                seen = seen & (keys[None, :] <= last_key[:, None])
            scores = tl.where(seen, scores, -float("inf"))
        higher = tl.maximum(most, tl.max(scores, axis=1))
        subtracted = higher
        if MASKED:
            subtracted = tl.where(higher == -float("inf"), 0.0, higher)
        terms = tl.exp2(scores - subtracted[:, None])
        shrink = tl.exp2(most - subtracted)
        total = total * shrink + tl.sum(terms, axis=1)
        sums = tl.dot(terms.to(v.dtype), v, sums * shrink[:, None])
        most = higher
    return sums, most, total


# ---- configurations ------------------------------------------------------------------------------

# BLOCK_M, BLOCK_N, num_warps, num_stages
HOPPER = (
    *((128, 128, 8, 2), (128, 64, 8, 2), (128, 64, 8, 3), (128, 64, 4, 3), (128, 32, 8, 3)),
    *((64, 128, 4, 2), (64, 64, 4, 3), (64, 64, 4, 4), (64, 32, 4, 4)),
)
CDNA = ((128, 64, 4, 2), (128, 64, 8, 1), (128, 32, 4, 1), (64, 64, 4, 1), (64, 32, 4, 2))
HOPPER_DECODE = ((16, 64, 4, 3), (16, 128, 4, 2), (32, 64, 4, 3), (64, 64, 4, 2))
CDNA_DECODE = ((16, 64, 4, 1), (16, 32, 4, 1), (32, 32, 4, 1), (64, 64, 4, 1))
SPLITS = (1, 4, 16, 64)


def _configs(p: AttentionView, of_hopper, of_cdna):
    """Configurations whose tiles fit into LDS, and whose sums fit into registers."""
    amd = p.arch in AMD
    for m, n, warps, stages in of_cdna if amd else of_hopper:
        lds_bytes = (m + 2 * stages * n) * p.head_dim * 2
        if amd:  # without stages K and V are loaded one after the other
            held = n if stages == 1 else 2 * stages * n
            lds_bytes = max(m, held) * p.head_dim * 2 + 4096 * (stages > 1)
        sums_of_thread = m * p.head_dim // (warps * (64 if amd else 32))
        if p.head_dim == 256 and (m * n > 64 * 64 if amd else m > 32 and warps == 4):
            continue  # they spill
        if p.head_dim == 128 and not amd and warps == 4 and m * n > 64 * 64:
            continue
        if lds_bytes > LDS_BYTES[p.arch] or sums_of_thread > 128:
            continue
        one = {"BLOCK_M": m, "BLOCK_N": n, "num_warps": warps, "num_stages": stages}
        yield one | ({"matrix_instr_nonkdim": 16} if amd else {})


def _near(p: AttentionView, meta):
    """Offsets within a head are 32-bit."""
    yield (p.seq_kv * p.head_dim < 2**30, "a head of K spans more than 2^30 elements")


def _few(p: AttentionView, meta):
    """Queries that share keys fit into four tiles, and every part has some keys."""
    yield from _near(p, meta)
    yield ((p.heads // p.kv_heads) * p.seq_q <= 4 * meta["BLOCK_M"], "there are too many queries")
    if meta["SPLITS"] > 1:
        yield (p.seq_kv >= meta["SPLITS"] * meta["BLOCK_N"], "there are too few keys")


def _rows(p):
    return p.batch * p.heads * p.seq_q


def _with_workspace(p: AttentionView):
    maxima = p.workspace()
    totals = p.workspace(offset_bytes=cdiv(_rows(p) * (64 * 4), 256) * 256)
    sums = p.workspace(offset_bytes=cdiv(_rows(p) * (64 * 4), 256) * 512)
    return p.usual_arguments() | {"most_ptr": maxima, "total_ptr": totals, "sums_ptr": sums}


# ---- the kernels ---------------------------------------------------------------------------------


@attention(
    grid=lambda meta: (cdiv(meta["seq_q"], meta["BLOCK_M"]) * meta["batch"] * meta["heads"],),
    configs=lambda p: list(_configs(p, HOPPER, CDNA)),
    constraints=_near,
    aligned=(),
)
@triton.jit
def attention_prefill(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    batch,
    heads,
    kv_heads,
    seq_q,
    seq_kv,
    scale,
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One tile of queries. The last tiles, which see most keys, begin first."""
    tiles = tl.cdiv(seq_q, BLOCK_M)
    head = tl.program_id(0) // tiles
    tile = tiles - 1 - tl.program_id(0) % tiles
    of_kv = (head // heads) * kv_heads + (head % heads) // (heads // kv_heads)
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, HEAD_DIM)
    places = rows[:, None] * HEAD_DIM + d[None, :]
    there = (rows < seq_q)[:, None]
    q = tl.load(q_ptr + head.to(tl.int64) * seq_q * HEAD_DIM + places, mask=there, other=0.0)
    k_head = k_ptr + of_kv.to(tl.int64) * seq_kv * HEAD_DIM
    v_head = v_ptr + of_kv.to(tl.int64) * seq_kv * HEAD_DIM
    last_key = rows + (seq_kv - seq_q)
    sums = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    most = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    factor = scale * LOG2_E
    end = seq_kv
    whole = seq_kv // BLOCK_N * BLOCK_N
    if CAUSAL:
        first = tile * BLOCK_M + (seq_kv - seq_q)
        end = tl.minimum(seq_kv, first + BLOCK_M)
        whole = tl.minimum(whole, (first + 1) // BLOCK_N * BLOCK_N)
    sums, most, total = over_keys(
        sums,
        most,
        total,
        q,
        k_head,
        v_head,
        0,
        whole,
        last_key,
        seq_kv,
        factor,
        BLOCK_N,
        HEAD_DIM,
        CAUSAL,
        False,
    )
    sums, most, total = over_keys(
        sums,
        most,
        total,
        q,
        k_head,
        v_head,
        whole,
        end,
        last_key,
        seq_kv,
        factor,
        BLOCK_N,
        HEAD_DIM,
        CAUSAL,
        True,
    )
    out = out_ptr + head.to(tl.int64) * seq_q * HEAD_DIM + places
    tl.store(out, (sums / total[:, None]).to(out_ptr.dtype.element_ty), mask=there)


@triton.jit
def attention_combined(
    out_ptr,
    most_ptr,
    total_ptr,
    sums_ptr,
    batch,
    heads,
    seq_q,
    HEAD_DIM: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """The result of a row, from the sums of all parts of its keys."""
    row = tl.program_id(0).to(tl.int64)
    parts, d = tl.arange(0, SPLITS), tl.arange(0, HEAD_DIM)
    most = tl.load(most_ptr + row * SPLITS + parts)
    weights = tl.exp2(most - tl.max(most, axis=0))
    total = tl.sum(tl.load(total_ptr + row * SPLITS + parts) * weights, axis=0)
    sums = tl.load(sums_ptr + (row * SPLITS + parts)[:, None] * HEAD_DIM + d[None, :])
    value = tl.sum(sums * weights[:, None], axis=0) / total
    tl.store(out_ptr + row * HEAD_DIM + d, value.to(out_ptr.dtype.element_ty))


@attention(
    grid=lambda meta: (
        cdiv((meta["heads"] // meta["kv_heads"]) * meta["seq_q"], meta["BLOCK_M"]),
        meta["batch"] * meta["kv_heads"],
        meta["SPLITS"],
    ),
    configs=lambda p: [
        one | {"SPLITS": splits} for one in _configs(p, HOPPER_DECODE, CDNA_DECODE) for splits in SPLITS
    ],
    arguments=_with_workspace,
    constraints=_few,
    workspace_bytes=lambda p, meta: (
        cdiv(_rows(p) * (64 * 4), 256) * 512 + _rows(p) * (meta["SPLITS"] * p.head_dim * 4)
    ),
    after=[
        launch(
            attention_combined,
            grid=lambda meta: (meta["batch"] * meta["heads"] * meta["seq_q"],),
            arguments=_with_workspace,
        )
    ],
    aligned=(),
)
@triton.jit
def attention_decode(
    q_ptr,
    k_ptr,
    v_ptr,
    most_ptr,
    total_ptr,
    sums_ptr,
    batch,
    heads,
    kv_heads,
    seq_q,
    seq_kv,
    scale,
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """A part of the keys for a tile of the queries that share them."""
    of_kv, part = tl.program_id(1), tl.program_id(2)
    height = (heads // kv_heads) * seq_q
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    there = rows < height
    d = tl.arange(0, HEAD_DIM)
    # Rows of Q and of the result; heads that share keys follow each other.
    whole_rows = of_kv.to(tl.int64) * height + rows
    q = tl.load(q_ptr + whole_rows[:, None] * HEAD_DIM + d[None, :], mask=there[:, None], other=0.0)
    k_head = k_ptr + of_kv.to(tl.int64) * seq_kv * HEAD_DIM
    v_head = v_ptr + of_kv.to(tl.int64) * seq_kv * HEAD_DIM
    last_key = rows % seq_q + (seq_kv - seq_q)
    span = tl.cdiv(tl.cdiv(seq_kv, SPLITS), BLOCK_N) * BLOCK_N
    begin = part * span
    end = tl.minimum(begin + span, seq_kv)
    sums = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    most = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    factor = scale * LOG2_E
    sums, most, total = over_keys(
        sums,
        most,
        total,
        q,
        k_head,
        v_head,
        begin,
        end,
        last_key,
        seq_kv,
        factor,
        BLOCK_N,
        HEAD_DIM,
        CAUSAL,
        True,
    )
    at = whole_rows * SPLITS + part
    tl.store(most_ptr + at, most, mask=there)
    tl.store(total_ptr + at, total, mask=there)
    tl.store(sums_ptr + at[:, None] * HEAD_DIM + d[None, :], sums, mask=there[:, None])
