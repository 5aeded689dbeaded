"""examples/judge_a_recorded_oracle: the notebook runs, prints what it shows, and uses the public API."""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat
import pytest

import tile_oracle.api

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "judge_a_recorded_oracle" / "judge_a_recorded_oracle.ipynb"


def cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(one.text for one in cell.outputs if one.output_type == "stream" and one.name == "stdout")


def test_it_is_a_notebook_of_the_public_api() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    nodes = [node for cell in cells(notebook) for node in ast.walk(ast.parse(cell.source))]
    imported = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [ast.unparse(node) for node in imported] == ["import tile_oracle.api as to", "import pandas as pd"]
    used = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "to"
    }
    assert used <= set(tile_oracle.api.__all__)
    assert len(used) >= 5


@pytest.mark.slow
def test_it_prints_what_it_shows(tmp_path: Path) -> None:
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    shown = [printed(cell) for cell in cells(notebook)]
    assert all(shown)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    assert [printed(cell) for cell in cells(notebook)] == shown
