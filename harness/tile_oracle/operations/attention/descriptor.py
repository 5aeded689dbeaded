"""The descriptor of attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tile_oracle.operation.descriptor import Operation, RuleBlock
from tile_oracle.operations.attention.cpu_source import cpu_source
from tile_oracle.operations.attention.kernel import AttentionKernel
from tile_oracle.operations.attention.problem import ATTENTION_DTYPES, HEAD_DIMS, AttentionProblem
from tile_oracle.operations.attention.slices import ATTENTION_SLICES

if TYPE_CHECKING:
    from tile_oracle.arch import Arch
    from tile_oracle.features.operation_features import OperationFeatures
    from tile_oracle.json_tree import JsonTree
    from tile_oracle.operation.on_device import OnDevice
    from tile_oracle.operation.on_gpu import OnGpu
    from tile_oracle.triton.views import ProblemView


def _read_rules(tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> RuleBlock:
    from tile_oracle.operations.attention.rules import read_block

    return read_block(tree)


def _refusals(arch: Arch, kernel: AttentionKernel) -> Iterator[str]:
    from tile_oracle.operations.attention.rules import refusals

    return refusals(arch, kernel)


def _on_device() -> OnDevice:
    from tile_oracle.operations.attention import on_device

    return on_device.WORKER


def _on_gpu() -> OnGpu:
    from tile_oracle.operations.attention import on_device

    return on_device.WORKER


def _triton_view() -> type[ProblemView]:
    from tile_oracle.operations.attention.triton_view import AttentionView

    return AttentionView


def _features() -> OperationFeatures:
    from tile_oracle.operations.attention.features import ATTENTION_FEATURES

    return ATTENTION_FEATURES


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
    read_rules=_read_rules,
    rules_folder=Path(__file__).with_name("rules"),
    refusals=_refusals,
    problem_refusals=lambda arch, kernel, problem: iter(()),
    cpu_source=cpu_source,
    on_device=_on_device,
    on_gpu=_on_gpu,
    triton_view=_triton_view,
    terms={
        "keysN": "keys and values that a step of the loop takes (online softmax)",
        "decode": "at most 16 queries for each sequence, as when a language model writes",
        "grouped": "several heads of queries share the keys and values of one head (GQA, MQA)",
        "long": "at least 8,192 keys",
    },
    features=_features,
)
