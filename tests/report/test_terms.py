"""The legend of report.html, and where the page points to it."""

from __future__ import annotations

from tests.report.test_html import Page, a_report
from tile_oracle.report.html import report_html
from tile_oracle.report.terms import GENERAL, anchor, terms_of


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


def test_each_operation_explains_its_kernel_names() -> None:
    for op, term in (("grouped_conv", "dsb"), ("gemm", "rcr"), ("attention", "keysN"), ("softmax", "oracle")):
        assert term in terms_of(op)
