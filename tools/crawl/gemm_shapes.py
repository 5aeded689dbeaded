"""GEMM shapes: layers of published language models, a log-uniform range of sizes, and edge cases.

`gemm_sets()` makes the problem sets gemm_smoke, gemm_training and gemm_validation. It measures and downloads
nothing. A model is described by its published sizes (hidden size, heads, feed-forward size, vocabulary); each
of its layers multiplies M tokens by a K x N weight matrix.
"""

from __future__ import annotations

import math
import random
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS, GemmProblem

Shapes = dict[GemmProblem, str]
"""Problem -> its source, in the order of the set."""

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""Values of M: few tokens during decoding, many during prefill."""

MAX_GFLOP = 10_000
MAX_MB = 4_000

_TOKENS_A_LAYER = 7
_WIDE = 260
_SEED = 1


@dataclass(frozen=True)
class LanguageModel:
    """Sizes of a decoder from its published configuration: hidden_size, intermediate_size,
    num_attention_heads, num_key_value_heads, head_dim, vocab_size.

    devices: tensor-parallel degree when served. joined: whether one matrix computes queries, keys and values
    (False for latent attention). more: further matrices, name -> (N, K).
    """

    name: str
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    devices: int = 1
    gated: bool = True
    joined: bool = True
    dtypes: tuple[str, ...] = ("bf16",)
    more: Mapping[str, tuple[int, int]] | None = None

    def layers(self) -> Iterator[tuple[str, int, int]]:
        """Yields (name, N, K) of each kind of weight matrix, whole and split over the devices."""
        queries = self.heads * self.head_size
        joined = (self.heads + 2 * self.kv_heads) * self.head_size
        up = self.feed_forward * (2 if self.gated else 1)
        if self.joined:
            yield "qkv", joined, self.hidden
        yield "attention out", self.hidden, queries
        yield "up", up, self.hidden
        yield "down", self.hidden, self.feed_forward
        yield "vocabulary", self.vocabulary, self.hidden
        for name, (n, k) in (self.more or {}).items():
            yield name, n, k
        if self.devices > 1:
            share = f"on one of {self.devices} devices"
            yield f"qkv {share}", joined // self.devices, self.hidden
            yield f"attention out {share}", self.hidden, queries // self.devices
            yield f"up {share}", up // self.devices, self.hidden
            yield f"down {share}", self.hidden, self.feed_forward // self.devices


TRAINING_MODELS = (
    LanguageModel("Llama-2-7B", 4096, 11008, 32, 32, 128, 32000),
    LanguageModel("Llama-3.1-8B", 4096, 14336, 32, 8, 128, 128256),
    LanguageModel("Llama-3.1-70B", 8192, 28672, 64, 8, 128, 128256, devices=8),
    LanguageModel("Llama-3.1-405B", 16384, 53248, 128, 8, 128, 128256, devices=8, dtypes=("bf16", "fp8")),
    LanguageModel("Mixtral-8x22B", 6144, 16384, 48, 8, 128, 32768, devices=8),
    LanguageModel("Qwen2.5-7B", 3584, 18944, 28, 4, 128, 152064),
    LanguageModel("Qwen2.5-32B", 5120, 27648, 40, 8, 128, 152064, devices=4),
    LanguageModel("Qwen2.5-72B", 8192, 29568, 64, 8, 128, 152064, devices=8),
    LanguageModel("Qwen3-235B-A22B", 4096, 1536, 64, 4, 128, 151936),
    LanguageModel(
        "DeepSeek-V3", 7168, 2048, 128, 128, 128, 129280, joined=False, dtypes=("bf16", "fp8"),
        more={
            "query a": (1536, 7168), "query b": (24576, 1536), "key-value a": (576, 7168),
            "key-value b": (32768, 512), "dense up": (36864, 7168), "dense down": (7168, 18432),
        },
    ),
    LanguageModel("Gemma-2-9B", 3584, 14336, 16, 8, 256, 256000),
    LanguageModel("Phi-3-mini", 3072, 8192, 32, 32, 96, 32064),
    LanguageModel("GPT-3-175B", 12288, 49152, 96, 96, 128, 50257, devices=8, gated=False),
    LanguageModel("BERT-large", 1024, 4096, 16, 16, 64, 30522, gated=False),
)  # fmt: skip
"""The models of gemm_training."""

VALIDATION_MODELS = (
    LanguageModel("Gemma-2-27B", 4608, 36864, 32, 16, 128, 256000),
    LanguageModel("Yi-34B", 7168, 20480, 56, 8, 128, 64000, devices=8),
    LanguageModel("Qwen2.5-14B", 5120, 13824, 40, 8, 128, 152064),
    LanguageModel("Phi-4", 5120, 17920, 40, 10, 128, 100352),
    LanguageModel("Grok-1", 6144, 32768, 48, 8, 128, 131072, devices=8),
    LanguageModel("BLOOM-176B", 14336, 57344, 112, 112, 128, 250880, devices=8, gated=False),
    LanguageModel("StarCoder2-15B", 6144, 24576, 48, 4, 128, 49152, gated=False),
    LanguageModel("GPT-2-XL", 1600, 6400, 25, 25, 64, 50257, gated=False),
)
"""The models of gemm_validation, without the weight matrices that a training model also has."""


def gemm_sets() -> dict[str, tuple[Shapes, str]]:
    """Set name -> (problems with their sources, provenance text), for all three sets."""
    training = training_shapes()
    validation = validation_shapes(training)
    return {
        "gemm_smoke": (smoke_shapes(), _SMOKE_PROVENANCE),
        "gemm_training": (
            training,
            "gemm_training: matrix products for training models of kernel choice.\n"
            f"{len(training)} problems: layers of {len(TRAINING_MODELS)} published language models with 1 to "
            "8192 tokens;\n"
            "sizes spread evenly by their logarithm; edges (1, primes, beside powers of two).\n"
            + _models(TRAINING_MODELS)
            + _COMMON,
        ),
        "gemm_validation": (
            validation,
            "gemm_validation: matrix products that judge a model of kernel choice.\n"
            f"{len(validation)} problems: layers of {len(VALIDATION_MODELS)} published language models whose "
            "weight matrices (N, K)\n"
            "gemm_training does not have, and sizes and edges of its own. No (M, N, K) is in both sets.\n"
            + _models(VALIDATION_MODELS)
            + _COMMON,
        ),
    }


def _models(models: tuple[LanguageModel, ...]) -> str:
    """The paragraph of the provenance that lists the models."""
    lines = textwrap.wrap(", ".join(model.name for model in models), 100)
    return (
        "Of each model only the sizes that its published configuration states are used (hidden,\n"
        "feed-forward, heads, vocabulary), written down by hand; the column source says model@layer:\n"
        + "".join(f"  {line}\n" for line in lines)
    )


_COMMON = (
    "Layouts: rcr (A by rows, B by columns, C by rows) for inference; rrr and crr are the two gradients of\n"
    "a layer. At most 10 TFLOP and 4 GB each. Made by tools.crawl.gemm_shapes, seed 1."
)
_SMOKE_PROVENANCE = (
    "gemm_smoke: small matrix products, chosen by hand, one a kind (see the column source); all bf16.\n"
    "Sizes are such that one CPU core takes up to 5 ms for a problem with a good kernel."
)


def smoke_shapes() -> Shapes:
    """gemm_smoke: small products of each kind, for a quick test of the whole system."""
    rows = (
        ("rcr", 1, 1024, 1024, "one token: a matrix times a vector"),
        ("rcr", 8, 768, 512, "a few tokens"),
        ("rcr", 64, 512, 512, "a small batch"),
        ("rcr", 256, 256, 256, "a cube"),
        ("rrr", 128, 256, 384, "gradient of the input of a layer"),
        ("crr", 192, 256, 128, "gradient of the weights of a layer"),
        ("ccr", 96, 160, 224, "both operands column by column"),
        ("rcr", 512, 1, 256, "N = 1"),
        ("rcr", 128, 256, 1, "K = 1: an outer product"),
        ("rcr", 127, 257, 131, "primes: no tile divides them"),
        ("rcr", 32, 48, 4096, "deep: few results, long sums"),
    )
    return {GemmProblem("bf16", layout, m, n, k): source for layout, m, n, k, source in rows}


def training_shapes() -> Shapes:
    """gemm_training: layers, their gradients, log-uniform sizes, edge cases."""
    shapes: Shapes = {}
    for index, model in enumerate(TRAINING_MODELS):
        _add(shapes, _of_model(model, index))
        _add(shapes, _gradients(model, index))
    _add(shapes, _wide(random.Random(_SEED), _WIDE))
    _add(shapes, _edges())
    return shapes


def validation_shapes(training: Shapes) -> Shapes:
    """gemm_validation: no (M, N, K) of it is in the training set, in any layout or data type."""
    matrices = {(p.N, p.K) for p, source in training.items() if "@" in source}
    sizes = {(p.M, p.N, p.K) for p in training}
    shapes: Shapes = {}
    for index, model in enumerate(VALIDATION_MODELS):
        _add(shapes, ((p, s) for p, s in _of_model(model, index) if (p.N, p.K) not in matrices))
        _add(shapes, _gradients(model, index))
    _add(shapes, _wide(random.Random(_SEED + 1), _WIDE // 4))
    _add(shapes, _validation_edges())
    return {p: source for p, source in shapes.items() if (p.M, p.N, p.K) not in sizes}


def _add(shapes: Shapes, more: Iterator[tuple[GemmProblem, str]]) -> None:
    for problem, source in more:
        if problem.flops <= MAX_GFLOP * 1e9 and problem.bytes <= MAX_MB * 1e6:
            shapes.setdefault(problem, source)


def _of_model(model: LanguageModel, index: int) -> Iterator[tuple[GemmProblem, str]]:
    """Every layer with about half of the token counts: always 1, the others in turn."""
    for place, (layer, n, k) in enumerate(model.layers()):
        start = (index + place) % 2
        for tokens in dict.fromkeys((1, *TOKENS[1 + start :: 2][:_TOKENS_A_LAYER])):
            for dtype in model.dtypes:
                yield GemmProblem(dtype, "rcr", tokens, n, k), f"{model.name}@{layer}"


def _gradients(model: LanguageModel, index: int) -> Iterator[tuple[GemmProblem, str]]:
    """Input and weight gradients of two layers of a model."""
    tokens = (1024, 2048, 4096)[index % 3]
    for layer, n, k in list(model.layers())[1:4:2]:
        yield GemmProblem("bf16", "rrr", tokens, k, n), f"{model.name}@{layer}, gradient of the input"
        yield GemmProblem("bf16", "crr", n, k, tokens), f"{model.name}@{layer}, gradient of the weights"


Size = tuple[int, int, int]
"""M, N and K."""

_WIDE_LOG2 = (13.3, 14.3, 14.3)
"""Of the largest M, N and K of the wide sizes."""


def log_uniform_size(generator: random.Random, largest_log2: float) -> int:
    """A size from 1, spread evenly by logarithm."""
    return max(1, int(2 ** (generator.random() * largest_log2)))


def wide_size(generator: random.Random, multiple: int = 1) -> Size:
    """Log-uniform sizes, N and K rounded up to multiples of `multiple`."""
    m, n, k = (log_uniform_size(generator, largest) for largest in _WIDE_LOG2)
    return m, math.ceil(n / multiple) * multiple, math.ceil(k / multiple) * multiple


def is_at_most(tflop: float, size: Size) -> bool:
    """Whether the product is that small."""
    return 2 * math.prod(size) <= tflop * 1e12


def _wide(generator: random.Random, count: int) -> Iterator[tuple[GemmProblem, str]]:
    """Log-uniform sizes; half of them have N and K that are multiples of 8."""
    for number in range(count):
        m, n, k = wide_size(generator, 8 if number % 2 else 1)
        layout = GEMM_LAYOUTS[number // 4 % 4] if number % 4 == 0 else "rcr"
        yield GemmProblem("bf16", layout, m, n, k), "wide: sizes spread evenly by logarithm"


_PRIMES = (3, 17, 61, 127, 257, 521, 1021, 2053, 4093, 8191)


def _edges() -> Iterator[tuple[GemmProblem, str]]:
    """Edge cases: sizes that are 1, prime, next to a power of two, or extreme in one dimension."""
    for size in (1, 64, 1024, 4096):
        for layout in ("rcr", "rrr"):
            yield GemmProblem("bf16", layout, size, 1, 4096), "edge: N = 1"
            yield GemmProblem("bf16", layout, size, 4096, 1), "edge: K = 1"
            yield GemmProblem("bf16", layout, size, 1, 1), "edge: N = K = 1"
    for index, m in enumerate(_PRIMES):
        n, k = _PRIMES[(index + 3) % len(_PRIMES)], _PRIMES[(index + 7) % len(_PRIMES)]
        yield GemmProblem("bf16", "rcr", m, n, k), "edge: primes"
        yield GemmProblem("bf16", "rrr", m, 4096, k), "edge: primes"
    for power in (64, 128, 256, 1024):
        for off in (-1, 1):
            yield GemmProblem("bf16", "rcr", power + off, power, power), "edge: beside a power of two"
            yield GemmProblem("bf16", "rcr", power, power + off, power), "edge: beside a power of two"
            yield GemmProblem("bf16", "rcr", power, power, power + off), "edge: beside a power of two"
    for size in (16, 64, 256):
        yield GemmProblem("bf16", "rcr", size, size, 131072), "edge: deep"
        yield GemmProblem("bf16", "rcr", 131072, size, size), "edge: tall"
        yield GemmProblem("bf16", "rcr", size, 131072, size), "edge: wide"
    yield GemmProblem("bf16", "rcr", 20480, 7168, 256), "edge: many rows, shallow"
    for parts in (2, 4, 8):
        yield GemmProblem("bf16", "rcr", 16, 512, 16384, parts), "edge: depth split"


def _validation_edges() -> Iterator[tuple[GemmProblem, str]]:
    for size in (5, 96, 2048):
        yield GemmProblem("bf16", "rcr", size, 1, 2048), "edge: N = 1"
        yield GemmProblem("bf16", "rcr", size, 2048, 1), "edge: K = 1"
    for m, n, k in ((7, 1009, 2039), (113, 509, 1013), (997, 499, 4099), (2039, 211, 61)):
        yield GemmProblem("bf16", "rcr", m, n, k), "edge: primes"
    yield GemmProblem("bf16", "rcr", 48, 48, 98304), "edge: deep"
