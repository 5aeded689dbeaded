"""The descriptor of products of experts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tile_oracle.operation.descriptor import Operation
from tile_oracle.operation.part import deferred, part
from tile_oracle.operations.fused_moe.kernel import FusedMoeKernel
from tile_oracle.operations.fused_moe.problem import DTYPES, PRODUCTS, FusedMoeProblem
from tile_oracle.operations.fused_moe.slices import FUSED_MOE_SLICES

FUSED_MOE = Operation(
    name=FusedMoeProblem.op,
    plural="products of experts",
    problem=FusedMoeProblem,
    kernel=FusedMoeKernel,
    parse_kernel=FusedMoeKernel.parse,
    kind_fields={"dtype": DTYPES, "product": PRODUCTS},
    kind_words="operation, dtype and product",
    kind_format="fused_moe {product} {dtype}",
    kernel_prefix_format="fused_moe_{dtype}_{product}_",
    id_prefixes=("fused_moe-",),
    id_pattern="fused_moe-[a-z0-9]+-[a-z_]+-t[0-9]+-e[0-9]+-k[0-9]+-h[0-9]+-i[0-9]+[a-z0-9-]*",
    short_names="rows[0-9]+_columns[0-9]+",
    marks=("experts",),
    required=("tokens", "experts", "topk", "hidden", "intermediate"),
    defaults={"dtype": "bf16", "product": "gate_up"},
    model_type="fused_moe",
    family_varies=("tokens", "zipf", "hot", "routing_seed"),
    fold_fields=("product", "tokens", "experts", "topk", "hidden", "intermediate"),
    slices=FUSED_MOE_SLICES,
    rules_key="fused_moe",
    read_rules=partial(deferred("tile_oracle.pool.sized_block:read_block"), FusedMoeKernel),
    rules_folder=Path(__file__).with_name("rules"),
    refusals=deferred("tile_oracle.pool.sized_block:refusals"),
    cpu_source=deferred(".cpu_source:cpu_source", __package__),
    on_device=part(".on_device:WORKER", __package__),
    least_work=deferred(".least_work:least_work", __package__),
    on_gpu=part(".on_device:WORKER", __package__),
    triton_view=part(".triton_view:FusedMoeView", __package__),
    terms={
        "gate_up, down": "the product into the experts' intermediate size, and the one back",
        "rowsN": "sorted pairs of a token and an expert that are a block; rows1: unsorted",
        "columnsN": "columns of the result that are computed at a time",
    },
    features=part(".features:FUSED_MOE_FEATURES", __package__),
)
"""C[pair] = A[token] B[expert]^T for the pairs of tokens and their experts."""
