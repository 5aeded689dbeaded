"""The descriptor of products of experts."""

from __future__ import annotations

from tile_oracle.kernel.sized import sized_operation
from tile_oracle.operation.part import deferred
from tile_oracle.operations.fused_moe.problem import (
    DTYPES,
    PRODUCTS,
    SCALES,
    FusedMoeKernel,
    FusedMoeProblem,
    is_kind,
)
from tile_oracle.operations.gemm.words import slices_by

FUSED_MOE = sized_operation(
    FusedMoeProblem,
    FusedMoeKernel,
    __package__,
    plural="products of experts",
    kind_fields={"dtype": DTYPES, "product": PRODUCTS, "scale": SCALES},
    is_kind=is_kind,
    kind_format="fused_moe {product} {dtype}[ {scale}]",
    kernel_prefix_format="fused_moe_{dtype}[_{scale}]_{product}_",
    marks=("experts",),
    defaults={"dtype": "bf16", "product": "gate_up", "scale": "block"},
    family_varies=("tokens", "zipf", "hot", "routing_seed"),
    fold_fields=("product", "tokens", "experts", "topk", "hidden", "intermediate"),
    slices={
        **slices_by("product", PRODUCTS),
        "up to 8 tokens": lambda p: p.tokens <= 8,
        "9 to 256 tokens": lambda p: 8 < p.tokens <= 256,
        "more than 256 tokens": lambda p: p.tokens > 256,
        "one row an expert": lambda p: p.pairs <= p.experts,
        "many experts": lambda p: p.experts >= 64,
        "uniform": lambda p: not p.zipf and not p.hot,
        "zipf": lambda p: bool(p.zipf),
        "hot": lambda p: bool(p.hot),
        **slices_by("scale", SCALES[:2], "scale {}"),
    },
    least_work=deferred(".routing:least_work", __package__),
    terms={
        "gate_up, down": "the product into the experts' intermediate size, and the one back",
        "tensor, row": "what has a scale of its own: A and each expert; a row of either; else blocks have",
        "rowsN": "sorted pairs of a token and an expert that are a block; rows1: unsorted",
        "columnsN": "columns of the result that are computed at a time",
    },
)
"""C[pair] = A[token] B[expert]^T for the pairs of tokens and their experts."""
