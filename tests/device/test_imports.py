"""The parent process never touches a device: nothing that it imports leads to tile_oracle.device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.test_layout import MODULES, imported_modules, is_for_types

PARENTS = ("plugin", "cli", "registry.registry", *(one for one in MODULES if one.startswith("commands.")))

WORKERS_PARTS = {"on_device", "on_gpu"}
"""The parts of an operation that its descriptor loads only in a worker."""


@cache
def imports(module: str) -> frozenset[str]:
    """Our modules that a module imports, also inside functions, but not only for types.

    All parts of a descriptor count but the worker's. Modules named by strings also count, and so do the
    operations that `operation.registry` finds by their folders.
    """
    is_descriptor = module.startswith("operations.") and module.endswith(".descriptor")
    found = set(imported_modules(module))
    if module == "operation.registry":
        found |= {one for one in MODULES if one.startswith("operations.") and one.endswith(".descriptor")}
    for node in executed(ast.parse(MODULES[module].read_text("utf-8"))):
        if isinstance(node, ast.Constant) and _PLACE.fullmatch(str(node.value)):
            inside = str(node.value).partition(":")[0].partition(".")[2]
            relative = str(node.value).startswith(".")
            found.add(f"{module.rpartition('.')[0]}.{inside}" if relative else inside)
    if is_descriptor:
        found = {one for one in found if one.rpartition(".")[2] not in WORKERS_PARTS}
    return frozenset(found & MODULES.keys())


def executed(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes, expressions too, that are not only for types."""
    for node in ast.iter_child_nodes(tree):
        if not is_for_types(node):
            yield node
            yield from executed(node)


_PLACE = re.compile(r"tile_oracle(?:\.\w+)+:\w+|\.\w+(?::\w+)?")
"""The place of a part of a descriptor."""


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
def test_the_parent_imports_no_device_and_asks_for_no_part_of_a_worker() -> None:
    reached = reached_from(*PARENTS)
    assert "measure.supervisor" in reached
    assert "targets.resolve" in reached
    assert not [module for module in reached if module.split(".")[0] == "device"]
    reached = reached_from("operation.registry")
    assert {"operations.gemm.descriptor", "operations.gemm.ck_tile", "operations.gemm.rules"} <= reached
    for module in reached_from(*PARENTS) - {"operation.descriptor"}:
        tree = ast.parse(MODULES[module].read_text("utf-8"))
        asked = {n.attr for n in executed(tree) if isinstance(n, ast.Attribute)}
        assert not asked & {"worker", *WORKERS_PARTS}, module


def test_the_worker_is_what_opens_devices() -> None:
    assert {"device.audit", "device.base"} <= imports("device.worker")
    assert "device.runtime.hip" in reached_from("device.gpu")
    modules = [one for one in MODULES if one.startswith("targets.")]
    folders = {found.split(".")[0] for module in modules for found in imports(module)}
    assert "compiling" in folders
    assert not folders & {"measure", "device"}
