"""Declares kernels that are written in Triton, so that tile-oracle can compile and measure them.

A file of such kernels is the argument of `--kernels`. It is imported only in child processes. This package
needs no Triton itself.
"""

from __future__ import annotations

from tile_oracle.triton.declare import DeclarationError, Launch, gemm, grouped_conv, launch
from tile_oracle.triton.expression import Expression, ExpressionError, cdiv, maximum, minimum, where
from tile_oracle.triton.views import GemmView, GroupedConvView, Pointer

__all__ = [
    "DeclarationError",
    "Expression",
    "ExpressionError",
    "GemmView",
    "GroupedConvView",
    "Launch",
    "Pointer",
    "cdiv",
    "gemm",
    "grouped_conv",
    "launch",
    "maximum",
    "minimum",
    "where",
]
