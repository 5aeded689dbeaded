"""Imports between the packages of tile_oracle go in one direction, without cycles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import tile_oracle

ORDER = ("features", "model", "training", "evaluation", "exploration")
PACKAGE = Path(tile_oracle.__file__).parent

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
    if path != PACKAGE / "__init__.py"
}


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text("utf-8"))


@cache
def imported_modules(module: str) -> frozenset[str]:
    """Modules of tile_oracle that a module imports, also inside its functions, but not only for types."""
    found = set()
    for node in statements(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("tile_oracle."):
            inside = str(node.module).partition(".")[2]
            names = {f"{inside}.{name.name}".lstrip(".") for name in node.names}
            found |= {name if name in MODULES else inside for name in names}
    return frozenset(found & MODULES.keys()) - {module}


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements, with those inside of others, that are not only for types."""
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        for node in getattr(tree, part, ()):
            if not is_for_types(node):
                yield node
                yield from statements(node)


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def room(module: str) -> str | None:
    """The package that a module lies in; None for modules beside the packages."""
    first = module.partition(".")[0]
    return first if (PACKAGE / first).is_dir() else None


@pytest.mark.parametrize("package", ORDER)
def test_model_side_imports_in_one_direction(package: str) -> None:
    modules = [module for module in MODULES if room(module) == package]
    assert modules
    later = set(ORDER[ORDER.index(package) + 1 :])
    assert not [one for one in modules if later & set(map(room, imported_modules(one)))]


def test_no_modules_import_each_other_in_a_circle() -> None:
    tuple(TopologicalSorter({module: imported_modules(module) for module in MODULES}).static_order())


def test_no_two_packages_import_each_other() -> None:
    between: dict[tuple[str, str], set[str]] = {}
    for module in MODULES:
        for other in imported_modules(module):
            here, there = room(module), room(other)
            if here is not None and there is not None and here != there:
                between.setdefault((here, there), set()).add(f"{module} -> {other}")
    assert ("compiling", "operation") in between
    assert ("operations", "compiling") in between
    both = {pair: between[pair] | between[pair[::-1]] for pair in between if pair[::-1] in between}
    assert not both


def last_name(node: ast.expr) -> str:
    """`b` of `a.b` and of `b`."""
    return getattr(node, "attr", "") or getattr(node, "id", "")


def test_no_room_asks_whether_a_kernel_is_one_by_name() -> None:
    """All kernels have `source`, `function` and `configuration`."""
    asking = {
        module
        for module in MODULES
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Call) and node.args and last_name(node.args[-1]) == "NamedKernel"
    }
    assert asking == {"kernel.named"}


_IMPORT = re.compile(r"(?:^|;)\s*from (tile_oracle[\w.]*) import (\w+(?:, \w+)*)", re.MULTILINE)
_MADE_UP = "tile_oracle.judge.sums"
"""What the tests of mutants mutate."""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["tests", "tools", "benchmarks"])
def test_programs_that_are_texts_import_what_is_there(place: str) -> None:
    """Neither mypy nor the import of their module reads them."""
    found = [
        (module, name)
        for path in (Path(__file__).parents[1] / place).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for module, names in _IMPORT.findall(node.value)
        for name in names.split(", ")
        if module != _MADE_UP
    ]
    lacking = [(module, name) for module, name in set(found) if not hasattr(import_module(module), name)]
    assert not [one for one in lacking if not find_spec(".".join(one))]
