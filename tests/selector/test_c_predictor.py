"""C that was generated from a LightGBM model is compared with it at the thresholds of its trees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest

from tile_oracle.cli import main
from tile_oracle.model.model_text import read_model_text
from tile_oracle.selector.c_predictor import rows_at_thresholds

WIDTH = 5
SYMBOL = "rocke_score_fmha_bf16_gfx950_tflops"


def in_c(node: dict[str, Any], less: str, digits: int) -> str:
    """The expression of a tree: as a converter writes it, in our own words."""
    if "leaf_value" in node:
        return f"({node['leaf_value']:.{digits}g})"
    left, right = (in_c(node[side], less, digits) for side in ("left_child", "right_child"))
    value = f"f[{node['split_feature']}]"
    if node["decision_type"] == "==":
        members = " || ".join(f"{value} == {one}" for one in node["threshold"].split("||"))
        return f"(({members}) ? {left} : {right})"
    return f"(({value} {less} {node['threshold']:.17g}) ? {left} : {right})"


def written(
    folder: Path, booster: lgb.Booster, less: str = "<=", digits: int = 17, count: int = WIDTH
) -> Path:
    """The C file and its header."""
    trees = booster.dump_model()["tree_info"]
    total = "".join(f"  sum += {in_c(tree['tree_structure'], less, digits)};\n" for tree in trees)
    (folder / "predictor.h").write_text(
        f"#define ROCKE_NUM_FEATURES {count}\ndouble {SYMBOL}(const double* f);\n"
    )
    (folder / "predictor.c").write_text(
        '#include "predictor.h"\n_Static_assert(ROCKE_NUM_FEATURES > 0, "features");\n'
        f"double {SYMBOL}(const double* f) {{\n  double sum = 0;\n{total}  return sum;\n}}\n"
    )
    return folder / "predictor.c"


def trained(categorical: bool = False, objective: str = "regression") -> lgb.Booster:
    random = np.random.default_rng(0)
    rows = random.integers(0, 9, (600, WIDTH)).astype(float)
    label = rows[:, 0] * rows[:, 1] + 3 * (rows[:, 2] % 2) if objective == "regression" else rows[:, 2] % 4
    group = None if objective == "regression" else [20] * 30
    names = ["M", "N", "solver_name", "gfx_id", "K"]
    data = lgb.Dataset(
        rows,
        label,
        group=group,
        feature_name=names,
        categorical_feature=["solver_name"] if categorical else "auto",
    )
    quiet = {"num_threads": 1, "verbosity": -1, "deterministic": True, "min_data_per_group": 5}
    return lgb.train({**quiet, "objective": objective}, data, 8)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "fmha"
    folder.mkdir()
    trained().save_model(folder / "model_tflops.lgbm")
    return folder


def test_a_faithful_predictor_passes_and_another_number_of_features_is_named(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, trained())
    assert main(["model", "parity", str(model), "--c-predictor", str(file)]) == 0
    assert f"{file} ({SYMBOL}): 4,096 rows at thresholds" in capsys.readouterr().out
    file = written(tmp_path, trained(), count=WIDTH + 1)
    assert main(["model", "parity", str(model), "--c-predictor", str(file)]) == 1
    assert "NUM_FEATURES is 6, the model has 5 features" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("fault", [{"less": "<"}, {"digits": 4}])
def test_a_wrong_comparison_and_rounded_leaves_are_found(
    model: Path, tmp_path: Path, fault: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, trained(), **fault)
    assert main(["model", "parity", str(model), "--c-predictor", str(file), "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert found["scores"] > 100
    assert " by LightGBM, " in found["firsts"]["score"]
    assert "M=" in found["firsts"]["score"]


@pytest.mark.slow
def test_sets_of_categories_and_rankers_of_miopen_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    booster = trained(categorical=True, objective="lambdarank")
    file = tmp_path / "lgbm_rank_model.txt"
    booster.save_model(file)
    assert main(["model", "parity", str(file)]) == 2
    said = capsys.readouterr().err
    assert "only its trees can be compared: name a generated --c-predictor" in said
    assert main(["model", "parity", str(file), "--c-predictor", str(written(tmp_path, booster))]) == 0


def test_what_is_no_model_or_predictor_is_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ranks.bin").write_bytes(b"MIORANK1\0\0")
    (tmp_path / "empty.c").write_text("int nothing(void) { return 0; }\n")
    for words, message in (
        ([str(tmp_path / "ranks.bin")], "is MIOpen's binary form MIORANK1: give the LightGBM text"),
        ([str(model), "--c-predictor", str(tmp_path / "empty.c")], "is expected, not none"),
        ([str(model), "--c-predictor", str(tmp_path / "absent.c")], "cannot read"),
    ):
        assert main(["model", "parity", *words]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_what_does_not_compile_is_one_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.c").write_text(f"double {SYMBOL}(const double* f) {{ return g; }}\n")
    assert main(["model", "parity", str(model), "--c-predictor", str(tmp_path / "broken.c")]) == 2
    assert "broken.c does not compile: " in capsys.readouterr().err


def test_rows_lie_at_the_thresholds() -> None:
    read = read_model_text(trained().model_to_string(num_iteration=-1))
    rows = rows_at_thresholds(read)
    thresholds = np.unique(
        np.asarray(read.columns["threshold"])[np.asarray(read.columns["split_feature"]) == 0]
    )
    assert set(thresholds) <= set(rows[:, 0])
    assert (np.abs(rows[:, 0, None] - thresholds).min(axis=1) < 1e-9).all()
