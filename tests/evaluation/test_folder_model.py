"""Native code and LightGBM predict the same for a model folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.processes import run_python
from tile_oracle.evaluation import folder_model
from tile_oracle.evaluation.folder_model import WORTH_COMPILING, FolderModel, pool_of
from tile_oracle.features.code_table import CodeTable
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import shipped_models
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import problem_from_id
from tile_oracle.selector.ranker import NativeRanker

FOLDER = shipped_models() / "grouped_conv_forward_bf16_gfx950"
PROBLEMS = [
    problem_from_id(f"forward-bf16-n{n}-c64-k{k}-i14x14-f3x3-p1") for n, k in ((1, 64), (8, 256), (16, 32))
]
GEMM_FOLDER = shipped_models() / "gemm_bf16_sm_90"
GEMMS = [problem_from_id(f"gemm-bf16-rcr-m{m}-n64-k64") for m in (16, 64, 5043)]


def predicted(pairs: int, kernels: Sequence[Kernel], folder: Path = FOLDER) -> list[float]:
    ranked, _ = FolderModel(folder, pairs).rank(PROBLEMS if folder == FOLDER else GEMMS, pool_of(kernels))
    return ranked["predicted_tflops"].tolist()


def test_native_predictions_are_those_of_lightgbm(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = pool_of_kind(PROBLEMS[0].kind, "gfx950", "tiny")
    expected = Predictor.load(FOLDER).predict(PROBLEMS, kernels)
    monkeypatch.setattr(Predictor, "predict", None)
    assert predicted(WORTH_COMPILING, kernels) == expected.ravel().tolist()


def test_few_pairs_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = pool_of_kind(PROBLEMS[0].kind, "gfx950", "tiny")
    monkeypatch.setattr(folder_model.native_library, "is_compiled", lambda: False)
    monkeypatch.setattr(folder_model.NativeRanker, "load", None)
    expected = Predictor.load(FOLDER).predict(PROBLEMS, kernels)
    assert predicted(WORTH_COMPILING - 1, kernels) == expected.ravel().tolist()


def test_a_machine_without_a_compiler_predicts_with_lightgbm(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler() -> None:
        raise folder_model.BuildError("no C++ compiler was found")

    monkeypatch.setattr("tile_oracle.selector.ranker.native_library.load", no_compiler)
    kernels = pool_of_kind(PROBLEMS[0].kind, "gfx950", "tiny")
    expected = Predictor.load(FOLDER).predict(PROBLEMS, kernels)
    assert predicted(WORTH_COMPILING, kernels) == expected.ravel().tolist()


def test_kernels_by_name_are_read_once_for_all_problems_and_ranked_among_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A library offers other kernels for each problem: the level of a problem's scores is that of its own
    pool. A later problem with kernels that were not read is no reason to read the model again."""
    kernels = pool_of_kind(GEMMS[0].kind, "sm_90", "tiny")
    pools = {problem: kernels[place:-1] for place, problem in enumerate(GEMMS)}
    predictor = Predictor.load(GEMM_FOLDER)
    expected = np.concatenate(predictor.predict_each(GEMMS, list(pools.values())))
    load, loaded = folder_model.NativeRanker.load, list[int]()
    folder_model.native_library.load()

    def counted(folder: Path, read: Sequence[Kernel], code: CodeTable) -> NativeRanker:
        loaded.append(len(read))
        return load(folder, read, code)

    monkeypatch.setattr(folder_model.NativeRanker, "load", counted)
    model = FolderModel(GEMM_FOLDER, 1)
    for _ in range(2):
        with monkeypatch.context() as only_native:
            only_native.setattr(Predictor, "predict_each", None)
            ranked, _ = model.rank(GEMMS, pools.__getitem__)
        assert ranked["predicted_tflops"].to_numpy() == pytest.approx(expected, rel=5e-5)
    further = kernels[-1:]
    ranked, _ = model.rank(GEMMS[:1], lambda _: further)
    assert ranked["predicted_tflops"].tolist() == predictor.predict(GEMMS[0], further).tolist()
    assert loaded == [len(kernels) - 1]


def test_predictions_of_own_pools_are_those_of_one_problem_after_the_other() -> None:
    """Also where some pools have kernels of libraries only, and one is empty."""
    predictor = Predictor.load(shipped_models() / "gemm_bf16_sm_90")
    sizes = ("m64-n64-k64", "m5043-n144-k3800", "m10-n350-k486", "m128-n256-k512", "m77-n8-k16")
    problems = [problem_from_id(f"gemm-bf16-rcr-{size}") for size in sizes]
    native = pool_of_kind(problems[0].kind, "sm_90", "tiny")
    library = [
        parse_kernel_name(name)
        for name in (
            "gemm_bf16_rcr_cublaslt.a66.cluster=8.custom=2.stages=35.tile=93",
            "gemm_bf16_rcr_cublaslt.a23.cluster=4.stages=19.tile=5",
        )
    ]
    pools = [[*native, *library], library, native[:3], [], [library[1], *native[2:5]]]
    found = predictor.predict_each(problems, pools)
    assert [len(one) for one in found] == [len(pool) for pool in pools]
    for problem, pool, predicted in zip(problems, pools, found, strict=True):
        assert np.array_equal(predicted, predictor.predict(problem, pool))


def test_without_native_code_lightgbm_scores_features_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_model.native_library, "is_compiled", lambda: False)
    kernels = pool_of_kind(GEMMS[0].kind, "sm_90", "tiny")
    expected = Predictor.load(GEMM_FOLDER).predict(GEMMS, kernels)
    assert predicted(1, kernels, GEMM_FOLDER) == expected.ravel().tolist()


def test_a_library_that_is_loaded_is_compiled() -> None:
    folder_model.native_library.load()
    assert folder_model.native_library.is_compiled()


@pytest.mark.parametrize("name", ["grouped_conv_forward_bf16_gfx950", "grouped_conv_forward_bf16_sm_90"])
def test_whether_predictions_only_order_kernels_is_known_without_the_trees(name: str) -> None:
    folder = shipped_models() / name
    expected = Predictor.load(folder).ranker.orders_only
    assert FolderModel(folder).orders_only == expected


def test_native_predictions_import_neither_lightgbm_nor_scipy() -> None:
    """Both together take half a second of a replay."""
    folder_model.native_library.load()
    program = f"""
import sys
from pathlib import Path
from tile_oracle.evaluation.folder_model import FolderModel, pool_of
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import problem_from_id
from tile_oracle.selector.ranker import NativeRanker
problem = problem_from_id({PROBLEMS[0].id!r})
model = FolderModel(Path({str(FOLDER)!r}), 1)
kernels = pool_of_kind(problem.kind, "gfx950", "tiny")
table, origin = model.rank([problem], pool_of(kernels))
assert len(table) == len(kernels)
assert not origin.order_only and not model.ranks_named
print(*{{"lightgbm", "scipy"}} & sys.modules.keys())
"""
    done = run_python("-c", program)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
