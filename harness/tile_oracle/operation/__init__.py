"""Operations: one descriptor each, `Operation`, found by name (`operation_named`).

The descriptor has all that is particular to an operation; the rest of the package asks it. The package's own
operations are in `tile_oracle.operations`. Installed distributions add theirs through the entry point group
of that name.
"""

from __future__ import annotations

from tile_oracle.operation.descriptor import Operation
from tile_oracle.operation.kind import Kind
from tile_oracle.operation.part import deferred, part
from tile_oracle.operation.registry import (
    DEFAULT_OPERATION,
    ENTRY_POINTS,
    find_operation,
    operation_named,
    operation_names,
    operation_of_columns,
    operation_of_prefix,
    operations,
)

__all__ = [
    "DEFAULT_OPERATION", "ENTRY_POINTS", "Kind", "Operation", "deferred", "find_operation",
    "operation_named", "operation_names", "operation_of_columns", "operation_of_prefix", "operations",
    "part",
]  # fmt: skip
