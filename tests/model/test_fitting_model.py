"""Which of several model folders fits: by what it was trained on, not by its name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tile_oracle.kernel import NamedKernel
from tile_oracle.model.fitting_model import find_model_of
from tile_oracle.model.model_folder import ModelSpec
from tile_oracle.operation import Kind

RCR, CRR = (Kind.of("gemm", dtype="bf16", layout=layout) for layout in ("rcr", "crr"))


def names(kind: Kind, function: str, blocks: Sequence[int] = (16, 32, 64, 128)) -> list[str]:
    return [NamedKernel(kind, "triton", function, (("BLOCK_M", block),)).name for block in blocks]


def model(
    models: Path, name: str, kernels: Sequence[str], *layouts: str, schema: str = "gemm_pool_1"
) -> Path:
    """A folder as `train` describes it; what is asked here does not read the trees."""
    folder = models / name
    folder.mkdir(parents=True)
    spec = ModelSpec("gemm_universal", "bf16", "sm_90", ("log2_M",), schema=schema, layouts=layouts)
    (folder / "feature_spec.json").write_text(json.dumps(spec.as_json()))
    (folder / "train_manifest.json").write_text(json.dumps({"kernels": list(kernels)}))
    return folder


def test_of_two_models_the_one_that_knows_the_kernels_is_found(tmp_path: Path) -> None:
    mine, other = names(RCR, "mine"), names(RCR, "other")
    first, second = model(tmp_path, "a", other), model(tmp_path, "b", mine, schema="gemm_pool_2")
    assert find_model_of(RCR, "sm_90", models=tmp_path, named=mine) == second
    assert find_model_of(RCR, "sm_90", models=tmp_path, named=other) == first
    assert find_model_of(RCR, "sm_90", models=tmp_path, named=names(RCR, "third")) is None


@pytest.mark.parametrize(("known", "found"), [((2, 4), "b"), ((4, 2), "a"), ((3, 3), "a"), ((1, 1), None)])
def test_of_two_that_know_half_the_one_that_knows_more_is_found(
    tmp_path: Path, known: tuple[int, int], found: str | None
) -> None:
    kernels = names(RCR, "mine")
    for name, count in zip("ab", known, strict=True):
        model(tmp_path, name, kernels[:count])
    expected = None if found is None else tmp_path / found
    assert find_model_of(RCR, "sm_90", models=tmp_path, named=kernels) == expected


def test_a_model_that_lists_its_layouts_serves_these(tmp_path: Path) -> None:
    both = [*names(RCR, "mine"), *names(CRR, "mine")]
    model(tmp_path, "a", both, "rcr")
    second = model(tmp_path, "b", both, "crr", "rrr")
    assert find_model_of(CRR, "sm_90", models=tmp_path, named=names(CRR, "mine")) == second
    assert find_model_of(RCR, "sm_90", models=tmp_path, named=names(RCR, "mine")) == tmp_path / "a"
    unlisted = model(tmp_path, "0", both)
    ccr = Kind.of("gemm", dtype="bf16", layout="ccr")
    assert find_model_of(CRR, "sm_90", models=tmp_path, named=names(CRR, "mine")) == second, "it says so"
    assert find_model_of(ccr, "sm_90", models=tmp_path, named=both[:1]) == unlisted


def test_a_model_of_native_kernels_is_found_without_others_alone(tmp_path: Path) -> None:
    pool = model(tmp_path, "a", names(RCR, "mine"))
    native = model(tmp_path, "b", (), schema="gemm_own_1")
    assert find_model_of(RCR, "sm_90", models=tmp_path) == native
    assert find_model_of(RCR, "sm_90", models=tmp_path, named=names(RCR, "mine")) == pool
