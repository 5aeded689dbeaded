"""Operations: one descriptor each, `Operation`, found by name (`operation_named`).

The descriptor has all that is particular to an operation; the rest of the package asks it. The package has
two operations, `operation.grouped_conv` and `operation.gemm`. Installed distributions add their own through
the entry point group `tile_oracle.operations`.
"""

from __future__ import annotations

from tile_oracle.operation.descriptor import Operation
from tile_oracle.operation.kind import Kind
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
    "DEFAULT_OPERATION",
    "ENTRY_POINTS",
    "Kind",
    "Operation",
    "find_operation",
    "operation_named",
    "operation_names",
    "operation_of_columns",
    "operation_of_prefix",
    "operations",
]
