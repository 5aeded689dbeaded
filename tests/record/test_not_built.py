"""Finding the kernels that a library's checkout does not build, from records."""

from __future__ import annotations

import pandas as pd

from tile_oracle.record.not_built import not_built

ROWS = [
    ("no_code", "unsupported", "ck_tile: it has no GemmPipelineAgBgCrCompV5", "ck_tile"),
    ("no_code", "unsupported", "ck_tile: it has no GemmPipelineAgBgCrCompV5", "ck_tile"),
    ("does_not_compile", "build_error", "static assertion failed", "ck_tile"),
    ("refuses_one_problem", "unsupported", "CK Tile's IsSupportedArgument says no", "ck_tile"),
    ("refuses_one_problem", "ok", "", "ck_tile"),
    ("compiled_once", "build_error", "out of time", "ck_tile"),
    ("compiled_once", "ok", None, "ck_tile"),
    ("own", "build_error", "", "native"),
    ("own_of_old", "unsupported", "ck_tile: ", None),
]


def test_only_kernels_without_code_in_a_library_are_not_built() -> None:
    records = pd.DataFrame(ROWS, columns=["kernel", "status", "detail", "implementation"])
    assert not_built(records) == {"no_code", "does_not_compile"}
    assert not_built(records[records["implementation"] == "native"]) == frozenset()
    assert not_built(records.drop(columns=["implementation"])) == frozenset()
