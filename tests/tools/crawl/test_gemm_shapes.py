"""Properties of the shipped GEMM sets."""

from __future__ import annotations

from functools import cache

import pytest

from tile_oracle.files.data_files import data_folder
from tile_oracle.judge.slices import slices_of
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS, GemmProblem
from tile_oracle.operations.gemm.slices import GEMM_SLICES
from tile_oracle.problem_set import ProblemSet, format_problem_set, load_problem_set
from tools.crawl.gemm_shapes import TRAINING_MODELS, VALIDATION_MODELS, gemm_sets


@cache
def shipped(name: str) -> ProblemSet:
    return load_problem_set(f"gemm_{name}")


def gemms(name: str) -> list[GemmProblem]:
    return [problem for problem in shipped(name).problems if isinstance(problem, GemmProblem)]


@pytest.mark.parametrize("name", ["gemm_smoke", "gemm_training", "gemm_validation"])
def test_the_files_are_what_the_code_makes(name: str) -> None:
    shapes, provenance = gemm_sets()[name]
    text = (data_folder("problems") / f"{name}.csv").read_text()
    assert text == format_problem_set(shapes, shapes.values(), provenance)


def test_training_covers_what_it_should() -> None:
    problems = gemms("training")
    sizes = {(p.M, p.N, p.K) for p in problems}
    assert len(sizes) >= 700
    assert all(sum(name in slices_of(p) for p in problems) >= 3 for name in GEMM_SLICES)
    assert sum(p.M < 8 for p in problems) >= 0.15 * len(problems)
    assert sum(p.M >= 1024 for p in problems) >= 0.15 * len(problems)
    assert sum(p.M == 1 for p in problems) >= 100
    assert any(p.N == 1 and p.K > 1 for p in problems)
    assert any(p.K == 1 and p.N > 1 for p in problems)
    assert (20480, 7168, 256) in sizes
    primes = [p for p in problems if all(all(x % d for d in range(2, 95)) for x in (p.M, p.N, p.K))]
    assert any(min(p.M, p.N, p.K) > 100 for p in primes)


def test_validation_shares_no_size_and_no_models_weights_with_training() -> None:
    training, validation = gemms("training"), gemms("validation")
    assert len(validation) >= 300
    assert not {(p.M, p.N, p.K) for p in training} & {(p.M, p.N, p.K) for p in validation}
    assert not {model.name for model in TRAINING_MODELS} & {model.name for model in VALIDATION_MODELS}
    layers = [
        {(p.N, p.K) for p, source in zip(gemms(name), shipped(name).sources, strict=True) if "@" in source}
        for name in ("training", "validation")
    ]
    inference = {
        (p.N, p.K)
        for p, source in zip(validation, shipped("validation").sources, strict=True)
        if "@" in source and "gradient" not in source
    }
    assert not layers[0] & inference


@pytest.mark.parametrize("name", ["training", "validation"])
def test_no_problem_is_too_large_and_every_one_says_where_it_is_from(name: str) -> None:
    models = {model.name for model in (*TRAINING_MODELS, *VALIDATION_MODELS)}
    for problem, source in zip(gemms(name), shipped(name).sources, strict=True):
        assert problem.flops <= 10e12
        assert problem.bytes <= 4e9
        assert source.split("@")[0] in models if "@" in source else source.startswith(("wide: ", "edge: "))
    provenance = " ".join(shipped(name).provenance.split())
    named = TRAINING_MODELS if name == "training" else VALIDATION_MODELS
    assert all(model.name in provenance for model in named)
    assert "only the sizes that its published configuration states" in provenance


def test_layers_are_those_that_a_model_has() -> None:
    """By hand from published configurations: heads x head size, feed-forward twice where gated."""
    layers = {m.name: {layer: (n, k) for layer, n, k in m.layers()} for m in TRAINING_MODELS}
    assert layers["Llama-3.1-8B"] == {
        "qkv": (4096 + 2 * 8 * 128, 4096), "attention out": (4096, 4096), "up": (2 * 14336, 4096),
        "down": (4096, 14336), "vocabulary": (128256, 4096),
    }  # fmt: skip
    assert layers["GPT-3-175B"]["up"] == (49152, 12288)  # not gated
    latent = layers["DeepSeek-V3"]
    assert "qkv" not in latent
    assert latent["key-value a"] == (512 + 64, 7168)
    assert latent["query b"] == (128 * (128 + 64), 1536)
    assert latent["attention out"] == (7168, 128 * 128)


def test_smoke_is_small_and_has_every_layout_that_cpu_runs() -> None:
    problems = gemms("smoke")
    assert 8 <= len(problems) <= 12
    assert {p.layout for p in problems} == set(GEMM_LAYOUTS)
    assert {p.dtype for p in problems} == {"bf16"}
    assert max(p.flops for p in problems) <= 0.1e9
    slices = {name for p in problems for name in slices_of(p)}
    assert {"tiny M", "small M", "medium M", "N or K of 1", "odd N or K", "deep"} <= slices


@pytest.mark.parametrize(
    ("m", "slice_"),
    [(1, "tiny M"), (7, "tiny M"), (8, "small M"), (127, "small M"), (128, "medium M"), (1023, "medium M"),
     (1024, "large M")],
)  # fmt: skip
def test_the_bands_of_m(m: int, slice_: str) -> None:
    bands = [name for name in slices_of(GemmProblem("bf16", "rcr", m, 64, 64)) if name.endswith(" M")]
    assert bands == [slice_]
