"""Properties of the shipped sets of GEMM and attention."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pytest

from tile_oracle.judge.slices import slices_of
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.gemm.words import GEMM_SLICES
from tile_oracle.problem_set import ProblemSet, list_problem_sets, load_problem_set

TRAINING = [name for name in list_problem_sets() if name.startswith("gemm_") and name.endswith("_training")]
LARGE = ["training", "odd_training", "odd_more_training", "layers_training", "wide_training"]
VALIDATION = ["validation", "rrr_validation", "crr_validation", "fp16_validation"]


@cache
def shipped(name: str) -> ProblemSet:
    return load_problem_set(f"gemm_{name}")


def gemms(name: str) -> list[GemmProblem]:
    return [problem for problem in shipped(name).problems if isinstance(problem, GemmProblem)]


def sizes(problems: Iterable[GemmProblem]) -> set[tuple[int, int, int]]:
    return {(p.M, p.N, p.K) for p in problems}


def models(name: str) -> set[str]:
    return {source.split("@")[0] for source in shipped(name).sources if "@" in source}


def test_training_covers_what_it_should() -> None:
    problems = gemms("training")
    found = sizes(problems)
    assert len(found) >= 700
    assert all(sum(name in slices_of(p) for p in problems) >= 3 for name in GEMM_SLICES)
    assert sum(p.M < 8 for p in problems) >= 0.15 * len(problems)
    assert sum(p.M >= 1024 for p in problems) >= 0.15 * len(problems)
    assert sum(p.M == 1 for p in problems) >= 100
    assert any(p.N == 1 and p.K > 1 for p in problems)
    assert any(p.K == 1 and p.N > 1 for p in problems)
    primes = [size for size in found if all(all(x % d for d in range(2, 95)) for x in size)]
    assert any(min(size) > 100 for size in primes)


@pytest.mark.parametrize("word", ["", "rrr_", "crr_", "fp16_"])
def test_validation_shares_no_size_and_no_model_with_training(word: str) -> None:
    training, validation = (gemms(f"{word}{role}") for role in ("training", "validation"))
    assert training
    assert len(validation) >= (300 if word == "" else 32)
    assert not sizes(training) & sizes(validation)
    assert not models(f"{word}training") & models(f"{word}validation")


@pytest.mark.parametrize("name", [one for one in TRAINING if one.count("_") > 2 or "layers" in one])
@pytest.mark.parametrize("other", VALIDATION)
def test_no_weight_matrix_of_the_validation_sets_is_in_further_training_sets(name: str, other: str) -> None:
    ours = {(p.N, p.K) for p in gemms(name.removeprefix("gemm_"))}
    assert ours
    assert not ours & {(p.N, p.K) for p in gemms(other)}


def test_no_product_is_in_two_large_training_sets() -> None:
    all_of_them = [size for name in LARGE for size in sizes(gemms(name))]
    assert len(set(all_of_them)) == len(all_of_them)


@pytest.mark.parametrize("name", ["training", "validation"])
def test_no_problem_is_too_large_and_every_one_says_where_it_is_from(name: str) -> None:
    provenance = " ".join(shipped(name).provenance.split())
    for problem, source in zip(gemms(name), shipped(name).sources, strict=True):
        assert problem.flops <= 10e12
        assert problem.bytes <= 4e9
        assert "@" in source or source.startswith(("wide: ", "edge: "))
    assert all(model in provenance for model in models(name))


@pytest.mark.parametrize(
    ("m", "slice_"),
    [(1, "tiny M"), (7, "tiny M"), (8, "small M"), (127, "small M"), (128, "medium M"), (1023, "medium M"),
     (1024, "large M")],
)  # fmt: skip
def test_the_bands_of_m(m: int, slice_: str) -> None:
    bands = [name for name in slices_of(GemmProblem("bf16", "rcr", m, 64, 64)) if name.endswith(" M")]
    assert bands == [slice_]


def test_attention_is_validated_on_other_families_in_prefill_decode_and_without_a_mask() -> None:
    training, validation = (
        load_problem_set(f"attention_{role}").problems for role in ("training", "validation")
    )
    assert len(training) >= 200
    assert len(validation) >= 80
    assert not {problem.family for problem in training} & {problem.family for problem in validation}
    for rows in ([problem.as_row() for problem in problems] for problems in (training, validation)):
        assert sum(bool(p["causal"]) and p["seq_q"] == p["seq_kv"] for p in rows) >= 20
        assert sum(bool(p["causal"]) and p["seq_q"] == 1 for p in rows) >= 20
        assert sum(not p["causal"] for p in rows) >= 12
        assert {p["head_dim"] for p in rows} == {64, 128, 256}
