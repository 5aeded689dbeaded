"""Attention as cuDNN's backend sees it: one operation, in which a mask is a graph of its own.

The numbers are those of cudnn_graph.h, which also describes the operation
(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR). The mask's operations are in the order of NVIDIA's
cudnn-frontend (github.com/NVIDIA/cudnn-frontend, diagonal_band_mask.h).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from ctypes import c_float, c_int32
from typing import Any

from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.library.cudnn import (
    DATA_TYPE,
    DESCRIPTOR,
    INT64,
    POINTWISE_MODE,
    TYPES,
    Cudnn,
    Descriptor,
    Graph,
)
from tile_oracle.problem import Problem

_POINTWISE, _POINTWISE_OPERATION, _ATTENTION_OPERATION = 0, 13, 41
_Q, _K, _V, _OUT, _SCALE = 2800, 2801, 2802, 2803, 2805
_MASK, _MASK_FROM, _MASK_TO = 2811, 2812, 2813
"""The graph between scores and softmax, and the tensors that it reads and makes."""
_MODES: Mapping[str, int] = {"add": 0, "subtract": 9, "at_least": 303, "index": 501, "select": 601}
"""cudnnPointwiseMode_t."""
_OF_QUERIES, _OF_KEYS = 2, 3
"""Axes of the scores."""
_ATTENTION_SINCE, _MASK_SINCE = (9, 13), (9, 21)


class Attention(Graph):
    """Softmax(Q K^T scale) V of a problem of the operation attention."""

    def __init__(self, library: Cudnn, problem: Problem) -> None:
        """Raises LibraryFailure for a problem that the library does not take, Unlaunchable for one that only
        newer versions take."""
        super().__init__(library)
        row = problem.as_row()
        queries, keys = row["seq_q"], row["seq_kv"]
        # A single query sees all keys.
        masked = bool(row["causal"]) and queries > 1
        since, what = (
            (_MASK_SINCE, "attention with a causal mask") if masked else (_ATTENTION_SINCE, "attention")
        )
        if tuple(map(int, library.version.split(".")[:2])) < since:
            raise Unlaunchable(
                f"cuDNN {library.version} has no {what} in one operation: {since[0]}.{since[1]} has"
            )
        self._next = itertools.count(len(problem.operand_shapes))
        self._scores = (row["batch"], row["heads"], queries, keys)
        operation = self._made(_ATTENTION_OPERATION)
        for number, (attribute, shape) in enumerate(
            zip((_Q, _K, _V, _OUT), problem.operand_shapes, strict=True)
        ):
            tensor = self._array(number, shape, _strides(shape), str(problem.dtype))
            operation.set(attribute, DESCRIPTOR, tensor.handle)
        scale = self._number(c_float(row["head_dim"] ** -0.5), "fp32")
        operation.set(_SCALE, DESCRIPTOR, scale.handle)
        if masked:
            self._mask(operation, queries, keys)
        operation.finalized()
        self.graph = self._graph_of(operation)

    def _mask(self, operation: Descriptor, queries: int, keys: int) -> None:
        """Query i sees the keys up to i + keys - queries."""
        steps: list[Descriptor] = []
        source, scores = self._virtual("fp32")
        _, row = self._pointwise(steps, "index", scores, dtype="int32", axis=_OF_QUERIES)
        _, column = self._pointwise(steps, "index", scores, dtype="int32", axis=_OF_KEYS)
        if queries != keys:
            for mode, length in (("add", keys), ("subtract", queries)):
                number = self._number(c_int32(length), "int32")
                _, row = self._pointwise(steps, mode, row, number, dtype="int32", computed_in="int32")
        _, seen = self._pointwise(steps, "at_least", row, column, dtype="boolean", computed_in="boolean")
        unseen = self._number(c_float(-math.inf), "fp32")
        result, _ = self._pointwise(steps, "select", scores, unseen, seen)
        graph = self._graph_of(*steps)
        operation.set(_MASK, DESCRIPTOR, graph.handle)
        operation.set(_MASK_FROM, INT64, source)
        operation.set(_MASK_TO, INT64, result)

    def _virtual(self, dtype: str) -> tuple[int, Descriptor]:
        """Returns an array between two operations, with its number."""
        identity = next(self._next)
        return identity, self._array(identity, self._scores, _strides(self._scores), dtype, virtual=True)

    def _number(self, value: Any, dtype: str) -> Descriptor:
        """Returns a number that runs take by value."""
        identity = next(self._next)
        self._scalars[identity] = value
        return self._array(identity, (1, 1, 1, 1), (1, 1, 1, 1), dtype, by_value=True)

    def _pointwise(
        self,
        steps: list[Descriptor],
        mode: str,
        first: Descriptor,
        second: Descriptor | None = None,
        chooses: Descriptor | None = None,
        *,
        dtype: str = "fp32",
        computed_in: str = "fp32",
        axis: int | None = None,
    ) -> tuple[int, Descriptor]:
        """Adds an operation on each score to `steps`; returns its result. axis: whose index it is, for
        `index`."""
        described = self._made(_POINTWISE).finalized(
            *((0, POINTWISE_MODE, _MODES[mode]), (1, DATA_TYPE, TYPES[computed_in])),
            *([] if axis is None else [(9, INT64, axis)]),
        )
        identity, to = self._virtual(dtype)
        parts = {750: described, 751: first, 752: second, 753: to, 758: chooses}
        there = (
            (attribute, DESCRIPTOR, part.handle) for attribute, part in parts.items() if part is not None
        )
        steps.append(self._made(_POINTWISE_OPERATION).finalized(*there))
        return identity, to


def _strides(dims: Sequence[int]) -> list[int]:
    """Of a contiguous array, in elements."""
    return [math.prod(dims[axis + 1 :]) for axis in range(len(dims))]
