"""Which of several model folders ranks a kind of problem: by what it was trained on, not by its name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.pools import gemm_pool
from tile_oracle.kernel import Kernel, NamedKernel
from tile_oracle.model import fitting_model
from tile_oracle.model.fitting_model import ModelsFor, models_for, pool_of_model
from tile_oracle.model.model_folder import ModelSpec
from tile_oracle.operation import Kind

RCR, CRR = (Kind.of("gemm", dtype="bf16", layout=layout) for layout in ("rcr", "crr"))
BLOCKS = (16, 32, 64, 128)


def kernels(kind: Kind, function: str, blocks: Sequence[int] = BLOCKS) -> list[Kernel]:
    return [NamedKernel(kind, "triton", function, (("BLOCK_M", block),)) for block in blocks]


def model(
    folder: Path,
    trained: Sequence[Kernel] | None,
    *layouts: str,
    schema: str = "gemm_pool_2",
    devices: Sequence[str] = (),
    day: int = 1,
    problems: int = 0,
    spec: ModelSpec | None = None,
) -> Path:
    """A folder as `train` describes it; what is asked here does not read the trees."""
    folder.mkdir(parents=True)
    spec = spec or ModelSpec(
        "gemm_universal", "bf16", "sm_90", ("log2_M",), schema=schema, layouts=layouts, devices=tuple(devices)
    )
    manifest = {"timestamp": f"2026-11-{day:02}T10:00:00+00:00", "unique_shapes": problems}
    listed = {} if trained is None else {"kernels": [one.name for one in trained]}
    (folder / "feature_spec.json").write_text(json.dumps(spec.as_json()))
    (folder / "model_tflops.lgbm.gz").touch()
    (folder / "train_manifest.json").write_text(json.dumps({**manifest, **listed}))
    return folder


def found(kind: Kind, *places: Path, pool: Sequence[Kernel] = (), device: str = "") -> ModelsFor:
    return models_for(kind, "sm_90", places, kernels=pool, device=device)


def test_a_model_ranks_functions_that_it_was_trained_on_whatever_their_configuration(tmp_path: Path) -> None:
    trained = model(tmp_path / "a", kernels(RCR, "mine", (16, 32)))
    others = kernels(RCR, "mine", (48, 96, 192))
    chosen = found(RCR, tmp_path, pool=others)
    assert chosen.folder == trained, "none of these names was trained"
    assert "trained on 0 of the 3 candidates" in chosen.taken.origin
    unknown = found(RCR, tmp_path, pool=kernels(RCR, "another"))
    assert unknown.folder is None
    assert (
        unknown.why_none
        == "no model fits gemm bf16 rcr on sm_90: a knows the functions of 0 of the 4 candidates"
    )


def test_half_of_the_candidates_must_be_of_known_functions(tmp_path: Path) -> None:
    model(tmp_path / "a", kernels(RCR, "mine"))
    mine, strange = kernels(RCR, "mine"), kernels(RCR, "strange")
    assert found(RCR, tmp_path, pool=[*mine, *strange]).folder is not None
    assert found(RCR, tmp_path, pool=[*mine[1:], *strange]).folder is None


@pytest.mark.parametrize(
    ("known", "taken"), [((2, 4), "b"), ((4, 2), "a"), ((1, 2), "b"), ((3, 3), "a"), ((0, 1), "b")]
)
def test_of_equals_the_one_that_knows_more_of_the_candidates_is_taken(
    tmp_path: Path, known: tuple[int, int], taken: str
) -> None:
    pool = kernels(RCR, "mine")
    for name, count in zip("ab", known, strict=True):
        model(tmp_path / name, [*pool[:count], *kernels(RCR, "mine", (256,))])
    assert found(RCR, tmp_path, pool=pool).folder == tmp_path / taken


def test_ones_own_comes_before_a_shipped_one_and_the_newer_before_the_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, shipped, pool = tmp_path / "own", tmp_path / "shipped", kernels(RCR, "mine")
    monkeypatch.setattr(fitting_model, "shipped_models", lambda: shipped)
    newest = model(shipped / "z", pool, day=9)
    older, newer = model(own / "a", pool, day=2), model(own / "b", pool, day=3)
    for places in ((own, shipped), (shipped, own)):
        chosen = found(RCR, *places, pool=pool)
        assert chosen.folder == newer
        reasons = {one.folder: one.why_not for one in chosen.considered}
        assert reasons == {
            newer: "",
            older: "fits, but is older (2026-11-02 10:00)",
            newest: "fits, but is shipped, and your own comes first",
        }
    renamed = own / "0"
    newer.rename(renamed)
    assert found(RCR, own, shipped, pool=pool).folder == renamed, "names decide nothing"


def test_one_that_knows_less_than_half_comes_after_a_shipped_one_that_knows_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, shipped, pool = tmp_path / "own", tmp_path / "shipped", kernels(RCR, "mine")
    monkeypatch.setattr(fitting_model, "shipped_models", lambda: shipped)
    founded, few = model(shipped / "s", pool), model(own / "o", pool[:1])
    chosen = found(RCR, own, shipped, pool=pool)
    assert chosen.folder == founded
    assert [one.why_not for one in chosen.considered if one.folder == few] == [
        "fits, but was trained on 1 of the 4 candidates"
    ]
    unlisted = model(own / "p", None)
    assert found(RCR, own, shipped, pool=pool).folder == unlisted, "it does not say that it knows few"


def test_one_that_was_measured_on_the_device_comes_first(tmp_path: Path) -> None:
    pool = kernels(RCR, "mine")
    here = model(tmp_path / "a", pool, devices=["NVIDIA H100"], day=1)
    there = model(tmp_path / "b", pool, devices=["NVIDIA H200"], day=2)
    assert found(RCR, tmp_path, pool=pool, device="NVIDIA H100").folder == here
    assert found(RCR, tmp_path, pool=pool).folder == there, "the newer one, as no device is known"


@pytest.mark.parametrize("device", ["", "NVIDIA GH200"])
def test_elsewhere_the_one_that_learned_from_more_problems_comes_first(tmp_path: Path, device: str) -> None:
    pool = kernels(RCR, "mine")
    many = model(tmp_path / "a", pool, devices=["NVIDIA H200"], problems=300, day=1)
    few = model(tmp_path / "b", pool, devices=["NVIDIA H100"], problems=30, day=2)
    chosen = found(RCR, tmp_path, pool=pool, device=device)
    assert [(one.folder, one.why_not) for one in chosen.considered] == [
        (many, ""), (few, "fits, but learned from fewer problems"),
    ]  # fmt: skip
    assert found(RCR, tmp_path, pool=pool, device="NVIDIA H100").folder == few


def test_a_model_that_lists_its_layouts_serves_these(tmp_path: Path) -> None:
    both = [*kernels(RCR, "mine"), *kernels(CRR, "mine")]
    first, second = model(tmp_path / "a", both, "rcr"), model(tmp_path / "b", both, "crr", "rrr")
    assert found(CRR, tmp_path, pool=kernels(CRR, "mine")).folder == second
    assert found(RCR, tmp_path, pool=kernels(RCR, "mine")).folder == first
    unlisted = model(tmp_path / "0", both, day=9)
    ccr = Kind.of("gemm", dtype="bf16", layout="ccr")
    assert found(CRR, tmp_path, pool=kernels(CRR, "mine")).folder == second, "it says so"
    assert found(ccr, tmp_path).folder == unlisted


def test_a_model_of_families_ranks_no_kernels_of_other_sources(tmp_path: Path) -> None:
    pool = model(tmp_path / "a", kernels(RCR, "mine"), day=9)
    native = model(tmp_path / "b", None, schema="gemm_own_1")
    assert found(RCR, tmp_path, pool=gemm_pool("bf16", "rcr", "sm_90")).folder == native
    chosen = found(RCR, tmp_path, pool=kernels(RCR, "mine"))
    assert chosen.folder == pool
    assert "which has 0 of the 4 candidates" in {one.folder: one.why_not for one in chosen.considered}[native]


def test_a_model_of_convolutions_is_for_its_kind_and_architecture(tmp_path: Path) -> None:
    own = {"direction": "forward", "dtype": "bf16", "ndim": 2}
    spec = ModelSpec("grouped_conv", "bf16", "gfx950", ("N",), direction="forward", ndims=(2,))
    folder = model(tmp_path / "a", None, spec=spec)
    assert models_for(Kind.of("grouped_conv", **own), "gfx950", [tmp_path], device="MI350X").folder == folder
    for change, why in (
        ({"ndim": 3}, "was trained for rank 2, not 3"),
        ({"direction": "bwd_data"}, "was trained for forward, not bwd_data"),
        ({"dtype": "fp16"}, "was trained for bf16, not fp16"),
    ):
        looked = models_for(Kind.of("grouped_conv", **own | change), "gfx950", [tmp_path])
        assert [one.why_not for one in looked.considered] == [why]
    elsewhere = models_for(Kind.of("grouped_conv", **own), "cpu", [tmp_path])
    assert [one.why_not for one in elsewhere.considered] == ["was trained for gfx950, not cpu"]


def test_a_cpu_model_is_used_for_its_cpus_only(tmp_path: Path) -> None:
    spec = ModelSpec("grouped_conv", "bf16", "cpu", ("N",), devices=("EPYC", "Xeon"))
    folder = model(tmp_path / "two", None, spec=spec)
    kind = Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2)
    for device in ("EPYC", "Xeon", ""):
        assert models_for(kind, "cpu", [tmp_path], device=device).folder == folder
    elsewhere = models_for(kind, "cpu", [tmp_path], device="Ryzen")
    assert elsewhere.why_none.endswith(": two was measured on EPYC and Xeon, not on Ryzen")


def test_the_pool_of_a_model_is_what_it_was_trained_on(tmp_path: Path) -> None:
    library = NamedKernel(RCR, "cublaslt", "a66", (("tile", 20),))
    mine = kernels(RCR, "mine")
    folder = model(tmp_path / "a", [*mine, *kernels(CRR, "mine"), library])
    assert sorted(pool_of_model(folder, RCR), key=str) == sorted(mine, key=str)
