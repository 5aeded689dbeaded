"""Which versions of cuDNN are asked for attention."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tile_oracle.device.library.cudnn_pool import offers_for
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
    offers = offers_for(old, AttentionProblem("bf16", 1, 2, 2, queries, 8, 64, 1), 5)
    assert offers.offers == ()
    assert offers.why_none == said
