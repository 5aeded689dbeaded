"""Two large GEMM training sets in bf16, rcr: layers of further published models, and wide sizes.

`further_gemm_sets()` makes the problem sets gemm_layers_training and gemm_wide_training. They share no (N, K)
with a problem of gemm_validation, and no (M, N, K) with any other training set. It measures and downloads
nothing.
"""

from __future__ import annotations

import math
import random
import textwrap
from collections.abc import Iterator

from tile_oracle.operations.gemm.problem import GemmProblem
from tools.crawl.gemm_more import more_gemm_sets, without
from tools.crawl.gemm_shapes import (
    TOKENS,
    LanguageModel,
    Shapes,
    Size,
    gemm_sets,
    is_at_most,
    log_uniform_size,
    wide_size,
)

FURTHER_MODELS = (
    LanguageModel("Llama-3.2-1B", 2048, 8192, 32, 8, 64, 128256),
    LanguageModel("Llama-3.2-3B", 3072, 8192, 24, 8, 128, 128256),
    LanguageModel("Mistral-7B", 4096, 14336, 32, 8, 128, 32000),
    LanguageModel("Mistral-Nemo-12B", 5120, 14336, 32, 8, 128, 131072),
    LanguageModel("Mistral-Large-2", 12288, 28672, 96, 8, 128, 32768, devices=8),
    LanguageModel("Falcon-7B", 4544, 18176, 71, 1, 64, 65024, gated=False),
    LanguageModel("Falcon-40B", 8192, 32768, 128, 8, 64, 65024, devices=4, gated=False),
    LanguageModel("MPT-30B", 7168, 28672, 64, 64, 112, 50432, devices=4, gated=False),
    LanguageModel("GPT-NeoX-20B", 6144, 24576, 64, 64, 96, 50432, devices=4, gated=False),
    LanguageModel("Qwen2.5-0.5B", 896, 4864, 14, 2, 64, 151936),
    LanguageModel("Qwen2.5-1.5B", 1536, 8960, 12, 2, 128, 151936),
    LanguageModel("Qwen2.5-3B", 2048, 11008, 16, 2, 128, 151936),
    LanguageModel("Qwen3-8B", 4096, 12288, 32, 8, 128, 151936),
    LanguageModel("Qwen3-30B-A3B", 2048, 768, 32, 4, 128, 151936),
    LanguageModel("Qwen3-32B", 5120, 25600, 64, 8, 128, 151936, devices=4),
    LanguageModel("Gemma-7B", 3072, 24576, 16, 16, 256, 256000),
    LanguageModel("Gemma-2-2B", 2304, 9216, 8, 4, 256, 256000),
    LanguageModel("Gemma-3-12B", 3840, 15360, 16, 8, 256, 262208),
    LanguageModel("Gemma-3-27B", 5376, 21504, 32, 16, 128, 262208, devices=4),
    LanguageModel("Phi-2", 2560, 10240, 32, 32, 80, 51200, gated=False),
    LanguageModel("Command-R-plus", 12288, 33792, 96, 8, 128, 256000, devices=8),
    LanguageModel("DBRX", 6144, 10752, 48, 8, 128, 100352, devices=8),
    LanguageModel("OPT-6.7B", 4096, 16384, 32, 32, 128, 50272, gated=False),
    LanguageModel("T5-XL", 2048, 5120, 32, 32, 64, 32128),
    LanguageModel("ViT-huge", 1280, 5120, 16, 16, 80, 1000, gated=False),
    LanguageModel("SmolLM2-360M", 960, 2560, 15, 5, 64, 49152),
    LanguageModel("TinyLlama-1.1B", 2048, 5632, 32, 4, 64, 32000),
    LanguageModel("Granite-3-8B", 4096, 12800, 32, 8, 128, 49155),
    LanguageModel("InternLM2-20B", 6144, 16384, 48, 8, 128, 92544),
    LanguageModel("StableLM-2-12B", 5120, 13824, 32, 8, 160, 100352),
    LanguageModel("GPT-OSS-120B", 2880, 2880, 64, 8, 64, 201088),
)
"""The models of gemm_layers_training."""

_WIDE = 900
_TOKENS_A_MATRIX = 4
_LARGEST_TFLOP = 0.2


def further_gemm_sets() -> dict[str, tuple[Shapes, str]]:
    """Set name -> (problems with their sources, provenance text)."""
    known = gemm_sets()
    others = [known["gemm_training"][0], *(shapes for shapes, _ in more_gemm_sets().values())]
    taken = {(p.M, p.N, p.K) for shapes in others for p in shapes}
    matrices = {(p.N, p.K) for shapes in others for p, source in shapes.items() if "@" in source}
    made = {}
    for name, sizes, what in (
        (
            "gemm_layers_training",
            _layers(random.Random("gemm_layers_training"), matrices),
            f"layers of {len(FURTHER_MODELS)} further published models with up to 8192 tokens, in "
            "random order. The models' sizes were written down by hand from their published configurations",
        ),
        (
            "gemm_wide_training",
            _wide(random.Random("gemm_wide_training"), _WIDE),
            "sizes from 1, spread evenly by logarithm; N and K of half of them are multiples of 8",
        ),
    ):
        shapes = {
            GemmProblem("bf16", "rcr", *size): source
            for size, source in without(sizes, known["gemm_validation"][0])
            if size not in taken
        }
        text = (
            f"{name}: {len(shapes)} products in bf16 and rcr: {what}. They share no (N, K) with "
            "gemm_validation, and no (M, N, K) with other training sets. "
            f"At most {_LARGEST_TFLOP:g} TFLOP each. Made by tools.crawl.gemm_further."
        )
        made[name] = (shapes, textwrap.fill(text, 100))
    return made


def _layers(generator: random.Random, matrices: set[tuple[int, int]]) -> Iterator[tuple[Size, str]]:
    """(M, N, K) and source of every weight matrix that is not known, with some numbers of tokens.

    Half of these are powers of two, the others spread evenly by logarithm.
    """
    found: dict[tuple[int, int], str] = {}
    for model in FURTHER_MODELS:
        for layer, n, k in model.layers():
            if (n, k) not in matrices:
                found.setdefault((n, k), f"{model.name}@{layer}")
    drawn: dict[Size, str] = {}
    for (n, k), source in found.items():
        for number in range(_TOKENS_A_MATRIX):
            tokens = log_uniform_size(generator, math.log2(TOKENS[-1]))
            m = generator.choice(TOKENS) if number % 2 else tokens
            if is_at_most(_LARGEST_TFLOP, (m, n, k)):
                drawn[m, n, k] = source
    order = list(drawn.items())
    generator.shuffle(order)
    yield from order


def _wide(generator: random.Random, count: int) -> Iterator[tuple[Size, str]]:
    """(M, N, K) and source, spread evenly by logarithm; N and K of every other one are multiples of 8."""
    number = 0
    while number < count:
        size = wide_size(generator, 8 if number % 2 else 1)
        if is_at_most(_LARGEST_TFLOP, size):
            number += 1
            yield size, "wide: sizes spread evenly by logarithm"
