"""Kernels: one compiled configuration each, with one class per operation.

Names and fields convert both ways without loss (`parse_kernel_name`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field
from typing import Any, ClassVar, Protocol, Self

from tile_oracle.errors import KernelError
from tile_oracle.kernel.fields import EPILOGUES, FAMILY, PIPELINE_NAME, SCHEDULERS, TiledKernel, shortened
from tile_oracle.kernel.named import NamedKernel, Value, parse_named_kernel, source_of
from tile_oracle.kernel.other_kernels import other_kernel
from tile_oracle.operation import DEFAULT_OPERATION, Kind, find_operation, operation_named, operation_names
from tile_oracle.problem import Problem

__all__ = [
    "EPILOGUES",
    "FAMILY",
    "PIPELINE_NAME",
    "SCHEDULERS",
    "Kernel",
    "NamedKernel",
    "TiledKernel",
    "kernel_from_row",
    "kernel_of_kind",
    "parse_kernel_name",
    "source_of",
    "tiled",
]


class Kernel(Protocol):
    """A kernel of any operation: a frozen dataclass, whose fields are columns of records.

    A NamedKernel's fields are only in its name.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def op(self) -> str:
        """Its operation's name."""

    @property
    def dtype(self) -> str:
        """The data type of the operands."""

    @property
    def source(self) -> str:
        """The source of a NamedKernel (`triton`, `cublaslt`); FAMILY for all others."""

    @property
    def function(self) -> str:
        """The source's function or algorithm; "" in a family."""

    @property
    def configuration(self) -> Mapping[str, Value]:
        """What the source configures the function with; empty in a family."""

    @property
    def kind(self) -> Kind:
        """The fields that problem and kernel must share."""

    def matches(self, problem: Problem) -> bool:
        """Returns whether the kernel is for the problem's kind."""

    @property
    def name(self) -> str:
        """The full name, from which every field can be read back (`parse_kernel_name`)."""

    @property
    def short_name(self) -> str:
        """The name without the fields that a matching problem has."""

    def as_row(self) -> dict[str, Any]:
        """Returns all fields as a flat mapping."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Returns the inverse of `as_row`; other columns are ignored. Raises KernelError."""


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
