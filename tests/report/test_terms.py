"""The legend of report.html, and where the page points to it."""

from __future__ import annotations

import re

import pytest

from tests.report.test_html import Page, a_report
from tile_oracle.report.html import report_html
from tile_oracle.report.terms import GENERAL, anchor, terms_of, word_patterns


def test_every_explained_text_has_its_entry() -> None:
    page = Page(report_html(a_report(3)))
    described = [value for _, name, value in page.attributes if name == "aria-describedby"]
    assert {"term-efficiency", "term-rank", "term-time-lost"} <= set(described)
    assert set(described) <= set(page.ids)
    for term in (
        "dsb",
        "gmN",
        "LDS",
        "VGPR",
        "AGPR",
        "shared memory",
        "warp",
        "SM, streaming multiprocessor",
    ):
        assert term in page.words


def test_anchors_are_distinct_and_other_texts_have_none() -> None:
    anchors = [anchor(term) for term in GENERAL]
    assert len(set(anchors)) == len(anchors)
    assert all(name.startswith("term-") for name in anchors)
    assert anchor("problem") == ""


@pytest.mark.parametrize(
    ("op", "word", "meaning"),
    [
        ("grouped_conv", "gm8", "a workgroup computes N groups as one GEMM"),
        ("grouped_conv", "dsb", "double buffer"),
        ("grouped_conv", "64x128x64", "a workgroup's tile"),
        ("grouped_conv", "w2x2x1", "waves along each axis"),
        ("grouped_conv", "pad110", "partial tiles"),
        ("gemm", "compv3", "pipelines"),
        ("gemm", "True", "partial tiles"),
    ],
)
def test_the_words_of_a_kernel_s_name_are_found(op: str, word: str, meaning: str) -> None:
    found = [text for pattern, text in word_patterns(op) if re.fullmatch(pattern, word)]
    assert len(found) == 1
    assert meaning in found[0]


@pytest.mark.parametrize("word", ["gm", "xgm8", "64x64", "v1", "drue"])
def test_other_words_are_not_explained(word: str) -> None:
    patterns = [pattern for op in ("grouped_conv", "gemm") for pattern, _ in word_patterns(op)]
    assert not any(re.fullmatch(pattern, word) for pattern in patterns)


@pytest.mark.parametrize(
    ("op", "term"),
    [("grouped_conv", "dsb"), ("gemm", "rcr"), ("attention", "keysN"), ("softmax", "oracle")],
)
def test_each_operation_explains_its_kernel_names(op: str, term: str) -> None:
    assert term in terms_of(op)
