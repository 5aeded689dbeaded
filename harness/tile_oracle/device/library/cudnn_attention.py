"""Attention as cuDNN's backend sees it: two products with a scale, a mask and a softmax between them.

cuDNN fuses a graph of this form into one kernel. The order of its operations is that of NVIDIA's
cudnn-frontend (github.com/NVIDIA/cudnn-frontend, scaled_dot_product_flash_attention.h, softmax.h,
diagonal_band_mask.h), and the numbers are those of cudnn_graph.h of version 9.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from ctypes import c_float, c_int32
from types import MappingProxyType
from typing import Any

from tile_oracle.device.library.cudnn import (
    DATA_TYPE,
    DESCRIPTOR,
    INT64,
    POINTWISE_MODE,
    REDUCTION_MODE,
    TYPES,
    Cudnn,
    Descriptor,
    Graph,
)
from tile_oracle.problem import Problem

_POINTWISE, _POINTWISE_OPERATION = 0, 13
_PRODUCT, _PRODUCT_OPERATION = 18, 19
_REDUCTION, _REDUCTION_OPERATION = 21, 22
_MODES: Mapping[str, int] = MappingProxyType(
    {
        "add": 0,
        "multiply": 1,
        "divide": 6,
        "subtract": 9,
        "exp": 13,
        "at_least": 303,
        "index": 501,
        "select": 601,
    }
)
"""cudnnPointwiseMode_t."""
_SUM, _MOST = 0, 3
"""cudnnReduceTensorOp_t."""
_OF_QUERIES, _OF_KEYS = 2, 3
"""Axes of the scores."""
_INFINITE_SINCE = (9, 10)
"""Before this version masked scores are the lowest number, as in cudnn-frontend."""


class Attention(Graph):
    """Softmax(Q K^T scale) V of a problem of the operation attention."""

    def __init__(self, library: Cudnn, problem: Problem) -> None:
        """Raises LibraryFailure for a problem that the library does not take."""
        super().__init__(library)
        row = problem.as_row()
        self._dtype, batch, heads = str(problem.dtype), row["batch"], row["heads"]
        self._operations: list[Descriptor] = []
        self._next = itertools.count(len(problem.operand_shapes))
        queries, keys = row["seq_q"], row["seq_kv"]
        self._scores, self._of_rows = (batch, heads, queries, keys), (batch, heads, queries, 1)
        q, k, v, out = (
            self._operand(number, shape, transposed=number == 1)
            for number, shape in enumerate(problem.operand_shapes)
        )
        scores = self._product(q, k, self._virtual(self._scores))
        scale = self._number(c_float(row["head_dim"] ** -0.5), "fp32")
        scores = self._pointwise("multiply", scores, scale)
        if row["causal"]:
            scores = self._masked(scores, queries, keys)
        most = self._reduced(_MOST, scores)
        powers = self._pointwise("exp", self._pointwise("subtract", scores, most))
        total = self._reduced(_SUM, powers)
        weights = self._pointwise("divide", powers, total, dtype=self._dtype)
        self._product(weights, v, out)
        self._finish(self._operations)

    def _operand(self, number: int, shape: Sequence[int], *, transposed: bool) -> Descriptor:
        """An operand or the result; of K the transpose."""
        dims, strides = list(shape), _strides(shape)
        if transposed:
            dims[2:], strides[2:] = reversed(dims[2:]), reversed(strides[2:])
        return self._array(number, dims, strides, self._dtype)

    def _virtual(self, dims: Sequence[int], dtype: str = "fp32") -> Descriptor:
        """An array between two operations."""
        return self._array(next(self._next), dims, _strides(dims), dtype, virtual=True)

    def _number(self, value: Any, dtype: str) -> Descriptor:
        """A number that runs take by value."""
        identity = next(self._next)
        self._scalars[identity] = value
        return self._array(identity, (1, 1, 1, 1), (1, 1, 1, 1), dtype, by_value=True)

    def _add(self, kind: int, **attributes: tuple[int, Descriptor]) -> None:
        operation = self._made(kind)
        for attribute, descriptor in attributes.values():
            operation.set(attribute, DESCRIPTOR, descriptor.handle)
        operation.finalize()
        self._operations.append(operation)

    def _product(self, first: Descriptor, second: Descriptor, to: Descriptor) -> Descriptor:
        described = self._made(_PRODUCT)
        described.set(1500, DATA_TYPE, TYPES["fp32"])
        described.finalize()
        self._add(
            _PRODUCT_OPERATION, a=(1520, first), b=(1521, second), c=(1522, to), described=(1523, described)
        )
        return to

    def _reduced(self, mode: int, scores: Descriptor) -> Descriptor:
        """A number for each query, over the keys."""
        described, to = self._made(_REDUCTION), self._virtual(self._of_rows)
        described.set(1600, REDUCTION_MODE, mode)
        described.set(1601, DATA_TYPE, TYPES["fp32"])
        described.finalize()
        self._add(_REDUCTION_OPERATION, x=(1610, scores), y=(1611, to), described=(1612, described))
        return to

    def _pointwise(
        self,
        mode: str,
        first: Descriptor,
        second: Descriptor | None = None,
        chooses: Descriptor | None = None,
        *,
        dtype: str = "fp32",
        computed_in: str = "fp32",
        axis: int | None = None,
    ) -> Descriptor:
        """The result of an operation on each score. axis: whose index it is, for `index`."""
        described, to = self._made(_POINTWISE), self._virtual(self._scores, dtype)
        described.set(0, POINTWISE_MODE, _MODES[mode])
        described.set(1, DATA_TYPE, TYPES[computed_in])
        if axis is not None:
            described.set(9, INT64, axis)
        described.finalize()
        parts = {"described": (750, described), "x": (751, first), "y": (753, to)}
        if second is not None:
            parts["b"] = (752, second)
        if chooses is not None:
            parts["t"] = (758, chooses)
        self._add(_POINTWISE_OPERATION, **parts)
        return to

    def _masked(self, scores: Descriptor, queries: int, keys: int) -> Descriptor:
        """Query i sees the keys up to i + keys - queries."""
        row = self._pointwise("index", scores, dtype="int32", axis=_OF_QUERIES)
        column = self._pointwise("index", scores, dtype="int32", axis=_OF_KEYS)
        if queries != keys:
            for mode, length in (("add", keys), ("subtract", queries)):
                number = self._number(c_int32(length), "int32")
                row = self._pointwise(mode, row, number, dtype="int32", computed_in="int32")
        seen = self._pointwise("at_least", row, column, dtype="boolean", computed_in="boolean")
        version = tuple(map(int, self._library.version.split(".")[:2]))
        unseen = -math.inf if version >= _INFINITE_SINCE else -3.4028234663852886e38
        return self._pointwise("select", scores, self._number(c_float(unseen), "fp32"), seen)


def _strides(dims: Sequence[int]) -> list[int]:
    """Of a contiguous array, in elements."""
    return [math.prod(dims[axis + 1 :]) for axis in range(len(dims))]
