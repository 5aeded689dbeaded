"""Pools of kinds, by the words of their operation."""

from __future__ import annotations

from typing import Any

from tile_oracle.kernel import Kernel
from tile_oracle.operation import Kind
from tile_oracle.pool import pool_of_kind


def kernel_pool(
    direction: str, dtype: str, ndim: int, arch: Any, rules: str = "default", where: Any = None
) -> tuple[Kernel, ...]:
    """The pool of a kind of grouped convolutions."""
    kind = Kind.of("grouped_conv", direction=direction, dtype=dtype, ndim=ndim)
    return pool_of_kind(kind, arch, rules, where)


def gemm_pool(dtype: str, layout: str, arch: Any, rules: str = "default") -> tuple[Kernel, ...]:
    """The pool of a kind of GEMMs."""
    return pool_of_kind(Kind.of("gemm", dtype=dtype, layout=layout), arch, rules)
