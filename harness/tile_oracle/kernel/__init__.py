"""Kernels: one compiled configuration each, with one class per operation.

Names and fields convert both ways without loss (`parse_kernel_name`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tile_oracle.errors import KernelError
from tile_oracle.kernel.fields import (
    EPILOGUES,
    FAMILY,
    PIPELINE_NAME,
    SCHEDULERS,
    FlatKernel,
    TiledKernel,
)
from tile_oracle.kernel.named import NamedKernel, other_kernel, parse_named_kernel, source_of
from tile_oracle.operation import DEFAULT_OPERATION, Kind, find_operation, operation_named, operation_names
from tile_oracle.operation.flat import shortened

__all__ = [
    "EPILOGUES", "FAMILY", "PIPELINE_NAME", "SCHEDULERS", "Kernel", "NamedKernel", "TiledKernel",
    "kernel_from_row", "kernel_of_kind", "parse_kernel_name", "source_of", "tiled",
]  # fmt: skip


Kernel = FlatKernel | NamedKernel
"""A kernel of any operation: a frozen dataclass, whose fields are columns of records. Those of a NamedKernel
are only in its name."""


def tiled(kernel: Kernel) -> TiledKernel:
    """Returns the kernel as a TiledKernel. Raises KernelError when it has no tiles."""
    if not isinstance(kernel, TiledKernel):
        raise KernelError(f"{kernel.op} kernels have no tiles: {shortened(kernel.name)}")
    return kernel


def parse_kernel_name(name: str) -> Kernel:
    """Returns the kernel of a full name, of any operation. Raises KernelError."""
    if source_of(name):
        return parse_named_kernel(name)
    named = (op for op in operation_names() if isinstance(name, str) and name.startswith(op + "_"))
    try:
        return operation_named(next(named, DEFAULT_OPERATION)).parse_kernel(name)
    except KernelError:
        if isinstance(name, str) and (what := other_kernel(name)):
            raise KernelError(f"{shortened(name)} is {what}: no operation here has such kernels") from None
        raise


def kernel_of_kind(kind: Kind, name: str) -> Kernel:
    """Returns the kernel of a full name, or of the short name of a kernel for this kind of problem. Raises
    KernelError."""
    try:
        return parse_kernel_name(name)
    except KernelError as error:
        prefix = operation_named(kind.op).kernel_prefix(kind)
        try:
            return parse_kernel_name(prefix + name)
        except (KernelError, TypeError):
            raise error from None


def kernel_from_row(row: Mapping[str, Any], op: str) -> Kernel:
    """Returns the kernel of a table's row. Raises KernelError."""
    if source_of(row.get("kernel")):
        return NamedKernel.from_row(row)
    operation = find_operation(op) if isinstance(op, str) else None
    if operation is None:
        raise KernelError(f"operation {shortened(op)} is not one of {', '.join(operation_names())}")
    return operation.kernel.from_row(row)
