"""The shipped CPU model: where it is found, and the published figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.shipped_models import recorded, selection_of, shipped
from tile_oracle.files.data_files import data_folder
from tile_oracle.judge.selection import summarise
from tile_oracle.model.fitting_model import models_for
from tile_oracle.model.store import model_places
from tile_oracle.problem import Kind

FOLDER = shipped("grouped_conv_forward_bf16_cpu")
(ORACLE,) = FOLDER.glob("*/forward_unseen_300/tiny.parquet")


def test_the_model_is_found_for_its_cpu_only() -> None:
    kind = Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2)
    assert models_for(kind, "cpu", device="AMD EPYC, family 26, model 2").folder == FOLDER
    assert models_for(kind, "cpu", device="AMD EPYC, family 25, model 1").folder is None


def test_live_sessions_use_cpu_models_from_the_user_folder_only() -> None:
    own, shipped = Path("mine"), data_folder("models")
    assert model_places(own, "cpu") == (own,)
    assert model_places(own, "cpu", replayed=True) == (own, shipped)
    assert model_places(own, "gfx950") == (own, shipped)
    assert model_places(None, "sm_90") == (shipped,)


def test_the_oracle_matches_the_documentation() -> None:
    efficiency = summarise(selection_of(FOLDER, recorded(ORACLE)))
    assert efficiency.covered == 300
    assert efficiency.mean_percent == pytest.approx(98.42, abs=0.005)
    assert efficiency.median_percent == 100.0
    assert efficiency.p10_percent == pytest.approx(96.29, abs=0.005)
