"""Kernels by name, such as cuDNN's engines, are learnt from where their operation has features for them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.errors import ModelError
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.hardware import hardware_features
from tile_oracle.kernel import NamedKernel
from tile_oracle.operation import operation_named
from tile_oracle.problem import problem_from_id
from tile_oracle.training import training_rows as module
from tile_oracle.training.training_rows import training_rows


def records_with_a_library() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two rows of a library, alone and with others of native kernels."""
    records = make_records(make_problems(2), make_kernels())
    library = records.assign(kernel="grouped_conv_forward_bf16_2d_cudnn.e1.stages=2").head(2)
    return library, pd.concat([records.iloc[2:], library], ignore_index=True)


def test_kernels_by_name_are_learnt_from() -> None:
    _, records = records_with_a_library()
    rows = training_rows(records)
    assert len(rows) == len(records) - 1, "both rows of the library are of one pair"
    assert rows.left_out == {}


def test_only_kernels_with_features_are_learnt_from(monkeypatch: pytest.MonkeyPatch) -> None:
    library, records = records_with_a_library()
    without = replace(operation_named("grouped_conv").for_models, pool=None)
    monkeypatch.setattr(module, "operation_named", lambda name: SimpleNamespace(for_models=without))
    rows = training_rows(records)
    assert rows.left_out == {"of kernels that have no features (Triton, libraries)": 2}
    with pytest.raises(ModelError, match="2 of kernels that have no features"):
        training_rows(library)


@pytest.mark.parametrize(
    "problem",
    [
        "forward-bf16-n2-c64-k96-i14x14-f3x3-p1",
        "bwd_weight-fp16-n1-g4-c64-k64-i9x9-f1x1",
        "gemm-bf16-rcr-m33-n512-k96",
        "attention-bf16-b2-h4-g2-q1-k512-d64",
        "softmax-bf16-r100-c1000",
        "rms_norm-fp32-r7-c96",
    ],
)
def test_every_operation_of_the_package_has_features_of_kernels_by_name(problem: str) -> None:
    """Finite ones; a larger tile makes fewer tiles, and the code of the function tells functions apart."""
    one = problem_from_id(problem)
    schema = operation_named(one.op).for_models.pool
    configurations = [
        ("a", (("BLOCK_M", 16), ("BLOCK_N", 32), ("num_warps", 4))),
        ("a", (("BLOCK_M", 32), ("BLOCK_N", 32), ("num_warps", 4))),
        ("b", (("BLOCK_M", 16), ("BLOCK_N", 32), ("num_warps", 4))),
    ]
    kernels = [NamedKernel(one.kind, "triton", *values) for values in configurations]
    values = schema.compute(pair_columns([one], kernels), hardware_features("sm_90"))
    assert values.shape == (3, len(schema.names))
    assert np.isfinite(values).all()
    tiles = values[:, schema.names.index("log2_tiles")]
    assert tiles[0] >= tiles[1]
    codes = values[:, schema.names.index("kernel_function")]
    assert codes[0] == codes[1] != codes[2]
