"""Finds operations: the package's own and those of installed distributions.

A distribution declares an operation by an entry point whose value is its descriptor:

    [project.entry-points."tile_oracle.operations"]
    softmax = "my_package.softmax:SOFTMAX"

An operation is imported when it is first needed. Installed distributions are searched only for names that are
not operations of the package.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from tile_oracle.errors import OperationError
from tile_oracle.operation.descriptor import Operation
from tile_oracle.operation.field_names import check_fields, check_importable

ENTRY_POINTS = "tile_oracle.operations"
"""The entry point group."""

DEFAULT_OPERATION = "grouped_conv"
"""The operation of tables that name none, as older records do."""
_FOLDER = Path(__file__).parents[1] / "operations"
_OWN = {
    folder.name: f"tile_oracle.operations.{folder.name}.descriptor:{folder.name.upper()}"
    for folder in sorted(_FOLDER.iterdir(), key=lambda one: (one.name != DEFAULT_OPERATION, one.name))
    if (folder / "descriptor.py").is_file()
}
"""The package's own: each folder of operations/ with a descriptor, in which it has the folder's name."""


def find_operation(name: str) -> Operation | None:
    """Returns the operation with this name, or None."""
    if name in _OWN:
        return _own(name)
    return _installed(name) if name in _declared() else None


def operation_named(name: str) -> Operation:
    """Returns the operation with this name. Raises OperationError, which lists the known ones."""
    found = find_operation(name)
    if found is None:
        raise OperationError(f"operation {name!r} is not one of {', '.join(operation_names())}")
    return found


def operations() -> Iterator[Operation]:
    """Yields all operations, the package's own first. Raises OperationError when one cannot be loaded."""
    yield from map(_own, _OWN)
    yield from map(_installed, _declared())


def operation_names() -> tuple[str, ...]:
    """Returns the names of all operations, without importing any."""
    return (*_OWN, *_declared())


def operation_of_columns(columns: Collection[str]) -> Operation:
    """Returns the operation of a table without a column `op`: of those of which it has most marks, the one
    with the fewest."""
    found = max(operations(), key=lambda one: (len(set(one.marks) & set(columns)), -len(one.marks)))
    return found if set(found.marks) & set(columns) else _own(DEFAULT_OPERATION)


def operation_of_prefix(text: str) -> Operation:
    """Returns the operation whose problem ids begin like this text; grouped convolution by default."""
    return next((one for one in operations() if text.startswith(one.id_prefixes)), _own(DEFAULT_OPERATION))


@cache
def _own(name: str) -> Operation:
    module, _, attribute = _OWN[name].partition(":")
    found: Operation = getattr(import_module(module), attribute)
    return found


@lru_cache(maxsize=1)
def _declared() -> dict[str, EntryPoint]:
    found = sorted(entry_points(group=ENTRY_POINTS), key=lambda one: one.name)
    for one in found:
        if one.name in _OWN:
            raise OperationError(
                f"entry point {one.name} = {one.value} of {ENTRY_POINTS} has the name of an operation that "
                "tile-oracle has itself: rename it"
            )
    return {one.name: one for one in found}


@cache
def _installed(name: str) -> Operation:
    point = _declared()[name]
    where = f"entry point {name} = {point.value} of {ENTRY_POINTS}"
    try:
        found = point.load()
    except Exception as error:  # whatever the module does when it is imported
        raise OperationError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from None
    if not isinstance(found, Operation):
        raise OperationError(
            f"{where} is of type {type(found).__name__}: it must be a tile_oracle.operation.Operation"
        )
    if found.name != name:
        raise OperationError(f"{where} describes the operation {found.name!r}: both names must be the same")
    check_fields(found, where)
    check_importable(point.module, where)
    return found
