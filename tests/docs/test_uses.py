"""docs/support.md: what works for which operation and source, found by doing it (tests.docs.uses)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pandas as pd
import pytest

from tests.docs.uses import (
    AFTER,
    CK_TILE,
    FROM_RECORDS,
    LIBRARY,
    NATIVE,
    ON_DEVICE,
    OPERATIONS,
    SOURCES,
    TRITON,
    WORKS,
)
from tests.processes import run_python

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "support.md"
USES = (
    *("session", "`-n 2`", "fleet", "resume", "replay", "gate", "report's drill-down", "twins", "evaluate"),
    *("train", "adapt", "cold start (`tune`)", "suggest", "search", "portfolio", "`pick --predictions`"),
    *("pick", "export to C++", "native pick", "compare", "history", "drift (`--diff`)"),
    *("kit (prebuilt)", "verify"),
)
COLUMNS = {
    NATIVE: OPERATIONS,
    CK_TILE: ("grouped_conv", "gemm"),
    TRITON: ("grouped_conv", "gemm", "attention", "softmax"),
    LIBRARY: ("grouped_conv", "gemm", "attention"),
}
"""Source -> the operations that it has kernels for."""

CONV, GEMM, ATTENTION, SOFTMAX, OWN = OPERATIONS
SHOWN = {
    ("fleet", NATIVE, CONV): "tests/fleet/test_local_sessions.py::test_a_fleet_session_is_like_any_other",
    ("twins", NATIVE, CONV): "tests/measure/test_twins.py::",
    ("verify", NATIVE, CONV): "tests/verify/test_kernels.py::test_kernels_are_proven_to_wait",
    ("verify", NATIVE, GEMM): "tests/verify/test_kernels.py::test_kernels_are_proven_to_wait",
    ("verify", CK_TILE, CONV): "tests/ck_tile/test_waits.py::test_what_is_found_in_comp_async",
    ("verify", CK_TILE, GEMM): "tests/ck_tile/test_waits.py::test_what_is_found_in_comp_async",
    ("verify", TRITON, GEMM): "tests/verify/test_triton.py::test_each_barrier_and_each_wait",
    ("kit (prebuilt)", TRITON, GEMM): "tests/compiling/triton/test_building.py::test_a_folder_runs_where",
    ("drift (`--diff`)", TRITON, GEMM): "tests/compiling/test_prebuilt_folder.py::test_comments_of_ptx_do",
    ("session", TRITON, GEMM): "models/gemm_bf16_sm_90/nvidia-h200-84ff98ac/gemm_validation_286",
    ("session", TRITON, ATTENTION): "models/attention_fwd_bf16_sm_90/nvidia-h200-84ff98ac",
    ("session", LIBRARY, CONV): "tests/libraries/test_cudnn_sessions.py::test_a_session_measures",
    ("session", LIBRARY, GEMM): "tests/libraries/test_cublaslt_sessions.py::test_a_session_measures",
    ("session", LIBRARY, ATTENTION): "tests/libraries/test_cudnn_sessions.py::test_attention_is_one",
    ("`-n 2`", LIBRARY, GEMM): "tests/libraries/test_cublaslt_sessions.py::test_every_layout_is_right",
    ("resume", LIBRARY, GEMM): "tests/libraries/test_mixed_sources.py::test_native_triton_and_a_library",
}
"""Cell -> the test, or the records of a GPU, that show it where this file cannot."""

NOT_SHOWN = "not shown"
"""The cell of a use that needs a GPU, and that no test and no shipped record shows."""

REASONS: dict[tuple[str, str, str], str] = {}
"""Cell -> why it does not work."""


def reason(use: str, source: str, ops: tuple[str, ...], text: str) -> None:
    REASONS.update({(use, source, op): text for op in ops})


reason("verify", NATIVE, (ATTENTION, SOFTMAX, OWN), "no: code of a CPU has no waits")
reason("verify", LIBRARY, OPERATIONS, "no: a library has no assembly")
reason("twins", LIBRARY, OPERATIONS, "no: an algorithm has no binary of its own")
reason("kit (prebuilt)", LIBRARY, OPERATIONS, "no: nothing is compiled")
reason("drift (`--diff`)", LIBRARY, OPERATIONS, "no: nothing is compiled; records have its version")
reason("search", TRITON, OPERATIONS, "no: its file lists the configurations")
reason("search", LIBRARY, OPERATIONS, "no: the library lists its algorithms")
reason("search", NATIVE, (ATTENTION, SOFTMAX), "no: 3 or 4 kernels in all")
reason("search", NATIVE, (OWN,), "no: its descriptor declares none")
reason("portfolio", LIBRARY, OPERATIONS, "no: only the library says what a problem has")
reason("cold start (`tune`)", LIBRARY, OPERATIONS, "not yet: `tune` takes no library")


def expected(use: str, source: str, op: str) -> str:
    """The cell, before this file does what it can do."""
    cell = (use, source, op)
    if cell in REASONS:
        return REASONS[cell]
    done = {**FROM_RECORDS, **(ON_DEVICE | AFTER if source == NATIVE else {})}
    return WORKS if use in done or cell in SHOWN else NOT_SHOWN


def table(source: str) -> str:
    """The table of a source, as the page has it: uses with the same cells share a row."""
    ops = COLUMNS[source]
    uses: dict[tuple[str, ...], list[str]] = {}
    for use in USES:
        uses.setdefault(tuple(expected(use, source, op) for op in ops), []).append(use)
    names = {OWN: "one of another package"}
    head = f"| {source} | " + " | ".join(names.get(op, f"`{op}`") for op in ops) + " |"
    rows = [f"| {', '.join(same)} | {' | '.join(cells)} |" for cells, same in uses.items()]
    return "\n".join([head, "|" + "---|" * (len(ops) + 1), *rows])


@pytest.mark.parametrize("source", SOURCES)
def test_the_page_has_the_table(source: str) -> None:
    assert table(source) in PAGE.read_text(), f"write this:\n{table(source)}"


def test_what_shows_a_cell_is_there() -> None:
    for cell, where in SHOWN.items():
        path, _, test = where.partition("::")
        assert (ROOT / path).exists(), cell
        if test:
            assert f"def {test}" in (ROOT / path).read_text(), cell
        elif path.startswith("models/"):
            (records, *_) = (ROOT / path).rglob("*.parquet")
            assert "triton" in set(pd.read_parquet(records, columns=["implementation"])["implementation"])
        assert cell not in REASONS


def done(op: str, source: str, folder: Path, *uses: str) -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "tests" / "third_operation")]
    words = ("-m", "tests.docs.uses", op, source, str(folder), *uses)
    finished = run_python(*words, cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)})
    assert finished.returncode == 0, finished.stderr[-2000:]
    found: dict[str, str] = json.loads(finished.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("source", "op"), [(source, op) for source, ops in COLUMNS.items() for op in ops])
def test_each_cell_is_what_comes_of_doing_it(source: str, op: str, tmp_path: Path) -> None:
    """A cell that fails has a reason; one with a reason fails, so that a mended one is seen."""
    found = done(op, source, tmp_path)
    for use, cell in found.items():
        said = expected(use, source, op)
        assert (cell == WORKS) == (said == WORKS), f"{use}: {cell}, but the page says {said}"
    assert len(found) >= len(FROM_RECORDS)


def test_a_few_uses_of_kernels_in_triton(tmp_path: Path) -> None:
    uses = ("train", "evaluate", "`pick --predictions`", "pick", "portfolio")
    assert done(ATTENTION, TRITON, tmp_path, *uses) == dict.fromkeys(uses, WORKS)
