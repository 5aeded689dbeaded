"""Attention shapes of published language, vision, speech and diffusion models.

`attention_sets()` makes the problem sets attention_training and attention_validation. It measures and
downloads nothing. A model is described by the numbers of heads and the head size of its published
configuration.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tile_oracle.operations.attention.problem import AttentionProblem

Shapes = dict[AttentionProblem, str]
"""Problem -> its source, in the order of the set."""

MAX_TFLOP = 20
MAX_GB = 4

PREFILLS = (128, 333, 512, 1000, 1024, 2048, 3000, 4096, 8192, 16384)
"""Lengths of a prompt, one sequence."""

DECODES = (
    (1, 1024),
    (1, 4096),
    (1, 32768),
    (4, 777),
    (8, 8192),
    (16, 2048),
    (32, 300),
    (64, 1024),
    (128, 512),
    (256, 1500),
)
"""Sequences and keys of each, for one new query per sequence."""

BEHIND_A_CACHE = ((1, 512, 4096), (8, 4, 2048), (1, 256, 1280), (4, 8, 1000), (2, 1024, 8192))
"""Sequences, queries and keys: a chunk of a long prompt, or a few speculated tokens."""


@dataclass(frozen=True)
class Decoder:
    """num_attention_heads, num_key_value_heads and head_dim of a language model."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int

    def problems(self, index: int, prefills: int, decodes: int) -> Iterator[tuple[AttentionProblem, str]]:
        """Some of the lengths, others for each index."""
        numbers = (self.heads, self.kv_heads)
        for step in range(prefills):
            seq = PREFILLS[(3 * index + 4 * step) % len(PREFILLS)]
            yield AttentionProblem("bf16", 1, *numbers, seq, seq, self.head_dim, 1), f"{self.name} prefill"
        for step in range(decodes):
            batch, keys = DECODES[(3 * index + 7 * step) % len(DECODES)]
            yield AttentionProblem("bf16", batch, *numbers, 1, keys, self.head_dim, 1), f"{self.name} decode"
        batch, queries, keys = BEHIND_A_CACHE[index % len(BEHIND_A_CACHE)]
        source = f"{self.name} {'chunk' if queries > 64 else 'speculation'}"
        yield AttentionProblem("bf16", batch, *numbers, queries, keys, self.head_dim, 1), source


@dataclass(frozen=True)
class Encoder:
    """Heads and head_dim of a model whose queries see all keys.

    lengths: (batch, queries, keys) of its uses.
    """

    name: str
    heads: int
    head_dim: int
    lengths: tuple[tuple[int, int, int], ...]
    dtypes: tuple[str, ...] = ("bf16",)

    def problems(self) -> Iterator[tuple[AttentionProblem, str]]:
        for dtype in self.dtypes:
            for batch, queries, keys in self.lengths:
                yield (
                    AttentionProblem(dtype, batch, self.heads, self.heads, queries, keys, self.head_dim),
                    self.name,
                )


TRAINING_DECODERS = (
    Decoder("GPT-3-175B", 96, 96, 128),
    Decoder("Llama-2-13B", 40, 40, 128),
    Decoder("Llama-3.1-405B", 128, 8, 128),
    Decoder("Llama-3.2-1B", 32, 8, 64),
    Decoder("Llama-3.2-3B", 24, 8, 128),
    Decoder("Qwen2.5-1.5B", 12, 2, 128),
    Decoder("Qwen2.5-32B", 40, 8, 128),
    Decoder("Qwen3-0.6B", 16, 8, 128),
    Decoder("Qwen3-30B-A3B", 32, 4, 128),
    Decoder("Qwen3-235B-A22B", 64, 4, 128),
    Decoder("Mixtral-8x22B", 48, 8, 128),
    Decoder("Phi-4", 40, 10, 128),
    Decoder("Yi-34B", 56, 8, 128),
    Decoder("Falcon-7B", 71, 1, 64),
    Decoder("StarCoder", 48, 1, 128),
    Decoder("StarCoder2-3B", 24, 2, 128),
    Decoder("Gemma-2B", 8, 1, 256),
    Decoder("Gemma-2-2B", 8, 4, 256),
    Decoder("Gemma-2-27B", 32, 16, 128),
    Decoder("Gemma-3-1B", 4, 1, 256),
    Decoder("OPT-1.3B", 32, 32, 64),
    Decoder("GPT-2 medium", 16, 16, 64),
    Decoder("Pythia-1.4B", 16, 16, 128),
    Decoder("BLOOM-176B", 112, 112, 128),
    Decoder("Command R", 64, 64, 128),
    Decoder("Command R+", 96, 8, 128),
    Decoder("TinyLlama", 32, 4, 64),
    Decoder("SmolLM-135M", 9, 3, 64),
    Decoder("Whisper large-v3 decoder", 20, 20, 64),
)
"""The language models of attention_training."""

VALIDATION_DECODERS = (
    Decoder("GPT-2", 12, 12, 64),
    Decoder("GPT-2 XL", 25, 25, 64),
    Decoder("Llama-2-7B", 32, 32, 128),
    Decoder("Llama-3-8B", 32, 8, 128),
    Decoder("Llama-3-70B", 64, 8, 128),
    Decoder("Qwen2.5-7B", 28, 4, 128),
    Decoder("Qwen2.5-0.5B", 14, 2, 64),
    Decoder("Gemma-2-9B", 16, 8, 256),
    Decoder("Gemma-7B", 16, 16, 256),
)
"""The language models of attention_validation."""

_PATCHES = ((64, 197, 197), (8, 197, 197), (1, 197, 197), (16, 577, 577))

TRAINING_ENCODERS = (
    Encoder("BERT-base, ViT-B/16", 12, 64, ((32, 128, 128), (16, 384, 384), (4, 512, 512), *_PATCHES)),
    Encoder("BERT-large, ViT-L/16", 16, 64, ((32, 128, 128), (16, 384, 384), (4, 512, 512), *_PATCHES)),
    Encoder("SAM ViT-B", 12, 64, ((1, 4096, 4096), (25, 196, 196))),
    Encoder("DINOv2 ViT-g/14", 24, 64, ((8, 257, 257), (4, 1370, 1370))),
    Encoder("Whisper base", 8, 64, ((1, 1500, 1500), (8, 1500, 1500), (8, 1, 1500), (1, 448, 1500))),
    Encoder("Stable Diffusion 2.1", 5, 64, ((2, 4096, 4096), (2, 9216, 9216), (2, 4096, 77))),
    Encoder("Stable Diffusion 2.1, middle", 20, 64, ((2, 256, 256), (2, 576, 576), (2, 256, 77))),
    Encoder("SD3.5 large", 38, 64, ((2, 4429, 4429), (1, 1178, 1178))),
    Encoder("Wan2.1-1.3B", 12, 128, ((1, 32760, 32760), (1, 8190, 8190), (2, 8190, 512))),
    Encoder("Wan2.1-14B", 40, 128, ((1, 8190, 8190), (2, 8190, 512))),
    Encoder("LTX-Video", 32, 64, ((1, 4992, 4992), (1, 4992, 128))),
    Encoder("AuraFlow", 12, 256, ((2, 4352, 4352), (1, 1280, 1280))),
)
"""The other models of attention_training."""

VALIDATION_ENCODERS = (
    Encoder("SDXL 64x64", 10, 64, ((2, 4096, 4096), (2, 4096, 77))),
    Encoder("SD3 1024x1024", 24, 64, ((2, 4429, 4429),), ("fp16",)),
    Encoder("FLUX.1", 24, 128, ((1, 4608, 4608), (1, 1536, 1536))),
    Encoder("CogVideoX-5B", 48, 64, ((1, 17776, 17776),)),
    Encoder("ViT-B/16", 12, 64, ((32, 197, 197),), ("fp16",)),
    Encoder("ViT-L/14", 16, 64, ((16, 257, 257), (8, 577, 577)), ("fp16",)),
    Encoder("Whisper tiny", 6, 64, ((1, 1500, 1500), (8, 1, 1500), (1, 448, 1500))),
    Encoder("Whisper large-v3", 20, 64, ((1, 1500, 1500), (8, 1, 1500)), ("fp16",)),
)
"""The other models of attention_validation."""

_ODD = (
    AttentionProblem("bf16", 3, 6, 2, 301, 301, 128, 1),
    AttentionProblem("bf16", 1, 2, 2, 61, 4099, 64),
    AttentionProblem("bf16", 7, 5, 5, 127, 127, 128),
    AttentionProblem("bf16", 1, 3, 1, 1, 100003, 128, 1),
    AttentionProblem("bf16", 2, 18, 9, 1, 17, 64, 1),
)


def attention_sets() -> dict[str, tuple[Shapes, str]]:
    """Set name -> (problems with their sources, provenance text)."""
    training = _within_limits(
        [problem for index, one in enumerate(TRAINING_DECODERS) for problem in one.problems(index, 2, 3)]
        + [problem for one in TRAINING_ENCODERS for problem in one.problems()]
    )
    validation = _within_limits(
        [problem for index, one in enumerate(VALIDATION_DECODERS) for problem in one.problems(index, 3, 3)]
        + [problem for one in VALIDATION_ENCODERS for problem in one.problems()]
        + [(problem, "edge: no multiples of a tile") for problem in _ODD]
    )
    names = "attention_training", "attention_validation"
    purposes = "for training models of kernel choice", "that judges a model of kernel choice"
    sets = {}
    for name, purpose, shapes, models in zip(
        names,
        purposes,
        (training, validation),
        ((*TRAINING_DECODERS, *TRAINING_ENCODERS), (*VALIDATION_DECODERS, *VALIDATION_ENCODERS)),
        strict=True,
    ):
        lines = textwrap.wrap(", ".join(model.name for model in models), 100)
        sets[name] = (
            shapes,
            f"{name}: attention of published models, {purpose}. {len(shapes)} problems.\n"
            + "".join(f"  {line}\n" for line in lines)
            + _COMMON,
        )
    return sets


def _within_limits(problems: Iterable[tuple[AttentionProblem, str]]) -> Shapes:
    shapes: Shapes = {}
    for problem, source in problems:
        if problem.flops <= MAX_TFLOP * 1e12 and problem.bytes <= MAX_GB * 1e9:
            shapes.setdefault(problem, source)
    return shapes


_COMMON = (
    "Heads and head_dim are those of the published configurations, written down by hand. Prefill has\n"
    "seq_q = seq_kv and is causal, decode has one query per sequence. Packed sequences of different lengths\n"
    "are no problems here: one set of extents describes a problem. The sets share no data type with\n"
    "the same numbers of heads, head_dim and mask. At most 20 TFLOP and 4 GB each. Made by\n"
    "tools.crawl.attention_shapes."
)
