"""Composable Kernel's C++ heuristic against its model folder: each fault of such headers is found and named.

ck_tile_checkout/ is a double of a checkout, with the interface of its headers and code of our own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pytest

from tests.model.published_folder import QUIET, published
from tests.pools import gemm_pool
from tests.training.test_gemm_training import make_records
from tile_oracle.cli import main
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named

CHECKOUT = Path(__file__).with_name("ck_tile_checkout")
HEADER = Path("dispatcher", "include", "ck_tile", "dispatcher", "ml_heuristic.hpp")
PROBLEMS = ("gemm-bf16-rcr-m16-n512-k1024", "gemm-bf16-rcr-m300-n1000-k1500")
KERNELS = 60

Asked = Callable[..., tuple[int, str]]
"""asked(old, new): the command's status and text against the header with this text replaced."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published folder of 72 columns, with few leaves, so that kernels tie."""
    folder, schema = tmp_path_factory.mktemp("gemm") / "m", schema_named("gemm_universal_72")
    records = make_records(("rcr",))
    label = np.log1p(records["tflops"].to_numpy(dtype=np.float64))
    data = lgb.Dataset(schema.compute(records, hardware_features("gfx950")), label)
    booster = lgb.train({**QUIET, "num_leaves": 7, "min_data_in_leaf": 2}, data, 15)
    spec = {"op_type": "gemm_universal", "log_targets": ["tflops"], "params": {}}
    published(folder, booster, schema.names, **spec)
    kernels = gemm_pool("bf16", "rcr", "gfx950", "default")[::7][:KERNELS]
    (folder.parent / "names.txt").write_text("".join(f"{kernel.name}\n" for kernel in kernels))
    return folder


@pytest.fixture
def asked(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    def ask(old: str = "", new: str = "") -> tuple[int, str]:
        checkout = shutil.copytree(CHECKOUT, tmp_path / "checkout")
        text = (checkout / HEADER).read_text()
        assert text.count(old) == 1 or not old
        (checkout / HEADER).write_text(text.replace(old, new) if old else text)
        names = str(model.parent / "names.txt")
        status = main(
            ["model", "parity", str(model), *PROBLEMS, "--ck-tile", str(checkout), "--kernels", names]
        )
        shown = capsys.readouterr()
        return status, shown.out + shown.err

    return ask


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "failed", "told"),
    [
        ("", "", 0, (
            f"ml_heuristic.hpp: {KERNELS} kernels x 2 problems",
            f"features  0 of {2 * KERNELS} rows differ",
            f"scores    0 of {2 * KERNELS} differ",
            "picks     0 of 2 differ",
            "  picks as the model folder\n",
        )),
        ("data_type = 1;", "data_type = 0;", 1, (
            "LightGBM is told FLOAT32 (data_type 0) of an array of doubles",
            f"features  {2 * KERNELS} of {2 * KERNELS} rows differ",
            "first feature that differs: " + PROBLEMS[0],
        )),
        ("    out.push_back(missing);\n", "", 1, (
            "passes 71 features, the model has 72",
            "feature 59, missing_any_required_padding, is ",
            "LightGBM refuses 120 rows, whose score is then 0 (",
            "all kernels have one score on 2 problems: the pick is whichever is first",
            "DIFFERS from the model folder",
        )),
        ("CompV4) return 1;", "CompV4) return 0;", 1, (
            "feature 22, pipeline, is 1 in the folder, 0 deployed",
        )),
        ("CompV6 ? 6 : 0", "CompV6 ? 5 : 0", 0, (
            "not in this pool, but wrong in others: pipeline compv6 is 6 in the folder, 5 deployed",
        )),
        ("std::stable_sort", "std::sort", 1, ("first order that differs: ", "the sort is not stable")),
    ],
    ids=["faithful", "floats", "missing column", "swapped codes", "codes of other pools", "unstable"],
)  # fmt: skip
def test_a_faithful_header_passes_and_faults_are_named(
    asked: Asked, old: str, new: str, failed: int, told: tuple[str, ...]
) -> None:
    status, said = asked(old, new)
    assert status == failed, said
    for one in told:
        assert one in said


@pytest.mark.slow
def test_what_does_not_compile_or_run_is_one_line(asked: Asked, model: Path, tmp_path: Path) -> None:
    status, said = asked("const int data_type = 1;", "const int data_type = one;")
    assert status == 2
    assert "does not compile: " in said
    assert "undeclared identifier 'one'" in said or "'one' was not declared" in said


def test_what_is_no_checkout_and_other_models_are_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, message in (
        ([str(model), "--ck-tile", str(tmp_path), "--kernel-set", "tiny"], "give a checkout of Composable"),
        (["grouped_conv_forward_bf16_gfx950", "--ck-tile", str(CHECKOUT)], "picks GEMM kernels, not grouped"),
    ):
        assert main(["model", "parity", *words]) == 2
        assert message in capsys.readouterr().err
