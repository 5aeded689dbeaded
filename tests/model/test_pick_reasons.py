"""Why a model prefers its pick: the shares of the features sum to the difference of the predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.samples import slow
from tile_oracle.features.columns import field_columns
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.feature_share import PickReason
from tile_oracle.model.pick_reasons import CAUTION, PHYSICAL, pick_reasons
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.ranker import Ranker
from tile_oracle.model.store import shipped_models
from tile_oracle.problem import problem_from_id

PROBLEMS = ("forward-bf16-n8-c64-k256-i56x56-f3x3-p1", "forward-bf16-n1-c256-k64-i14x14-f1x1")
PREFIX = "grouped_conv_forward_bf16_2d_"
PICKS = ("128x128x64_compv3_intrawave", "64x64x64_compv4_intrawave_dsb")
OTHERS = ("16x64x64_compv3_interwave", "64x128x64_compv3_intrawave")


def columns(kernels: tuple[str, ...]) -> dict[str, Any]:
    names = [PREFIX + name for name in kernels]
    return {
        **field_columns([parse_kernel_name(name) for name in names]),
        "kernel": np.array(names, dtype=object),
        **field_columns([problem_from_id(name) for name in PROBLEMS]),
    }


def loaded(model: str) -> Ranker:
    """A shipped model."""
    return Predictor.load(shipped_models() / model).ranker


@pytest.mark.parametrize(
    "model", ["grouped_conv_forward_bf16_gfx950", *slow("grouped_conv_forward_bf16_sm_90")]
)
def test_shares_sum_to_the_difference_of_the_predictions(model: str) -> None:
    ranker = loaded(model)
    picks, others = columns(PICKS), columns(OTHERS)
    both = {name: np.concatenate([picks[name], others[name]]) for name in picks}
    scores = ranker.log_time(both, np.array([0, 1, 0, 1]))
    reasons = pick_reasons(ranker, picks, others, most=10**6)
    for row, reason in enumerate(reasons):
        difference = scores[2 + row] - scores[row]
        assert abs(difference) > 1e-3
        assert reason.advantage == pytest.approx(difference, abs=1e-6)
        assert sum(one.advantage for one in reason.features) == pytest.approx(difference, abs=1e-6)


def test_leading_features_come_first_with_their_values() -> None:
    ranker = loaded("grouped_conv_forward_bf16_gfx950")
    (first, _) = pick_reasons(ranker, columns(PICKS), columns(OTHERS), most=4)
    assert len(first.features) <= 4
    shares = [abs(one.advantage) for one in first.features]
    assert shares == sorted(shares, reverse=True)
    physical = next(one for one in first.features if one.name == PHYSICAL)
    assert (physical.pick, physical.other) == (None, None)
    others = [one for one in first.features if one.name not in (PHYSICAL, CAUTION)]
    assert all(one.pick is not None and one.other is not None for one in others)


def test_a_kernel_has_no_advantage_over_itself() -> None:
    ranker = loaded("grouped_conv_forward_bf16_gfx950")
    for reason in pick_reasons(ranker, columns(PICKS), columns(PICKS)):
        assert reason == PickReason(0.0, ())
