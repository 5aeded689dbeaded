"""Copies of a measured kernel in records."""

from __future__ import annotations

import pandas as pd

from tile_oracle.record.twins import is_measured, measured_kernels, twin_detail


def test_a_copy_names_the_kernel_that_was_measured() -> None:
    rows = pd.DataFrame(
        {
            "kernel": ["a", "b", "c", "a"],
            "detail": [None, twin_detail("a", ""), twin_detail("a", "slow"), "signal 9"],
        },
        index=[3, 1, 7, 8],
    )
    assert measured_kernels(rows).to_dict() == {3: "a", 1: "a", 7: "a", 8: "a"}
    assert is_measured(rows).to_dict() == {3: True, 1: False, 7: False, 8: True}
    assert measured_kernels(rows[["kernel"]]).tolist() == ["a", "b", "c", "a"]
    assert is_measured(rows[["kernel"]]).all()
    empty = pd.DataFrame({"kernel": pd.Series(dtype=object), "detail": pd.Series(dtype=object)})
    assert measured_kernels(empty).tolist() == is_measured(empty).tolist() == []
