"""Kernels: one compiled configuration each; one class an operation.

What all have: `op`, `dtype`, `tile`, `waves`, `warp_tile`, `pipeline`, `scheduler`, `epilogue`, `pad_m`,
`pad_n`, `pad_k`, `kind`, `matches`, `name`, `short_name`, `as_row` and `from_row`. Names and fields
convert both ways without loss: `parse_kernel_name`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tile_oracle.errors import KernelError
from tile_oracle.kernel.fields import EPILOGUES, PIPELINE_NAME, SCHEDULERS, shortened
from tile_oracle.kernel.gemm import GEMM_KERNEL_FIELDS, GemmKernel, parse_gemm_name
from tile_oracle.kernel.grouped_conv import (
    KERNEL_FIELDS,
    PUBLISHED_TILES,
    PUBLISHED_VECTORS,
    GroupedConvKernel,
    parse_grouped_conv_name,
)
from tile_oracle.operation import find_operation, operation_named, operation_names

__all__ = [
    "EPILOGUES",
    "GEMM_KERNEL_FIELDS",
    "KERNEL_FIELDS",
    "PIPELINE_NAME",
    "PUBLISHED_TILES",
    "PUBLISHED_VECTORS",
    "SCHEDULERS",
    "GemmKernel",
    "GroupedConvKernel",
    "Kernel",
    "kernel_from_row",
    "parse_gemm_name",
    "parse_grouped_conv_name",
    "parse_kernel_name",
]

Kernel = GroupedConvKernel | GemmKernel
"""A kernel of any operation."""


def parse_kernel_name(name: str) -> Kernel:
    """The kernel that a full name means, whatever its operation. Raises KernelError."""
    named = (op for op in operation_names() if isinstance(name, str) and name.startswith(op + "_"))
    return operation_named(next(named, GroupedConvKernel.op)).parse_kernel(name)


def kernel_from_row(row: Mapping[str, Any], op: str) -> Kernel:
    """The kernel of a table's row. Raises KernelError."""
    operation = find_operation(op) if isinstance(op, str) else None
    if operation is None:
        raise KernelError(f"operation {shortened(op)} is not one of {', '.join(operation_names())}")
    return operation.kernel.from_row(row)
