"""Records of GEMMs: schema, reading, oracle and selection, also together with those of convolutions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.pools import gemm_pool
from tile_oracle.errors import RecordError
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.selection import fixed_kernels, select, summarise
from tile_oracle.measure.measurement import Measurement
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.record.dataset import load_records
from tile_oracle.record.final import final_measurements, key_columns, problem_table, problems_of
from tile_oracle.record.journal import write_part
from tile_oracle.record.schema import arrow_schema, columns, kernel_columns, problem_columns
from tile_oracle.report.data import RunInfo, analyse

PROBLEMS = [GemmProblem("bf16", layout, m, 64, 64) for layout in ("rcr", "rrr") for m in (1, 200)]


def kernels(layout: str = "rcr") -> list[GemmKernel]:
    return [k for k in gemm_pool("bf16", layout, "cpu", "tiny") if isinstance(k, GemmKernel)][:3]


def rows() -> list[dict[str, Any]]:
    """Every problem with three kernels, the second one fastest, the third one wrong on one problem."""
    found = []
    for number, problem in enumerate(PROBLEMS):
        for place, kernel in enumerate(kernels(problem.layout)):
            measured = Measurement(problem, kernel, "ok", latency_ms=(2.0, 1.0, 3.0)[place], samples=9)
            if number == 0 and place == 2:
                measured = replace(measured, status="wrong", detail="left 3 values unwritten")
            found.append({"run": "r", "time": f"2026-01-01T00:00:0{number}", **measured.as_row()})
    return found


@pytest.fixture
def records(tmp_path: Path) -> pd.DataFrame:
    write_part(tmp_path / "part-a.parquet", rows())
    return load_records(tmp_path)


def test_the_schema_has_the_fields_of_problem_and_kernel_once() -> None:
    names = [column.name for column in columns("gemm")]
    assert len(set(names)) == len(names)
    assert problem_columns("gemm") == GemmProblem.field_names()
    assert set(kernel_columns("gemm")) == {*kernels()[0].as_row()} - {"dtype", "layout"}
    assert [c for c in names if c not in (*GemmProblem.field_names(), *kernel_columns("gemm"))] == [
        c.name
        for c in columns("grouped_conv")
        if c.name not in (*problem_columns("grouped_conv"), *kernel_columns("grouped_conv"))
    ]


def test_records_are_read_with_their_operation_and_judged(records: pd.DataFrame) -> None:
    assert list(records.columns) == arrow_schema("gemm").names
    assert len(records) == len(rows())
    assert problems_of(records) == tuple(PROBLEMS)
    final = final_measurements(records)
    oracles = find_oracles(final).set_index("problem")
    for problem in PROBLEMS:
        row = oracles.loc[problem.id]
        assert row["oracle_kernel"] == kernels(problem.layout)[1].name
        assert row["oracle_tflops"] == pytest.approx(problem.tflops(1.0))
        assert tuple(row[list(key_columns("gemm"))]) == problem.key
    assert int(oracles["kernels_wrong"].sum()) == 1
    rankings = pd.DataFrame(
        [
            {"problem": p.id, "kernel": k.name, "predicted_tflops": 9.0 - place}
            for p in PROBLEMS
            for place, k in enumerate(kernels(p.layout))
        ]
    )
    selection = select(PROBLEMS, final, find_oracles(final), rankings)
    assert summarise(selection).mean_percent == pytest.approx(50.0)
    assert fixed_kernels(final, selection)["ratio"].tolist() == [1.0] * 4
    data = analyse(records, PROBLEMS, rankings, run=RunInfo(name="r", folder="r"))
    assert set(data.slices["slice"]) == {"tiny M", "medium M", "rcr", "rrr"}


def test_a_table_of_problems_is_of_one_operation() -> None:
    table = problem_table(PROBLEMS)
    assert table["flops"].tolist() == [float(p.flops) for p in PROBLEMS]
    conv = GroupedConvProblem("forward", "bf16", 2, N=1, C=8, K=8, G=1, Hi=9, Wi=9, Y=3, X=3)
    with pytest.raises(RecordError, match="several operations"):
        problem_table([*PROBLEMS, conv])
