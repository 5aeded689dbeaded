"""Records of kernels that an operation has no features for, such as cuDNN's engines, are not trained on."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.errors import ModelError
from tile_oracle.training.training_rows import training_rows


def test_only_kernels_with_features_are_learnt_from() -> None:
    records = make_records(make_problems(2), make_kernels())
    library = records.assign(kernel="grouped_conv_forward_bf16_2d_cudnn.e1.stages=2").head(2)
    rows = training_rows(pd.concat([records.iloc[2:], library], ignore_index=True))
    assert len(rows) == len(records) - 2
    assert rows.left_out == {"of kernels that have no features (Triton, libraries)": 2}
    with pytest.raises(ModelError, match="2 of kernels that have no features"):
        training_rows(library)
