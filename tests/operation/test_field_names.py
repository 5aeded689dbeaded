"""An installed operation is refused when it is registered, not after its kernels have run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.processes import run_python
from tile_oracle.operation.field_names import RECORD_COLUMNS
from tile_oracle.record.schema import columns, kernel_columns, problem_columns

OPERATION = Path(__file__).parents[1] / "third_operation"


def test_the_reserved_names_are_the_columns_of_every_record() -> None:
    own = {*problem_columns("softmax"), *kernel_columns("softmax")}
    assert {one.name for one in columns("softmax")} - own == RECORD_COLUMNS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "on_path", "expected"),
    [
        (("from __future__ import annotations\n", ""), True, "the field dtype of SoftmaxProblem has a type"),
        (("columns", "samples"), True, "the field samples of SoftmaxProblem has the name of a column"),
        (("rows: int", "rows: float"), True, "the field rows of SoftmaxProblem is of type float: records"),
        (("", ""), False, "workers do not find the package row_softmax_operation: pip install -e its folder"),
    ],
    ids=["annotations", "column", "type", "path"],
)
def test_what_would_fail_after_measuring_is_one_line(
    tmp_path: Path, change: tuple[str, str], on_path: bool, expected: str
) -> None:
    shutil.copytree(OPERATION, tmp_path, dirs_exist_ok=True)
    problem = tmp_path / "row_softmax_operation" / "problem.py"
    problem.write_text(problem.read_text().replace("-> SoftmaxProblem", "").replace(*change))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHONPATH": str(tmp_path)} if on_path else {}
    ask = "from tile_oracle.operation import operation_named; operation_named('row_softmax')"
    done = run_python("-c", ask, cwd=tmp_path, env=environment)
    assert expected in done.stderr.splitlines()[-1]
