"""The packages of the model side import in one direction only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tile_oracle

ORDER = ("features", "model", "training", "evaluation", "exploration")
PACKAGE = Path(tile_oracle.__file__).parent


def imported_packages(path: Path) -> set[str]:
    """The packages of tile_oracle that a module imports, also inside its functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tile_oracle."):
            found.add(str(node.module).split(".")[1])
    return found


@pytest.mark.parametrize("package", ORDER)
def test_model_side_imports_in_one_direction(package: str) -> None:
    modules = list((PACKAGE / package).rglob("*.py"))
    assert modules
    later = set(ORDER[ORDER.index(package) + 1 :])
    wrong = {str(path): packages for path in modules if (packages := imported_packages(path) & later)}
    assert not wrong
