"""cuBLASLt's C interface, as far as products of two matrices need it.

Functions, structures and numbers are those that NVIDIA documents in "cuBLAS Library", chapter "Using the
cuBLASLt API" (docs.nvidia.com/cuda/cublas). They are the same in versions 12 and 13.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import byref, c_int, c_int32, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.library.blaslt import R_32F, BlasLt, Interface, Product, result_of
from tile_oracle.device.library.calls import Prepared, version_text

_COMPUTE_32F = 68
_PREF_WORKSPACE, _PREF_REDUCTIONS = 1, 3
_PREF_ALIGNMENTS = (5, 6, 7, 8)
_ALIGNMENT_BYTES = 16
"""What a kernel may rely on (kernels/gpu/abi.h): some checks place the operands 16 bytes off a boundary."""

REDUCTION_IN_COMPUTE_TYPE = 2
_CAP_SPLIT_K, _CAP_REDUCTIONS, _CAP_SWIZZLE, _CAP_TILES, _CAP_CUSTOM, _CAP_STAGES = 0, 1, 2, 6, 7, 13
_CAP_ALIGNMENTS = (16, 17, 18, 19)

_ALGORITHM_BYTES = 64


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t."""

    _fields_ = (("data", c_uint64 * 8),)

    @classmethod
    def of(cls, data: str) -> Algorithm:
        """From hexadecimal digits. Raises ValueError."""
        raw = bytes.fromhex(data)
        if len(raw) != _ALGORITHM_BYTES:
            raise ValueError(f"an algorithm of cuBLASLt has {_ALGORITHM_BYTES} bytes, not {len(raw)}")
        return cls.from_buffer_copy(raw)

    def hex(self) -> str:
        return bytes(self).hex()


class Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = result_of(Algorithm)


_INTERFACE = Interface(
    "cublasLt", _COMPUTE_32F, keep=0, transpose=1, desc_trans=(3, 4), scales=(17, 18), scale_modes=(31, 32),
    batch=(5, 6), epilogue=7, bias=(8, 10), not_supported=15, result=Result, statuses="GetStatusName",
)  # fmt: skip

CONFIGURATION: Mapping[str, tuple[int, Any, int]] = {
    "id": (0, c_int32, -1), "tile": (1, c_uint32, 0), "stages": (6, c_uint32, 0),
    "split_k": (2, c_int32, 1), "reduction": (3, c_uint32, 0), "swizzle": (4, c_uint32, 0),
    "custom": (5, c_uint32, 0), "inner": (7, c_uint16, 0), "cluster": (8, c_uint16, 0),
}  # fmt: skip
"""Word in an algorithm's name -> attribute, its type, and the value that a name leaves out."""

_V, _I, _S = c_void_p, c_int, c_size_t
_SIGNATURES: Mapping[str, tuple[Any, ...]] = {
    "MatmulAlgoGetIds": (_V, *[_I] * 7, _V, _V), "MatmulAlgoInit": (_V, *[_I] * 7, _V),
    "MatmulAlgoCheck": (*[_V] * 8,), "MatmulAlgoCapGetAttribute": (_V, _I, _V, _S, _V),
    "MatmulAlgoConfigSetAttribute": (_V, _I, _V, _S), "MatmulAlgoConfigGetAttribute": (_V, _I, _V, _S, _V),
}  # fmt: skip


@dataclass(frozen=True)
class AlgorithmLimits:
    """The values that an algorithm can be configured to.

    reductions: bits of the reduction schemes. custom: the largest custom option. aligned: whether operands
    aligned as here are enough.
    """

    tiles: tuple[int, ...]
    stages: tuple[int, ...]
    splits: bool
    reductions: int
    swizzle: int
    custom: int
    aligned: bool


class CublasLt(BlasLt):
    """The loaded library."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _INTERFACE, _SIGNATURES)
        self.version = version_text(self.calls.number("GetVersion"))

    def initialized(self, number: int, types: tuple[int, ...]) -> Algorithm | None:
        """Returns the algorithm of an id, with its default configuration; None where it is not for these
        types."""
        algorithm = Algorithm()
        code = self.calls.status(
            "MatmulAlgoInit", self.handle, _COMPUTE_32F, R_32F, *types, number, byref(algorithm)
        )
        return None if code else algorithm

    def ids(self, types: tuple[int, ...], most: int = 4096) -> tuple[int, ...]:
        """Returns the ids of all algorithms for these types."""
        found, count = (c_int * most)(), c_int()
        self.calls("MatmulAlgoGetIds", self.handle, _COMPUTE_32F, R_32F, *types, most, found, byref(count))
        return tuple(sorted(found[: count.value]))

    def capability(self, algorithm: Algorithm, number: int) -> int:
        """Returns a capability that is one number, 0 where the version does not know it."""
        value, written = c_uint32(), c_size_t()
        asked = (byref(algorithm), number, byref(value), ctypes.sizeof(value), byref(written))
        return 0 if self.calls.status("MatmulAlgoCapGetAttribute", *asked) else value.value

    def capabilities(self, algorithm: Algorithm, number: int) -> tuple[int, ...]:
        """Returns a capability that is a list; (0,), which means undefined, where it is empty."""
        written = c_size_t()
        ask = "MatmulAlgoCapGetAttribute"
        if self.calls.status(ask, byref(algorithm), number, None, 0, byref(written)) or not written.value:
            return (0,)
        values = (c_uint32 * (written.value // 4))()
        if self.calls.status(ask, byref(algorithm), number, values, ctypes.sizeof(values), byref(written)):
            return (0,)
        return tuple(values) or (0,)

    def limits(self, algorithm: Algorithm) -> AlgorithmLimits:
        """Returns what an initialized algorithm can be configured to."""
        tiles, stages = (self.capabilities(algorithm, number) for number in (_CAP_TILES, _CAP_STAGES))
        of_one = (_CAP_SPLIT_K, _CAP_REDUCTIONS, _CAP_SWIZZLE, _CAP_CUSTOM, *_CAP_ALIGNMENTS)
        splits, *numbers = (self.capability(algorithm, number) for number in of_one)
        reductions, swizzle, custom, *alignments = numbers
        aligned = max(alignments) <= _ALIGNMENT_BYTES
        return AlgorithmLimits(tiles, stages, bool(splits), reductions, swizzle, custom, aligned)

    def configured(self, algorithm: Algorithm, **values: int) -> Algorithm | None:
        """Returns a copy with these values of CONFIGURATION; None where the library does not take one."""
        made = Algorithm.from_buffer_copy(bytes(algorithm))
        for word, value in values.items():
            number, kind, _ = CONFIGURATION[word]
            cell = kind(value)
            if self.calls.status(
                "MatmulAlgoConfigSetAttribute", byref(made), number, byref(cell), ctypes.sizeof(cell)
            ):
                return None
        return made

    def configuration(self, algorithm: Algorithm) -> dict[str, int]:
        """Returns the values of CONFIGURATION, 0 for those that the version does not know."""
        found = {}
        for word, (number, kind, _) in CONFIGURATION.items():
            cell, written = kind(), c_size_t()
            self.calls.status(
                "MatmulAlgoConfigGetAttribute",
                *(byref(algorithm), number, byref(cell), ctypes.sizeof(cell), byref(written)),
            )
            found[word] = int(cell.value)
        return found


class CublasProduct(Product):
    """A product as cuBLASLt sees it."""

    _library: CublasLt

    def check(self, algorithm: Algorithm) -> tuple[int, Result]:
        """Returns the library's status for an algorithm, and its demands: 0 where it computes the product."""
        library, result = self._library, Result()
        code = library.calls.status(
            "MatmulAlgoCheck", library.handle, *self.described, byref(algorithm), byref(result)
        )
        return code or int(result.state), result

    def ranking(self, most: int, workspace_bytes: int) -> list[Result]:
        """Returns the library's own ranking.

        Sums that leave the registers stay in fp32: reductions in the type of the result would round twice.
        """
        alignments = ((attribute, c_uint32(_ALIGNMENT_BYTES)) for attribute in _PREF_ALIGNMENTS)
        workspace = (_PREF_WORKSPACE, c_size_t(workspace_bytes))
        reductions = (_PREF_REDUCTIONS, c_uint32(REDUCTION_IN_COMPUTE_TYPE))
        return self.heuristic(most, (workspace, reductions, *alignments))

    def prepare(self, algorithm: Algorithm) -> Prepared:
        code, demands = self.check(algorithm)
        if code:
            raise Unlaunchable(str(self._library.calls.failure("MatmulAlgoCheck", code)))
        needed = int(demands.workspace_bytes)
        return needed, self.starting(algorithm, needed)
