"""The descriptor of attention."""

from __future__ import annotations

from tile_oracle.kernel.sized import sized_operation
from tile_oracle.operations.attention.problem import (
    ATTENTION_DTYPES,
    HEAD_DIMS,
    AttentionKernel,
    AttentionProblem,
)

ATTENTION = sized_operation(
    AttentionProblem,
    AttentionKernel,
    __package__,
    plural="attentions",
    kind_fields={"dtype": ATTENTION_DTYPES, "head_dim": HEAD_DIMS, "causal": (0, 1)},
    kind_format="attention {dtype} d{head_dim} causal{causal}",
    kernel_prefix_format="attention_{dtype}_d{head_dim}_causal{causal}_",
    marks=("kv_heads",),
    defaults={"dtype": "bf16"},
    family_varies=("batch", "seq_q", "seq_kv"),
    fold_fields=("heads", "kv_heads", "head_dim", "seq_kv"),
    slices={
        "decode": lambda p: p.seq_q <= 16,
        "causal": lambda p: bool(p.causal),
        "grouped": lambda p: p.group > 1,
        "long": lambda p: p.seq_kv >= 8192,
        "lengths no multiples of 16": lambda p: p.seq_q > 1 and bool(p.seq_q % 16 or p.seq_kv % 16),
    },
    terms={
        "keysN": "keys and values that a step of the loop takes (online softmax)",
        "decode": "at most 16 queries for each sequence, as when a language model writes",
        "grouped": "several heads of queries share the keys and values of one head (GQA, MQA)",
        "long": "at least 8,192 keys",
    },
)
