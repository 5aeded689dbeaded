"""Which versions of cuDNN are asked for attention."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.library.cudnn_pool import graph_of
from tile_oracle.operations.attention.problem import AttentionProblem


@pytest.mark.parametrize(
    ("version", "queries", "said"),
    [
        ("9.19.0", 8, "cuDNN 9.19.0 has no attention with a causal mask in one operation: 9.21 has"),
        ("9.12.1", 1, "cuDNN 9.12.1 has no attention in one operation: 9.13 has"),
    ],
)
def test_an_older_version_is_refused_with_the_reason(version: str, queries: int, said: str) -> None:
    old: Any = SimpleNamespace(version=version)
    with pytest.raises(Unlaunchable, match=re.escape(said)):
        graph_of(old, AttentionProblem("bf16", 1, 2, 2, queries, 8, 64, 1))
