"""The descriptor of attention."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tile_oracle.operation.descriptor import Operation
from tile_oracle.operation.part import deferred, part
from tile_oracle.operations.attention.cpu_source import cpu_source
from tile_oracle.operations.attention.kernel import AttentionKernel
from tile_oracle.operations.attention.problem import ATTENTION_DTYPES, HEAD_DIMS, AttentionProblem
from tile_oracle.operations.attention.slices import ATTENTION_SLICES

ATTENTION = Operation(
    name=AttentionProblem.op,
    plural="attentions",
    problem=AttentionProblem,
    kernel=AttentionKernel,
    parse_kernel=AttentionKernel.parse,
    kind_fields={"dtype": ATTENTION_DTYPES, "head_dim": HEAD_DIMS, "causal": (0, 1)},
    kind_words="operation, dtype, head_dim and causal",
    kind_format="attention {dtype} d{head_dim} causal{causal}",
    kernel_prefix_format="attention_{dtype}_d{head_dim}_causal{causal}_",
    id_prefixes=("attention-",),
    id_pattern="attention-[a-z0-9]+-b[0-9]+-h[0-9]+-g[0-9]+-q[0-9]+-k[0-9]+-d[0-9]+(?:-causal)?",
    short_names="keys[0-9]+",
    marks=("kv_heads",),
    required=("batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim"),
    defaults={"dtype": "bf16"},
    model_type="attention",
    family_varies=("batch", "seq_q", "seq_kv"),
    fold_fields=("heads", "kv_heads", "head_dim", "seq_kv"),
    slices=ATTENTION_SLICES,
    rules_key="attention",
    read_rules=partial(deferred("tile_oracle.pool.sized_block:read_block"), AttentionKernel),
    rules_folder=Path(__file__).with_name("rules"),
    refusals=deferred("tile_oracle.pool.sized_block:refusals"),
    cpu_source=cpu_source,
    on_device=part(".on_device:WORKER", __package__),
    least_work=deferred(".least_work:least_work", __package__),
    on_gpu=part(".on_device:WORKER", __package__),
    triton_view=part(".triton_view:AttentionView", __package__),
    terms={
        "keysN": "keys and values that a step of the loop takes (online softmax)",
        "decode": "at most 16 queries for each sequence, as when a language model writes",
        "grouped": "several heads of queries share the keys and values of one head (GQA, MQA)",
        "long": "at least 8,192 keys",
    },
    features=part(".features:ATTENTION_FEATURES", __package__),
)
