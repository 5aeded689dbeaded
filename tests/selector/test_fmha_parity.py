"""Composable Kernel's C++ heuristic of attention against its model of 68 columns without names.

ck_tile_checkout/ is a double of a checkout, with the interface of its headers and code of our own.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pytest

from tests.model.published_folder import QUIET, published
from tile_oracle.cli import main
from tile_oracle.errors import ModelError
from tile_oracle.model.predictor import Predictor

CHECKOUT = Path(__file__).with_name("ck_tile_checkout")
HEADER = Path("dispatcher", "include", "ck_tile", "dispatcher", "fmha_ml_heuristic.hpp")
PROBLEMS = ("attention-bf16-b1-h32-g8-q1-k4096-d128", "attention-bf16-b4-h16-g16-q1024-k1024-d64-causal")
KERNELS = 120


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as it is published: model_tflops.lgbm alone, whose columns are Column_0 to Column_67."""
    folder = tmp_path_factory.mktemp("fmha") / "fmha_fwd_gfx950"
    random = np.random.default_rng(0)
    rows = np.zeros((400, 68))
    rows[:, :12] = random.integers(1, 200, (400, 12))
    labels = np.log1p(rows[:, 7] + rows[:, 8] / rows[:, 9])
    folder.mkdir()
    booster = lgb.train({**QUIET, "num_leaves": 7}, lgb.Dataset(rows, labels), 10)
    booster.save_model(folder / "model_tflops.lgbm")
    return folder


def test_a_folder_of_attention_gets_one_true_line(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"\A[^\n]*has model_tflops.lgbm but no feature_spec.json[^\n]*\Z"):
        Predictor.load(model)
    names = [f"Column_{place}" for place in range(68)]
    booster = lgb.Booster(model_file=model / "model_tflops.lgbm")
    published(tmp_path / "m", booster, names, op_type="fmha_fwd", log_targets=["tflops"], params={})
    said = "its 68 columns have no names in it, and what they mean stands in fmha_ml_heuristic.hpp alone"
    with pytest.raises(
        ModelError, match=rf"\A[^\n]*{said}: `tile-oracle model export MODEL --check --ck-tile DIR`[^\n]*\Z"
    ):
        Predictor.load(tmp_path / "m")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "status", "told"),
    [
        (
            "",
            "",
            0,
            [
                "features  0 of 240 rows differ",
                "scores    0 of 240",
                "picks     0 of 2 differ",
                "header's own",
            ],
        ),
        (
            "data_type = 1;",
            "data_type = 0;",
            1,
            ["LightGBM is told FLOAT32 (data_type 0) of an array of doubles"],
        ),
        (
            "out.resize(68);",
            "out.resize(67);",
            1,
            ["passes 67 features, the model has 68", "refuses 240 rows"],
        ),
        ("logged_ ? std::expm1(score) : score", "score", 1, ["scores    240 of 240 differ"]),
        ("a.first > b.first", "a.first < b.first", 1, ["picks     2 of 2 differ"]),
        (
            "double(one.batch), ",
            "double(one.hdim_v), ",
            1,
            ["feature 0, batch, is 1 in the folder, 128 deployed"],
        ),
        ("std::stable_sort", "std::sort", 1, ["the sort is not stable"]),
    ],
    ids=["faithful", "floats", "missing column", "logarithm", "worst first", "swapped", "unstable"],
)
def test_faults_of_the_header_are_named(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    status: int,
    told: list[str],
) -> None:
    checkout = shutil.copytree(CHECKOUT, tmp_path / "checkout")
    text = (checkout / HEADER).read_text()
    assert text.count(old) == 1 or not old
    (checkout / HEADER).write_text(text.replace(old, new) if old else text)
    assert main(["model", "parity", str(model), *PROBLEMS, "--ck-tile", str(checkout)]) == status
    said = capsys.readouterr().out
    assert f"fmha_ml_heuristic.hpp: {KERNELS} kernels x 2 problems" in said
    for one in told:
        assert one in said


def test_what_is_no_checkout_is_one_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "parity", str(model), "--ck-tile", str(tmp_path)]) == 2
    assert "has no dispatcher/include/ck_tile/dispatcher/fmha_ml_heuristic.hpp" in capsys.readouterr().err
    assert main(["model", "parity", str(tmp_path / "none"), "--ck-tile", str(CHECKOUT)]) == 2
    assert "no model folder at" in capsys.readouterr().err
