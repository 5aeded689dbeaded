"""The shipped model of attention on an H200, and the published figures."""

from __future__ import annotations

import numpy as np
import pytest

from tests.training.shipped_models import accepted_percent, shipped
from tile_oracle.kernel.named import parse_named_kernel, source_of
from tile_oracle.libraries.libraries import is_library_name
from tile_oracle.model.fitting_model import models_for
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.store import kernels_trained_on

FOLDER = shipped("attention_fwd_bf16_sm_90")
SET = "attention_validation"


def test_it_is_found_for_its_kernels() -> None:
    names = [one for one in kernels_trained_on(FOLDER) if source_of(one) and not is_library_name(one)]
    for kind in {parse_named_kernel(one).kind for one in names}:
        of_kind = [one for one in map(parse_named_kernel, names) if one.kind == kind]
        assert models_for(kind, "sm_90", kernels=of_kind).folder == FOLDER
    assert read_spec(FOLDER).ranks_named


def test_the_figures_of_the_documentation() -> None:
    covered = accepted_percent(FOLDER, SET)
    assert len(covered) == 76
    assert np.mean(covered) == pytest.approx(99.23, abs=0.006)
    assert np.percentile(covered, 10) == pytest.approx(99.18, abs=0.006)
