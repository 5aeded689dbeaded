"""Everything particular to an operation comes from its descriptor."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tile_oracle
from tile_oracle.operation import operations

PACKAGE = Path(tile_oracle.__file__).parent


def asks_for(path: Path, classes: set[str]) -> Iterator[str]:
    """The lines of a module with an isinstance check for one of these classes."""
    for call in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not (isinstance(call, ast.Call) and ast.unparse(call.func) in ("isinstance", "issubclass")):
            continue
        if classes & {name.id for name in ast.walk(call.args[1]) if isinstance(name, ast.Name)}:
            yield f"{path.relative_to(PACKAGE)}:{call.lineno}: {ast.unparse(call)}"


def test_nothing_outside_an_operation_asks_for_its_classes() -> None:
    classes = {one.__name__ for operation in operations() for one in (operation.problem, operation.kernel)}
    assert {"GemmProblem", "GroupedConvKernel"} <= classes
    outside = [path for path in PACKAGE.rglob("*.py") if "operations" not in path.relative_to(PACKAGE).parts]
    assert len(outside) > 100
    assert not [found for path in outside for found in asks_for(path, classes)]
