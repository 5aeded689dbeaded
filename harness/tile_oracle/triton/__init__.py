"""Declares kernels that are written in Triton, so that tile-oracle can compile and measure them.

A file of such kernels is the argument of `--kernels`. It is imported only in child processes. This package
needs no Triton itself.

Each operation with Triton kernels has a decorator with its name (`gemm`, `grouped_conv`, ...; see
`tile_oracle.triton.declare.Declare`) and a view of its problems (`GemmView`, `GroupedConvView`, ...).
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from tile_oracle.operation import find_operation
from tile_oracle.triton.declare import DeclarationError, Launch, declare, launch
from tile_oracle.triton.expression import Expression, ExpressionError, cdiv, maximum, minimum, where
from tile_oracle.triton.views import Pointer, ProblemView, view_of

__all__ = [
    "DeclarationError", "Expression", "ExpressionError", "Launch", "Pointer", "ProblemView", "cdiv",
    "launch", "maximum", "minimum", "where",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The decorator or the view of an operation. Raises AttributeError."""
    stem = name.removesuffix("View")
    op = name if stem == name else re.sub("(?<!^)(?=[A-Z])", "_", stem).lower()
    operation = None if name.startswith("_") else find_operation(op)
    if operation is None or operation.triton_view is None:
        raise AttributeError(f"there is no operation {op} with Triton kernels")
    view = view_of(op)
    return partial(declare, view) if stem == name else view
