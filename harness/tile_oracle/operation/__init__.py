"""Operations: one descriptor each, `Operation`, found by name (`operation_named`).

What is particular to an operation stands in its descriptor, and everything else asks there. The package
has two, in `operation.grouped_conv` and `operation.gemm`; an installed distribution adds its own through
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
