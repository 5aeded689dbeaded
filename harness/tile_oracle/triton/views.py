"""What a declaration sees of a problem: its kind, its numbers as expressions, its arrays as pointers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tile_oracle.errors import OperationError
from tile_oracle.operation import Kind, operation_named
from tile_oracle.problem import Problem
from tile_oracle.problem.fields import ELEMENT_BYTES
from tile_oracle.triton.expression import Expression, ExpressionError, Number, Tree, number

POINTED: Mapping[str, str] = {
    **{"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "int32": "i32"},
    **{"fp8": "fp8e4nv", "fp8_e4m3": "fp8e4nv", "fp8_e5m2": "fp8e5", "fp4_e2m1": "u8", "e8m0": "u8"},
}
"""Data type of an operand -> its name in a kernel's signature."""

LANGUAGE: Mapping[str, str] = {
    **{"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64", "i32": "int32"},
    **{"fp8e4nv": "float8e4nv", "fp8e5": "float8e5", "u8": "uint8"},
}
"""Name in a kernel's signature -> name in triton.language."""


COMPUTE_UNITS = "compute_units"
"""The number of the device's compute units (streaming multiprocessors)."""

OPERANDS = (FIRST, SECOND, THIRD, FOURTH, *_) = ("first", "second", "third", "fourth", "fifth", "sixth")
OUT, WORKSPACE = "out", "workspace"
ROLES = (*OPERANDS, OUT, WORKSPACE)
"""The arrays of a run: the operands in their order, the result, and memory for intermediate results."""

_BYTES = {**ELEMENT_BYTES, "int32": 4}


@dataclass(frozen=True, eq=False)
class Pointer:
    """The address of an array. elements: how many it has, None for the workspace.

    offset_bytes: where in the array it points, a multiple of 16.
    """

    role: str
    dtype: str
    elements: Number | None = None
    offset_bytes: Number = 0

    @property
    def bytes(self) -> Number | None:
        """The array's size."""
        return None if self.elements is None else self.elements * _BYTES[self.dtype]


_NOT_SAID = {
    "bias": "a bias operand",
    "residual": "a residual operand",
    "[ab]_scale|scales|scale_ptr": "scales of an operand",
    "mask_ptr|attn_mask": "a mask operand",
    "activation": "an activation",
}


def not_said(op: str, name: str) -> str:
    """; that a name is of something that no declaration of the operation can say yet, or ""."""
    found = next((what for part, what in _NOT_SAID.items() if re.search(part, name.lower())), None)
    if found is None:
        return ""
    return f"; {found} cannot be declared for {op}: pass None, or a constexpr that switches it off"


class ProblemView:
    """A problem of one kind: the parts that all operations have. An operation's descriptor names its own.

    arch: the architecture that kernels are compiled for. compute_units: of the device, an expression.
    result_dtype: the data type of the result. configuration: the values of the configuration that arguments,
    grids and constraints are asked for, {} while configurations are made.
    """

    op: ClassVar[str]
    numbers: ClassVar[tuple[str, ...]]
    """The names of a problem's numbers, which expressions may use."""
    kinds: ClassVar[Mapping[str, tuple[str | int, ...]]]
    """The kinds of problems that a declaration is for when it does not say: field of a kind -> values."""
    arrays: tuple[str, ...] = ()
    """The names of its arrays."""

    def __init__(self, kind: Kind, arch: str) -> None:
        self.kind, self.arch = kind, arch
        self.configuration: Mapping[str, Any] = {}
        self.compute_units: Expression = number(COMPUTE_UNITS)
        self.dtype = kind.dtype
        self.result_dtype = "fp16" if kind.dtype == "fp8" else kind.dtype
        for name in self.numbers:
            setattr(self, name, number(name))

    def __getattr__(self, name: str) -> Any:
        hidden = ("kind", "arch", "configuration", "arrays")
        # A number that ends in a digit is one of several, which a property chooses among.
        has = ", ".join(sorted(one for one in vars(self) if one not in hidden and not one[-1].isdigit()))
        raise AttributeError(f"{self.op} has no {name}{not_said(self.op, name)}; it has {has}, workspace()")

    @classmethod
    def values(cls, problem: Any) -> dict[str, int]:
        """Returns the values of `numbers`."""
        return {name: int(getattr(problem, name)) for name in cls.numbers}

    def usual_arguments(self) -> dict[str, object]:
        """Returns the arguments of a function whose declaration gives none, name -> value: each array as
        NAME_ptr, and the numbers."""
        arrays = {f"{name}_ptr": getattr(self, name) for name in self.arrays}
        return arrays | {name: getattr(self, name) for name in self.numbers}

    def contiguous(self) -> tuple[str, ...]:
        """Returns the numbers that must be multiples of 16 where a declaration names none."""
        raise NotImplementedError

    def implied(self, used: Collection[str]) -> Iterator[tuple[Tree, str]]:
        """Conditions of a kernel that uses only these numbers, with their texts."""
        return iter(())

    def workspace(self, dtype: str = "fp32", offset_bytes: Number = 0) -> Pointer:
        """Returns the memory for intermediate results, as much as the declaration's `workspace_bytes`. Its
        content is undefined when the first launch starts."""
        if dtype not in _BYTES:
            raise ExpressionError(f"{dtype!r} is not one of {', '.join(_BYTES)}")
        return Pointer(WORKSPACE, dtype, None, offset_bytes)


def view_of(op: str) -> type[ProblemView]:
    """Returns the view of an operation's problems. Raises OperationError when it has none."""
    found = operation_named(op).triton_view
    if found is None:
        raise OperationError(f"the operation {op} has no Triton kernels: its descriptor needs triton_view")
    return found()


def values_of(problem: Problem, compute_units: int) -> dict[str, int]:
    """Returns the values of these names."""
    return {**view_of(problem.op).values(problem), COMPUTE_UNITS: compute_units}
