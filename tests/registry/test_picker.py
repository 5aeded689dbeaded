"""The source of a pick (tuned result, model or measurement), and its messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from evil_target import EvilTarget, evil_kernel, small_problem

from tests.made_records import make_problems, make_records
from tests.registry.conftest import STEADY
from tile_oracle.compiling.builder import Builder
from tile_oracle.errors import BuildError, ModelError, RuleError, TargetError
from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.model.fitting_model import pool_of_model
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import shipped_models
from tile_oracle.model.trees import TreeSettings
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.pool import kernel_pool
from tile_oracle.problem import problem_from_id
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import load_records
from tile_oracle.record.run import RunLog, open_run
from tile_oracle.registry import Budget, Registry, TunedResults, model_free_order
from tile_oracle.registry.results import MEASURED, MODEL, TUNED
from tile_oracle.registry.seed import entries_of_records
from tile_oracle.selector.ranker import NativeRanker
from tile_oracle.targets.cpu_info import cpu_name
from tile_oracle.training.recipe import Recipe, TreePart
from tile_oracle.training.train import train

GFX = problem_from_id("forward-bf16-n1-c64-k64-i56x56-f3x3-p1")
MINE = problem_from_id("forward-fp32-n1-c16-k16-i9x9-f3x3-p1")
EVIL = small_problem()


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


# ---- models -------------------------------------------------------------------------------------


def test_a_model_picks_what_its_predictor_ranks_first() -> None:
    with Registry(arch="gfx950") as registry:
        pool = registry.candidates(GFX).kernels
        assert pool == pool_of_model(shipped_models() / "grouped_conv_forward_bf16_gfx950", GFX.kind)
        folder = "grouped_conv_forward_bf16_gfx950"
        ranked = Predictor.load(Path(__file__).parents[2] / "models" / folder).rank(GFX, pool)
        picks = registry.rank(GFX)
        assert [(pick.kernel, pick.predicted_tflops) for pick in picks] == ranked
        assert {(p.source, p.measured_tflops, p.model, p.note) for p in picks} == {(MODEL, None, folder, "")}
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
        pytest.raises(TargetError, match="no kernel of the pool can run forward-bf16"),
    ):
        registry.select(GFX)


def test_the_users_own_models_come_before_the_shipped_ones(
    cpu_model: Path, make_registry: Callable[..., Registry]
) -> None:
    registry = make_registry(models=cpu_model, fallback=None)
    picks = registry.rank(MINE)
    assert {(pick.source, pick.model) for pick in picks} == {(MODEL, "mine")}
    assert len(picks) == len(kernel_pool("forward", "fp32", 2, "cpu", "tiny"))
    assert make_registry(model=cpu_model / "mine", fallback=None).select(MINE) == picks[0]


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
    registry = make_registry(model=cpu_model / "mine", fallback=None)
    with pytest.raises(ModelError) as raised:
        registry.select(problem_from_id(problem))
    assert why in str(raised.value)
    assert "nothing may be measured" in str(raised.value)
    shipped = shipped_models() / "grouped_conv_forward_bf16_gfx950"
    with pytest.raises(ModelError, match="was trained for gfx950, not cpu"):
        make_registry(model=shipped, fallback=None).select(GFX)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"arch": "nonsense"}, RuleError, "nonsense"),
        ({"arch": "gfx950", "target": "cpu"}, TargetError, "give a target, or arch"),
        ({"target": "nonsense"}, TargetError, "is not one of auto"),
        ({"arch": "gfx950", "model": "missing"}, ModelError, "no model folder at missing"),
        ({"arch": "gfx950", "kernels": "missing"}, RuleError, "missing"),
        (
            {"arch": "gfx950", "kernels": []},
            ModelError,
            "the pool has no kernel for forward bf16 2D on gfx950",
        ),
    ],
)
def test_impossible_requests_give_one_line(
    options: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        Registry(**options).select(GFX)  # type: ignore[arg-type]
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_registry_for_an_architecture_only_picks() -> None:
    with Registry(arch="gfx950") as registry:
        with pytest.raises(TargetError, match="only picks, for gfx950, and cannot measure kernels"):
            registry.tune(GFX, 1.0)
        with pytest.raises(TargetError, match="only picks, for gfx950, and cannot run kernels"):
            registry.run(GFX)
        with pytest.raises(ModelError, match="no model was trained for gemm bf16 rcr on gfx950, and without"):
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
        assert registry.select(GFX).source == MODEL
    assert "grouped_conv_forward_bf16_gfx950 picks in Python" in caplog.text
    assert "there is no C++ compiler" in caplog.text
    with (
        Registry(arch="gfx950", engine="native") as registry,
        pytest.raises(BuildError, match="no C\\+\\+ compiler"),
    ):
        registry.select(GFX)
    with pytest.raises(ModelError, match="engine 'fast' is not one of auto, native, python"):
        Registry(arch="gfx950", engine="fast")


# ---- measuring ----------------------------------------------------------------------------------


def test_without_a_suitable_model_the_pool_is_measured_once_and_kept(
    make_registry: Callable[..., Registry], evil_builder: Builder, caplog: pytest.LogCaptureFixture
) -> None:
    slow, good, wrong = evil_kernel("slow"), evil_kernel("good"), evil_kernel("wrong")
    target, pool = EvilTarget(evil_builder), [wrong, slow, good]
    registry = make_registry(target=target, kernels=pool, fallback=Budget(60.0, None), settings=STEADY)
    first = registry.select(EVIL)
    assert (first.kernel, first.source, first.predicted_tflops) == (good, MEASURED, None)
    assert first.measured_tflops is not None
    assert first.measured_tflops > 0
    assert first.note.startswith(
        "no model was trained for forward fp32 2D on cpu; 3 of 3 kernels were measured"
    )
    assert (
        f"no model was trained for forward fp32 2D on cpu: the pool is measured for {EVIL.id}" in caplog.text
    )
    caplog.clear()
    again = registry.select(EVIL)
    assert (again.kernel, again.source, again.measured_tflops) == (good, TUNED, first.measured_tflops)
    assert [pick.kernel for pick in registry.rank(EVIL)] == [good, slow]
    assert caplog.text == ""
    later = make_registry(target=target, kernels=pool, fallback=None)
    assert later.select(EVIL).source == TUNED
    assert len(TunedResults("cpu", registry.tuned.path.parent)) == 1  # type: ignore[union-attr]


def test_without_tuned_results_measurements_last_as_long_as_the_registry(
    make_registry: Callable[..., Registry], evil_builder: Builder, tmp_path: Path
) -> None:
    target = EvilTarget(evil_builder)
    registry = make_registry(target=target, kernels=[evil_kernel("good")], tuned=False)
    first = registry.select(EVIL)
    assert (first.source, registry.select(EVIL)) == (MEASURED, first)
    assert not registry.tune(EVIL, 10.0).kept
    assert not (tmp_path / "tuned").exists()


def test_a_pool_without_a_good_kernel_gives_one_line_with_counts(
    make_registry: Callable[..., Registry], evil_builder: Builder
) -> None:
    pool = [evil_kernel("wrong"), evil_kernel("segfault"), evil_kernel("compile_error")]
    registry = make_registry(target=EvilTarget(evil_builder), kernels=pool, fallback=Budget(60.0))
    with pytest.raises(TargetError, match=r"3 of 3 .* \(1 build_error, 1 crash, 1 wrong\)"):
        registry.select(EVIL)


def test_a_budget_of_kernels_and_one_of_seconds_are_kept(
    make_registry: Callable[..., Registry], evil_builder: Builder
) -> None:
    pool = [evil_kernel("good", number) for number in range(1, 4)]
    registry = make_registry(target=EvilTarget(evil_builder), kernels=pool)
    seen: list[Measurement] = []
    few = registry.tune(EVIL, 60.0, kernels=2, watch=seen.append).measured
    assert (few.measured, few.pool, few.complete) == (2, 3, False)
    assert [m for m in few.measurements if m.round == 0] == [m for m in seen if m.round == 0]
    assert {m.round for m in seen} == {0, 1}  # the leaders of what was measured, again
    at_once = registry.tune(EVIL, 1e-6).measured
    assert (at_once.measured, at_once.best is not None) == (1, True)
    assert registry.tune(EVIL, 60.0).measured.complete


@pytest.mark.parametrize("budget", [(0.0, None), (-1.0, 3), (float("nan"), 3), (float("inf"), 3), (1.0, 0)])
def test_an_invalid_budget_gives_one_line(budget: tuple[float, int | None]) -> None:
    with pytest.raises(TargetError, match="a budget of"):
        Budget(*budget)


def test_tuning_follows_the_model_and_its_result_overrides_the_model(
    cpu_model: Path, make_registry: Callable[..., Registry]
) -> None:
    registry = make_registry(models=cpu_model, kernels="tiny")
    ranked = [pick.kernel for pick in registry.rank(MINE)]
    tuning = registry.tune(MINE, 60.0, kernels=2)
    assert [m.kernel for m in tuning.measured.measurements if m.round == 0] == ranked[:2]
    picks = registry.rank(MINE)
    assert (picks[0].kernel, picks[0].source) == (tuning.pick.kernel, TUNED)
    assert picks[0].predicted_tflops is not None
    assert {pick.source for pick in picks[1:]} == {MODEL}
    assert sorted(p.kernel.name for p in picks) == sorted(k.name for k in ranked)
    assert registry.select(MINE).kernel == tuning.pick.kernel


def test_a_stale_result_is_reported_once_and_the_model_picks(
    cpu_model: Path, make_registry: Callable[..., Registry], caplog: pytest.LogCaptureFixture
) -> None:
    first = make_registry(models=cpu_model)
    best = first.tune(MINE, 60.0, kernels=2).pick.kernel
    entry = next(iter(first.tuned.entries()))
    first.tuned.path.unlink()
    TunedResults("cpu", first.tuned.path.parent).add([replace(entry, source_hash="0" * 64)])
    registry = make_registry(models=cpu_model)
    caplog.clear()
    pick = registry.select(MINE)
    assert (pick.source, pick.note) == (
        MODEL,
        f"the tuned result of {entry.time[:10]} is stale: the kernel's source, headers or flags have changed",
    )
    registry.select(MINE)
    assert caplog.text.count("is stale") == 1
    assert caplog.text.count(f"{MINE.id}: ") == 1
    others = [k for k in registry.candidates(MINE).kernels if k != best]
    TunedResults("cpu", first.tuned.path.parent).add([entry])
    narrowed = make_registry(models=cpu_model, kernels=others)
    assert narrowed.select(MINE).note == f"the tuned kernel {best.name} is not in the pool"


def test_without_a_model_the_least_padding_comes_first_and_pipelines_alternate() -> None:
    pool = kernel_pool("forward", "fp32", 2, "cpu", "default")
    for extent in (1, 16, 100):
        problem = problem_from_id(f"forward-fp32-n1-c48-k{extent}-i10x10-f1x1")
        order = model_free_order(problem, pool)
        assert sorted(k.name for k in order) == sorted(k.name for k in pool)
        pipelines = sorted({kernel.pipeline for kernel in pool})
        assert [kernel.pipeline for kernel in order[: len(pipelines)]] == pipelines

        def covered(kernel: Kernel, extents: tuple[int, ...] = problem.gemm_shape) -> int:
            m, n, k = (-(-extent // tile) * tile for extent, tile in zip(extents, kernel.tile, strict=True))
            return m * n * k

        for pipeline in pipelines:
            of_pipeline = [covered(kernel) for kernel in order if kernel.pipeline == pipeline]
            assert of_pipeline == sorted(of_pipeline)


# ---- records ------------------------------------------------------------------------------------


def test_the_oracles_of_a_run_become_tuned_results(
    make_registry: Callable[..., Registry], evil_builder: Builder, tmp_path: Path
) -> None:
    from tests.measure.own_driver import own_driver

    good, slow = evil_kernel("good"), evil_kernel("slow")
    registry = make_registry(
        target=EvilTarget(evil_builder), kernels=[slow, good], fallback=None, settings=STEADY
    )
    run = open_run(tmp_path, {"a": 1}, stem="s", name="mine", resume=False)
    log = RunLog(run, "w")
    driver = own_driver(registry._machine.supervisor(), [EVIL], [slow, good], log)
    driver.measure(EVIL, good)
    driver.wait()
    log.close()
    records = load_records(run.folder)
    unknown = records.assign(problem=small_problem(N=3).id, N=3, device=None)
    found = entries_of_records(pd.concat([records, unknown], ignore_index=True))
    assert found.left_out == {"whose records do not say device and toolchain": 1}
    registry.tuned.add(found.entries)
    pick = registry.select(EVIL)
    assert (pick.kernel, pick.source) == (good, TUNED)
    assert pick.measured_tflops == records[records["kernel"] == good.name]["tflops"].iloc[-1]
