"""The parent process never touches a device: nothing that it imports leads to tile_oracle.device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import tile_oracle

ROOT = Path(tile_oracle.__file__).parent
PARENTS = ("plugin", "cli", "registry.registry", "commands.doctor")

WORKERS_PARTS = {"on_device", "on_gpu"}
"""The parts of an operation that its descriptor loads only in a worker."""


@cache
def file_of(module: str) -> Path | None:
    """The file of a module of ours, by its name below tile_oracle."""
    place = ROOT.joinpath(*module.split("."))
    return next((p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()), None)


@cache
def imports(module: str) -> frozenset[str]:
    """Our modules that a module imports, also inside functions, but not only for types.

    All parts of a descriptor count but the worker's. Modules named by strings also count, and so do the
    operations that `operation.registry` finds by their folders.
    """
    file = file_of(module)
    found = set()
    if module == "operation.registry":
        found |= {
            f"operations.{path.parent.name}.descriptor" for path in ROOT.glob("operations/*/descriptor.py")
        }
    for node in _executed(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tile_oracle":
            inside = (node.module or "").partition(".")[2]
            parts = [n.name for n in node.names if not (is_descriptor(module) and n.name in WORKERS_PARTS)]
            names = [inside, *(f"{inside}.{name}".lstrip(".") for name in parts)]
        elif isinstance(node, ast.Import):
            names = [n.name.partition(".")[2] for n in node.names if n.name.startswith("tile_oracle.")]
        elif isinstance(node, ast.Constant) and _MODULE.fullmatch(str(node.value)):
            place = str(node.value).partition(":")[0]
            inside = place.partition(".")[2]
            names = [f"{module.rpartition('.')[0]}.{inside}" if place.startswith(".") else inside]
            names = [] if inside in WORKERS_PARTS else names
        else:
            continue
        found |= {name for name in names if name and file_of(name) is not None}
    return frozenset(found)


def is_descriptor(module: str) -> bool:
    return module.startswith("operations.") and module.endswith(".descriptor")


_MODULE = re.compile(r"tile_oracle(?:\.\w+)+:\w+|\.\w+(?::\w+)?")
"""The place of a part of a descriptor."""


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from _executed(node)


def reached_from(*modules: str) -> set[str]:
    """All our modules that these import, directly or not."""
    seen, todo = set[str](), list(modules)
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo += imports(module)
    return seen


@pytest.mark.slow
def test_the_parent_imports_nothing_of_the_device_folder() -> None:
    commands = [f"commands.{path.stem}" for path in (ROOT / "commands").glob("*.py")]
    reached = reached_from(*PARENTS, *commands)
    assert "measure.supervisor" in reached
    assert "targets.resolve" in reached
    assert not [module for module in reached if module.split(".")[0] == "device"]


@pytest.mark.slow
def test_the_parent_asks_no_operation_for_the_parts_of_a_worker() -> None:
    reached = reached_from("operation.registry")
    assert {"operations.gemm.descriptor", "operations.gemm.ck_tile", "operations.gemm.rules"} <= reached
    commands = [f"commands.{path.stem}" for path in (ROOT / "commands").glob("*.py")]
    for module in reached_from(*PARENTS, *commands) - {"operation.descriptor"}:
        file = file_of(module)
        asked = {
            n.attr for n in _executed(ast.parse(file.read_text("utf-8"))) if isinstance(n, ast.Attribute)
        }
        assert not asked & {"worker", *WORKERS_PARTS}, module


def test_the_worker_is_what_opens_devices() -> None:
    assert {"device.audit", "device.base"} <= imports("device.worker")
    assert "device.runtime.hip" in reached_from("device.amd")


def test_target_imports_neither_measure_nor_device() -> None:
    modules = [f"targets.{path.stem}" for path in (ROOT / "targets").glob("*.py")]
    folders = {found.split(".")[0] for module in modules for found in imports(module)}
    assert "compiling" in folders
    assert not folders & {"measure", "device"}
