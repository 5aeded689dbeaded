"""Causal attention of the package flash-attention-triton, as tile-oracle measures it."""

from flash_attention_triton._triton_kernels_v2 import _forward_kernel

from tile_oracle.triton import attention, cdiv


def arguments(p):
    """Contiguous arrays, and in the workspace two numbers for each query, whose count is rounded up."""
    rounded = cdiv(p.seq_q, 128) * 128
    found = {"Q": p.q, "K": p.k, "V": p.v, "Output": p.out, "LSE": p.workspace(), "softmax_scale": p.scale}
    found["ScratchpadBuffer"] = p.workspace("fp32", 4 * p.batch * p.heads * rounded)
    for name, length in (("q", p.seq_q), ("k", p.seq_kv), ("v", p.seq_kv), ("output", p.seq_q)):
        steps = {"batch": p.heads * length * p.head_dim, "head": length * p.head_dim, "seqlen": p.head_dim}
        found |= {f"stride_{name}_{axis}": step for axis, step in steps.items()}
    found |= {"nheads": p.heads, "seqlen_q": p.seq_q, "seqlen_k": p.seq_kv, "seqlen_q_rounded": rounded}
    keys = {"CACHE_KEY_SEQLEN_Q": p.seq_q // 32, "CACHE_KEY_SEQLEN_K": p.seq_kv // 32}
    return found | keys | {"headdim": p.head_dim, "BLOCK_HEADDIM": p.head_dim}


attention(
    causals=[1],
    head_dims=[64, 128],
    grid=lambda meta: (cdiv(meta["seq_q"], meta["BLOCK_Q_ROWS_SIZE"]), meta["batch"] * meta["heads"]),
    arguments=arguments,
    configs=[{"BLOCK_Q_ROWS_SIZE": 64, "BLOCK_KV_COLS_SIZE": 64, "num_warps": 4, "num_stages": 1}],
    constraints=lambda p, meta: [p.seq_q == p.seq_kv, p.heads == p.kv_heads],
    workspace_bytes=lambda p, meta: 8 * p.batch * p.heads * cdiv(p.seq_q, 128) * 128,
)(_forward_kernel)
