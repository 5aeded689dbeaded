"""The model of a pick, and its messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.made_records import make_problems, make_records
from tests.pools import kernel_pool
from tile_oracle.errors import BuildError, ModelError, NoModelError, RuleError, TargetError
from tile_oracle.model.fitting_model import pool_of_model
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import shipped_models
from tile_oracle.model.trees import TreeSettings
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.problem import problem_from_id
from tile_oracle.problem_set import load_problem_set
from tile_oracle.registry import Registry
from tile_oracle.selector.ranker import NativeRanker
from tile_oracle.targets import TargetOptions
from tile_oracle.targets.cpu_info import cpu_name
from tile_oracle.targets.resolve import open_target
from tile_oracle.training.recipe import Recipe, TreePart
from tile_oracle.training.train import train

GFX = problem_from_id("forward-bf16-n1-c64-k64-i56x56-f3x3-p1")
MINE = problem_from_id("forward-fp32-n1-c16-k16-i9x9-f3x3-p1")


@pytest.fixture(scope="module")
def cpu_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models with one that was trained for forward fp32 2D on the CPU."""
    problems = [replace(problem, dtype="fp32") for problem in make_problems(12)]
    rows = make_records(problems, kernel_pool("forward", "fp32", 2, "cpu", "tiny"), arch="cpu").assign(
        device=cpu_name()
    )
    part = TreePart("log_time", "grouped_conv_own_1", TreeSettings(trees=8))
    models = tmp_path_factory.mktemp("models")
    train(rows, Recipe("few", "a few trees", (part,)), n_splits=2).save(models / "mine")
    return models


@pytest.fixture
def make_registry(tmp_path: Path) -> Iterator[Callable[..., Registry]]:
    """Registries of the CPU."""
    target = open_target("cpu", TargetOptions(toolchain="ziglang", build_dir=tmp_path))
    yield partial(Registry, target, kernels="tiny")
    target.close()


# ---- models -------------------------------------------------------------------------------------


def test_a_model_picks_what_its_predictor_ranks_first() -> None:
    with Registry(arch="gfx950") as registry:
        pool = registry.candidates(GFX).kernels
        assert pool == pool_of_model(shipped_models() / "grouped_conv_forward_bf16_gfx950", GFX.kind)
        folder = "grouped_conv_forward_bf16_gfx950"
        ranked = Predictor.load(Path(__file__).parents[2] / "models" / folder).rank(GFX, pool)
        picks = registry.rank(GFX)
        assert [(pick.kernel, pick.predicted_tflops) for pick in picks] == ranked
        assert {pick.model for pick in picks} == {folder}
        assert registry.select(GFX) == picks[0]
        assert registry.rank(GFX, 3) == picks[:3]
        assert registry.rank(GFX, 10**6) == picks


def test_kernels_that_refuse_the_problem_are_passed_over() -> None:
    merging = kernel_pool("forward", "bf16", 2, "gfx950", "full")
    able = next(k for k in merging if k.num_groups_to_merge == 1)
    unable = [k for k in merging if k.num_groups_to_merge > 1][:3]
    with Registry(arch="gfx950", kernels=[*unable, able]) as registry:
        assert [pick.kernel for pick in registry.rank(GFX)] == [able]
        assert registry.select(GFX).kernel == able
    with (
        Registry(arch="gfx950", kernels=unable) as registry,
        pytest.raises(TargetError, match=r"no kernel of the pool can run forward-bf16.*-p1: \w"),
    ):
        registry.select(GFX)


def test_the_users_own_models_come_before_the_shipped_ones(
    cpu_model: Path, make_registry: Callable[..., Registry]
) -> None:
    registry = make_registry(models=cpu_model)
    picks = registry.rank(MINE)
    assert {pick.model for pick in picks} == {"mine"}
    assert len(picks) == len(kernel_pool("forward", "fp32", 2, "cpu", "tiny"))
    assert make_registry(model=cpu_model / "mine").select(MINE) == picks[0]


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        ("forward-fp16-n1-c16-k16-i9x9-f3x3-p1", "was trained for fp32, not fp16"),
        ("forward-fp32-n1-c16-k16-i9x9x9-f3x3x3-p1", "was trained for rank 2, not 3"),
        ("gemm-fp32-rcr-m16-n16-k16", "the model predicts convolutions, not GemmProblem"),
    ],
)
def test_a_model_trained_for_other_problems_is_not_used(
    problem: str, why: str, cpu_model: Path, make_registry: Callable[..., Registry]
) -> None:
    registry = make_registry(model=cpu_model / "mine")
    with pytest.raises(ModelError) as raised:
        registry.select(problem_from_id(problem))
    assert why in str(raised.value)
    shipped = shipped_models() / "grouped_conv_forward_bf16_gfx950"
    with pytest.raises(ModelError, match="was trained for gfx950, not cpu"):
        make_registry(model=shipped).select(GFX)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"arch": "nonsense"}, RuleError, "nonsense"),
        ({"arch": "gfx950", "target": "cpu"}, TargetError, "give a target, or arch"),
        ({"target": "nonsense"}, TargetError, "is not one of auto"),
        ({"arch": "gfx950", "model": "missing"}, ModelError, "no model folder at missing"),
        ({"arch": "gfx950", "kernels": "missing"}, RuleError, "missing"),
        ({"arch": "gfx950", "kernels": []}, ModelError, "the pool has no kernel for forward bf16 2D on"),
    ],
)
def test_impossible_requests_give_one_line(
    options: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        Registry(**options).select(GFX)  # type: ignore[arg-type]
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_requests_that_cannot_be_met_give_errors() -> None:
    with Registry(arch="gfx950") as registry:
        with pytest.raises(ModelError, match="no model was trained for gemm bf16 rcr on gfx950: "):
            registry.select(GemmProblem("bf16", "rcr", 16, 16, 16))
        with pytest.raises(ModelError, match="k must be at least 1"):
            registry.rank(GFX, 0)


def test_native_and_python_pick_alike_and_say_which_they_are() -> None:
    problems = [
        problem for problem in load_problem_set("forward_validation_300").problems if problem.ndim == 2
    ]
    with (
        Registry(arch="gfx950", engine="native") as native,
        Registry(arch="gfx950", engine="python") as python,
    ):
        assert (native.candidates(GFX).engine, python.candidates(GFX).engine) == ("native", "python")
        assert native.rank(GFX) == python.rank(GFX)
        for problem in problems[::50]:
            assert native.rank(problem, 2) == python.rank(problem, 2)


def test_without_native_code_python_picks_and_a_note_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_compiler(folder: Path, kernels: object) -> NativeRanker:
        raise BuildError("there is no C++ compiler")

    monkeypatch.setattr(NativeRanker, "load", staticmethod(no_compiler))
    with Registry(arch="gfx950") as registry:
        assert registry.candidates(GFX).engine == "python"
        assert registry.select(GFX).model == "grouped_conv_forward_bf16_gfx950"
    assert "grouped_conv_forward_bf16_gfx950 picks in Python" in caplog.text
    assert "there is no C++ compiler" in caplog.text
    with (
        Registry(arch="gfx950", engine="native") as registry,
        pytest.raises(BuildError, match="no C\\+\\+ compiler"),
    ):
        registry.select(GFX)
    with pytest.raises(ModelError, match="engine 'fast' is not one of auto, native, python"):
        Registry(arch="gfx950", engine="fast")


def test_without_a_model_nothing_is_picked(make_registry: Callable[..., Registry]) -> None:
    with pytest.raises(NoModelError) as failed:
        make_registry().select(MINE)
    assert str(failed.value) == (
        "no model was trained for forward fp32 2D on cpu: train one, or measure "
        f"`tile-oracle tune {MINE.id} --target cpu`"
    )
