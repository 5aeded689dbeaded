"""The descriptor of attention over paged caches."""

from __future__ import annotations

from tile_oracle.kernel.sized import sized_operation
from tile_oracle.operation.part import deferred
from tile_oracle.operations.gemm.words import slices_by
from tile_oracle.operations.paged_attention.problem import (
    CACHE_DTYPES,
    DTYPES,
    HEAD_SIZES,
    LATENT,
    PagedAttentionKernel,
    PagedAttentionProblem,
)

PAGED_ATTENTION = sized_operation(
    PagedAttentionProblem,
    PagedAttentionKernel,
    __package__,
    plural="attentions over paged caches",
    kind_fields={"dtype": DTYPES, "kv_dtype": CACHE_DTYPES, "head_dim": tuple(HEAD_SIZES)},
    kind_format="paged_attention {dtype} {kv_dtype} d{head_dim}",
    kernel_prefix_format="paged_attention_{dtype}_{kv_dtype}_d{head_dim}_",
    marks=("page_size", "kv_heads"),
    outputs=("head_dim_v",),
    defaults={"dtype": "bf16", "kv_dtype": "bf16"},
    family_varies=("batch", "seq_q", "seq_kv", "variation", "lengths_seed"),
    fold_fields=("heads", "kv_heads", "head_dim", "window"),
    slices={
        **slices_by("kv_dtype", CACHE_DTYPES, "cache {}"),
        "decode": lambda p: p.seq_q == 1,
        "prefill": lambda p: p.seq_q == p.seq_kv > 1,
        "chunk": lambda p: 1 < p.seq_q < p.seq_kv,
        "window": lambda p: bool(p.window),
        "sinks": lambda p: bool(p.sinks),
        "MLA": lambda p: p.head_dim == LATENT,
        "one sequence": lambda p: p.batch == 1,
        "at least 8,192 keys": lambda p: p.seq_kv >= 8192,
        "different lengths": lambda p: bool(p.variation),
    },
    least_work=deferred(".problem:least_work", __package__),
    terms={
        "keysN": "keys and values that a step of the loop takes (online softmax)",
        "decode, prefill, chunk": "one query for each sequence; as many as keys; fewer than keys",
        "window": "a query sees its own key and so many before that they are WINDOW",
        "sinks": "each head has a number that counts as a further score without value",
        "MLA": "keys of 576, whose first 512 are the values, shared by all heads",
    },
)
"""softmax(Q K^T scale) V over the pages of each sequence."""
