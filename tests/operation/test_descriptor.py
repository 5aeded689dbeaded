"""Everything particular to an operation comes from its descriptor."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import tile_oracle
from tests.processes import run_python
from tile_oracle.operation import Operation, deferred, operations, part
from tile_oracle.operation.field_names import RECORD_COLUMNS
from tile_oracle.record.schema import columns, kernel_columns, problem_columns

PACKAGE = Path(tile_oracle.__file__).parent


def asks_for(path: Path, classes: set[str]) -> Iterator[str]:
    """The lines of a module with an isinstance check for one of these classes."""
    for call in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("isinstance", "issubclass")):
            continue
        if classes & {name.id for name in ast.walk(call.args[1]) if isinstance(name, ast.Name)}:
            yield f"{path.relative_to(PACKAGE)}:{call.lineno}: {ast.unparse(call)}"


def test_nothing_outside_an_operation_asks_for_its_classes() -> None:
    classes = {one.__name__ for operation in operations() for one in (operation.problem, operation.kernel)}
    assert {"GemmProblem", "GroupedConvKernel"} <= classes
    outside = [path for path in PACKAGE.rglob("*.py") if "operations" not in path.relative_to(PACKAGE).parts]
    assert len(outside) > 100
    assert not [found for path in outside for found in asks_for(path, classes)]


# An installed operation is refused when it is registered, not after its kernels have run.

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


# Parts of a descriptor are named by their place, and imported when they are first needed.

PARTS = (
    "kernel_lists", "gpu_source", "ck_tile", "on_device", "on_gpu", "triton_view", "features", "search"
)  # fmt: skip


@pytest.mark.parametrize("operation", tuple(operations()), ids=lambda one: one.name)
def test_every_named_part_of_an_operation_is_there(operation: Operation) -> None:
    loads = [load for name in PARTS if (load := getattr(operation, name)) is not None]
    assert loads
    assert all(load() is not None for load in loads)


def test_places_are_modules_or_objects_in_them() -> None:
    assert part("math")().pi == part("math:pi")()
    assert part(".part:part", "tile_oracle.operation")() is part
    assert deferred("math:hypot")(3, 4) == 5


def test_a_descriptor_imports_none_of_its_parts() -> None:
    code = "import sys, tile_oracle.operations.gemm.descriptor; print(*sys.modules)"
    done = run_python("-c", code, check=True)
    assert "tile_oracle.operations.gemm.descriptor" in done.stdout.split()
    assert not {"numpy", "tile_oracle.operations.gemm.rules"} & set(done.stdout.split())
