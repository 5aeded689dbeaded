"""Names of problems for people, in the report's page."""

from __future__ import annotations

import pytest

from tile_oracle.problem import problem_from_id
from tile_oracle.report.wording import titles


@pytest.mark.parametrize(
    ("problem", "title"),
    [
        ("forward-bf16-n4-c192-k388-i512x512-f1x1", "1x1, 192 to 388, 512 x 512, n4"),
        ("forward-bf16-n1-c64-k64-i56x56-f3x3-p1", "3x3, 64 to 64, 56 x 56, n1"),
        ("forward-bf16-n1-c64-k64-i56x56-f3x3", "3x3, 64 to 64, 56 x 56, n1, pad 0"),
        (
            "bwd_data-bf16-n1-g2-c64-k64-i56x57-f5x3-s2x1-p2x1",
            "5x3, 64 to 64, 56 x 57, n1, stride 2x1, 2 groups",
        ),
        ("forward-fp16-n1-c64-k64-i8x8x8-f3x3x3-p2-d2", "3x3x3, 64 to 64, 8 x 8 x 8, n1, dilation 2"),
        ("gemm-bf16-rcr-m1-n4096-k512-s4", "1 x 4,096 x 512, rcr, split_k 4"),
        (
            "attention-bf16-b2-h32-g8-q4096-k8192-d128-causal",
            "4,096 queries, 8,192 keys, 32 heads of 128 (8 of K, V), n2, causal",
        ),
        ("softmax-bf16-r4096-c128", "4,096 rows of 128"),
    ],
)
def test_a_problem_has_its_size_in_words(problem: str, title: str) -> None:
    assert problem_from_id(problem).title == title
    assert titles([problem]) == [title]


def test_problems_of_several_data_types_name_them() -> None:
    assert titles(["softmax-bf16-r64-c128", "softmax-fp16-r64-c128"]) == [
        "64 rows of 128, bf16",
        "64 rows of 128, fp16",
    ]
