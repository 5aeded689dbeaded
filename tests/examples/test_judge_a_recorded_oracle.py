"""examples/judge_a_recorded_oracle: the notebook runs, prints what it shows, and uses the public API."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "judge_a_recorded_oracle" / "judge_a_recorded_oracle.ipynb"


def cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(one.text for one in cell.outputs if one.output_type == "stream" and one.name == "stdout")


def test_it_is_a_notebook_of_the_public_api() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    public = (ROOT / "docs" / "api.md").read_text()
    used = [
        node
        for cell in cells(notebook)
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tile_oracle")
    ]
    assert len(used) >= 6
    for node in used:
        for name in node.names:
            listed = (f"automodule:: {node.module}\n", f"autofunction:: {node.module}.{name.name}\n")
            assert any(line in public for line in listed), name.name
            assert hasattr(importlib.import_module(str(node.module)), name.name)


@pytest.mark.slow
def test_it_prints_what_it_shows(tmp_path: Path) -> None:
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    shown = [printed(cell) for cell in cells(notebook)]
    assert all(shown)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    assert [printed(cell) for cell in cells(notebook)] == shown
