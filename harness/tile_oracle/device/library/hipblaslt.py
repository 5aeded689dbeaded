"""hipBLASLt's C interface, as far as products of two matrices need it.

Functions, structures and numbers are those of hipblaslt.h of ROCm 6 and 7 (github.com/ROCm/hipBLASLt). The C
interface offers what the heuristic returns; it has no enumeration and no check of a single algorithm.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Mapping
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint64, c_void_p
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.library.calls import Calls, LibraryFailure
from tile_oracle.device.library.operands import transposed_operands
from tile_oracle.problem import Problem
from tile_oracle.vendor.offers import WORKSPACE_BYTES, Offer, ProblemOffers

_COMPUTE_32F = 2
_R_32F = 0
_TYPES: Mapping[str, int] = MappingProxyType({"bf16": 14, "fp16": 2, "fp32": _R_32F, "fp8": 28})
"""hipDataType. fp8 is OCP's E4M3."""
_KEEP, _TRANSPOSE = 111, 112
_DESC_TRANSA, _DESC_TRANSB = 0, 1
_PREF_WORKSPACE = 1
_NOT_SUPPORTED = 7
_MOST_RANKED = 4096
_INDEX_BYTES, _DATA_BYTES = 4, 16
_STATUSES: Mapping[int, str] = MappingProxyType(
    {
        1: "HIPBLAS_STATUS_NOT_INITIALIZED",
        2: "HIPBLAS_STATUS_ALLOC_FAILED",
        3: "HIPBLAS_STATUS_INVALID_VALUE",
        5: "HIPBLAS_STATUS_EXECUTION_FAILED",
        6: "HIPBLAS_STATUS_INTERNAL_ERROR",
        _NOT_SUPPORTED: "HIPBLAS_STATUS_NOT_SUPPORTED",
        8: "HIPBLAS_STATUS_ARCH_MISMATCH",
    }
)


class _Algorithm(ctypes.Structure):
    """hipblasLtMatmulAlgo_t."""

    _fields_ = (("data", c_uint8 * _DATA_BYTES), ("most_workspace_bytes", c_size_t))


class _Result(ctypes.Structure):
    """hipblasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", _Algorithm),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


_V, _I, _S = c_void_p, c_int, c_size_t
_SIGNATURES: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "hipblasLtCreate": (_V,),
        "hipblasLtGetVersion": (_V, _V),
        "hipblasLtMatmulDescCreate": (_V, _I, _I),
        "hipblasLtMatmulDescSetAttribute": (_V, _I, _V, _S),
        "hipblasLtMatmulDescDestroy": (_V,),
        "hipblasLtMatrixLayoutCreate": (_V, _I, c_uint64, c_uint64, c_int64),
        "hipblasLtMatrixLayoutDestroy": (_V,),
        "hipblasLtMatmulPreferenceCreate": (_V,),
        "hipblasLtMatmulPreferenceSetAttribute": (_V, _I, _V, _S),
        "hipblasLtMatmulPreferenceDestroy": (_V,),
        "hipblasLtMatmulAlgoGetHeuristic": (*[_V] * 7, _I, _V, _V),
        "hipblasLtMatmul": (*[_V] * 14, _S, _V),
    }
)


class HipblasLt:
    """The loaded library with a handle for the current device.

    Raises OSError and ValueError when it cannot be loaded, LibraryFailure when it cannot be initialized.
    """

    def __init__(self, path: Path) -> None:
        self.calls = Calls(path, _SIGNATURES, _STATUSES)
        self.handle = self.calls.made("hipblasLtCreate")
        number = c_int()
        self.calls("hipblasLtGetVersion", self.handle, byref(number))
        found = number.value
        self.version = f"{found // 100000}.{found // 100 % 1000}.{found % 100}"


class HipProduct:
    """A problem's product as the library sees it: C' = B' A' in columns (see library.cublaslt.Product).

    ranked: workspace of each algorithm that the library names, by the algorithm's bytes, in its order.
    """

    def __init__(self, library: HipblasLt, problem: Problem) -> None:
        """problem: of the operation gemm. Raises Unlaunchable for one that the library cannot be asked for,
        LibraryFailure."""
        transposed = transposed_operands(problem)
        self._library = library
        calls = library.calls
        self._desc = calls.made("hipblasLtMatmulDescCreate", _COMPUTE_32F, _R_32F)
        for attribute, flag in zip((_DESC_TRANSA, _DESC_TRANSB), transposed, strict=True):
            value = c_int32(_TRANSPOSE if flag else _KEEP)
            size = ctypes.sizeof(value)
            calls("hipblasLtMatmulDescSetAttribute", self._desc, attribute, byref(value), size)
        first, second, out = problem.operand_shapes
        operand, result = _TYPES[problem.dtype], _TYPES[problem.result_dtype]
        self._layouts = [
            calls.made("hipblasLtMatrixLayoutCreate", kind, inner, outer, inner)
            for kind, (outer, inner) in ((operand, second), (operand, first), (result, out))
        ]
        self.ranked: dict[bytes, int] = self._heuristic()

    def close(self) -> None:
        """Frees the descriptors."""
        for layout in self._layouts:
            self._library.calls("hipblasLtMatrixLayoutDestroy", layout)
        self._library.calls("hipblasLtMatmulDescDestroy", self._desc)

    def _heuristic(self) -> dict[bytes, int]:
        calls, count = self._library.calls, c_int()
        preference = calls.made("hipblasLtMatmulPreferenceCreate")
        most = c_uint64(WORKSPACE_BYTES["hipblaslt"])
        found = (_Result * _MOST_RANKED)()
        first, second, out = self._layouts
        try:
            size = ctypes.sizeof(most)
            calls("hipblasLtMatmulPreferenceSetAttribute", preference, _PREF_WORKSPACE, byref(most), size)
            name = "hipblasLtMatmulAlgoGetHeuristic"
            asked = (self._library.handle, self._desc, first, second, out, out, preference)
            code = calls.status(name, *asked, _MOST_RANKED, found, byref(count))
            if code and code != _NOT_SUPPORTED:
                raise LibraryFailure(name, code, calls.name_of(code))
        finally:
            calls("hipblasLtMatmulPreferenceDestroy", preference)
        good = [one for one in found[: count.value] if not one.state]
        return {bytes(one.algorithm): int(one.workspace_bytes) for one in good}

    def start(
        self, algorithm: bytes, addresses: tuple[int, int, int, int], workspace_bytes: int, stream: int
    ) -> None:
        """Starts a run on a stream. addresses: of A, B, C and the workspace. Raises LibraryFailure."""
        a, b, c, workspace = addresses
        first, second, out = self._layouts
        one, zero, chosen = c_float(1.0), c_float(0.0), _Algorithm.from_buffer_copy(algorithm)
        self._library.calls(
            "hipblasLtMatmul",
            *(self._library.handle, self._desc, byref(one), b, first, a, second, byref(zero), c, out, c, out),
            *(byref(chosen), workspace or None, workspace_bytes, stream),
        )


def algorithm_of(data: str) -> bytes:
    """An algorithm from hexadecimal digits. Raises ValueError."""
    raw = bytes.fromhex(data)
    if len(raw) != ctypes.sizeof(_Algorithm):
        raise ValueError(f"an algorithm of hipBLASLt has {ctypes.sizeof(_Algorithm)} bytes, not {len(raw)}")
    return raw


def name_of(algorithm: bytes) -> str:
    """s1234: the number of the library's solution; and a hash of further data, if there is any."""
    number = int.from_bytes(algorithm[:_INDEX_BYTES], "little")
    more = algorithm[_INDEX_BYTES:_DATA_BYTES]
    return f"s{number}.bits=x{zlib.crc32(more):08x}" if any(more) else f"s{number}"


def offers_for(library: HipblasLt, problem: Problem, most: int) -> ProblemOffers:
    """The first `most` of the library's ranking. Raises LibraryFailure."""
    try:
        product = HipProduct(library, problem)
    except Unlaunchable as error:
        return ProblemOffers(why_none=str(error))
    found = {name_of(algorithm): (algorithm, needed) for algorithm, needed in product.ranked.items()}
    product.close()
    offers = tuple(
        Offer(name, algorithm.hex(), needed, rank)
        for rank, (name, (algorithm, needed)) in enumerate(list(found.items())[:most])
    )
    return ProblemOffers(offers, "" if offers else "the library has no algorithm for it", len(found))
