"""Further GEMM training sets: sizes that are no multiples of 8, and more products in rrr, crr and fp16.

`more_gemm_sets()` makes the problem sets gemm_odd_training, gemm_odd_more_training, gemm_rrr_more_training,
gemm_crr_more_training and gemm_fp16_more_training. They share no (N, K) with a layer of gemm_validation, and
no (M, N, K) with the set.
It measures and downloads nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from tile_oracle.operations.gemm.problem import GemmProblem
from tools.crawl.gemm_kinds import KINDS, gemm_kind_sets
from tools.crawl.gemm_shapes import Shapes, Size, gemm_sets, is_at_most, wide_size

VOCABULARIES = {
    "GPT-2": (50257, 768),
    "GPT-2-large": (50257, 1280),
    "RoBERTa-large": (50265, 1024),
    "Whisper-medium": (51865, 1024),
    "Whisper-large-v3": (51866, 1280),
    "XLM-RoBERTa-large": (250002, 1024),
}
"""Published model -> vocabulary and hidden size of its last layer. No vocabulary is a multiple of 8."""

_TOKENS = (1, 4, 16, 64, 256, 1024)
_LAYOUTS = ("rcr", "rrr", "crr")
_ODD = 84
_MORE_ODD = 200
_MORE = 130
_MOST_TFLOP = 2.0


def more_gemm_sets() -> dict[str, tuple[Shapes, str]]:
    """Set name -> (problems with their sources, provenance text)."""
    known, kinds = gemm_sets(), gemm_kind_sets()
    validation = known["gemm_validation"][0]
    training = known["gemm_training"][0]
    odd = dict(without(_odd_sizes(random.Random("gemm_odd_training")), validation))
    made: dict[str, tuple[Shapes, str]] = {
        "gemm_odd_training": (
            {
                GemmProblem("bf16", layout, m, n, k): source
                for (m, n, k), source in odd.items()
                for layout in _LAYOUTS
            },
            f"gemm_odd_training: {len(odd)} products in rcr, rrr and crr whose N or K is no multiple of 8:\n"
            f"last layers of {len(VOCABULARIES)} published models (vocabulary and hidden size, written down\n"
            "by hand), and sizes spread evenly by logarithm. They share no (N, K) with\n"
            f"gemm_validation. At most {_MOST_TFLOP:g} TFLOP each. Made by tools.crawl.gemm_more.",
        )
    }
    known_sizes = set(odd) | {(p.M, p.N, p.K) for p in training}
    wide = _wide_odd_sizes(random.Random("gemm_odd_more_training"))
    new = ((size, source) for size, source in wide if size not in known_sizes)
    more_odd = dict(islice(without(new, validation), _MORE_ODD))
    made["gemm_odd_more_training"] = (
        {GemmProblem("bf16", "rcr", *size): source for size, source in more_odd.items()},
        f"gemm_odd_more_training: {len(more_odd)} further products in rcr whose N or K is no multiple of 8,\n"
        "sizes from 1 spread evenly by logarithm. They share no (N, K) with gemm_validation, and no\n"
        f"(M, N, K) with gemm_training and gemm_odd_training. At most {_MOST_TFLOP:g} TFLOP each. Made by\n"
        "tools.crawl.gemm_more.",
    )
    for word, (dtype, layout, *_) in KINDS.items():
        name = f"gemm_{word}_more_training"
        first = {(p.M, p.N, p.K) for p in kinds[f"gemm_{word}_training"][0]}
        rest = {
            (p.M, p.N, p.K): source
            for p, source in training.items()
            if (p.dtype, p.layout, p.split_k) == ("bf16", "rcr", 1)
            and p.flops <= _MOST_TFLOP * 1e12
            and (p.M, p.N, p.K) not in first
        }
        fit = sorted(without(iter(rest.items()), validation))
        drawn = random.Random(name).sample(fit, _MORE)
        made[name] = (
            {GemmProblem(dtype, layout, *size): source for size, source in drawn},
            f"{name}: {_MORE} further products of gemm_training, chosen at random among those in bf16 and\n"
            f"rcr of at most {_MOST_TFLOP:g} TFLOP that gemm_{word}_training does not have, as {word}.\n"
            "Made by tools.crawl.gemm_more.",
        )
    return made


def without(sizes: Iterator[tuple[Size, str]], validation: Shapes) -> Iterator[tuple[Size, str]]:
    """The sizes that share no (N, K) with the validation set."""
    taken = {(p.N, p.K) for p in validation}
    return ((size, source) for size, source in sizes if size[1:] not in taken)


def _odd_sizes(generator: random.Random) -> Iterator[tuple[Size, str]]:
    """(M, N, K) and source: vocabularies first, then sizes of which N or K is no multiple of 8."""
    for name, (n, k) in VOCABULARIES.items():
        for tokens in _TOKENS:
            yield (tokens, n, k), f"{name}@vocabulary"

    def size(least_log2: float, largest_log2: float) -> int:
        value = int(2 ** generator.uniform(least_log2, largest_log2))
        return value if generator.random() < 0.6 else -(-value // 8) * 8

    count = 0
    while count < _ODD:
        m, n, k = size(0.0, 13.0), size(3.0, 14.3), size(3.0, 14.3)
        if (n % 8 or k % 8) and is_at_most(_MOST_TFLOP, (m, n, k)):
            count += 1
            yield (m, n, k), "odd: sizes spread evenly by logarithm, N or K no multiple of 8"


def _wide_odd_sizes(generator: random.Random) -> Iterator[tuple[Size, str]]:
    """(M, N, K) and source, without end: drawn like the wide ones of gemm_training."""
    while True:
        m, n, k = wide_size(generator)
        if (n % 8 or k % 8) and is_at_most(_MOST_TFLOP, (m, n, k)):
            yield (m, n, k), "wide: sizes spread evenly by logarithm, N or K no multiple of 8"
