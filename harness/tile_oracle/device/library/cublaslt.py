"""cuBLASLt's C interface, as far as products of two matrices need it.

Functions, structures and numbers are those that NVIDIA documents in "cuBLAS Library", chapter "Using the
cuBLASLt API" (docs.nvidia.com/cuda/cublas). They are the same in versions 12 and 13.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tile_oracle.device.library.calls import Calls, LibraryFailure
from tile_oracle.device.library.operands import transposed_operands
from tile_oracle.problem import Problem

_COMPUTE_32F = 68
_R_32F = 0
_TYPES: Mapping[str, int] = MappingProxyType({"bf16": 14, "fp16": 2, "fp32": _R_32F, "fp8": 28})
"""cudaDataType_t. fp8 is E4M3."""
_KEEP, _TRANSPOSE = 0, 1
_DESC_TRANSA, _DESC_TRANSB = 3, 4
_PREF_WORKSPACE, _PREF_REDUCTIONS = 1, 3
_PREF_ALIGNMENTS = (5, 6, 7, 8)
_ALIGNMENT_BYTES = 16
"""What a kernel may rely on (kernels/gpu/abi.h): some checks place the operands 16 bytes off a boundary."""

REDUCTION_IN_COMPUTE_TYPE = 2
_CAP_SPLIT_K, _CAP_REDUCTIONS, _CAP_SWIZZLE, _CAP_TILES, _CAP_CUSTOM, _CAP_STAGES = 0, 1, 2, 6, 7, 13
_CAP_ALIGNMENTS = (16, 17, 18, 19)

_ALGORITHM_BYTES = 64
NOT_SUPPORTED = 15
_STATUSES: Mapping[int, str] = MappingProxyType(
    {
        1: "CUBLAS_STATUS_NOT_INITIALIZED",
        3: "CUBLAS_STATUS_ALLOC_FAILED",
        7: "CUBLAS_STATUS_INVALID_VALUE",
        8: "CUBLAS_STATUS_ARCH_MISMATCH",
        11: "CUBLAS_STATUS_MAPPING_ERROR",
        13: "CUBLAS_STATUS_EXECUTION_FAILED",
        14: "CUBLAS_STATUS_INTERNAL_ERROR",
        NOT_SUPPORTED: "CUBLAS_STATUS_NOT_SUPPORTED",
        16: "CUBLAS_STATUS_LICENSE_ERROR",
    }
)


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

    _fields_ = (
        ("algorithm", Algorithm),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


CONFIGURATION: Mapping[str, tuple[int, Any, int]] = MappingProxyType(
    {
        "id": (0, c_int32, -1),
        "tile": (1, c_uint32, 0),
        "stages": (6, c_uint32, 0),
        "split_k": (2, c_int32, 1),
        "reduction": (3, c_uint32, 0),
        "swizzle": (4, c_uint32, 0),
        "custom": (5, c_uint32, 0),
        "inner": (7, c_uint16, 0),
        "cluster": (8, c_uint16, 0),
    }
)
"""Word in an algorithm's name -> attribute, its type, and the value that a name leaves out."""

_V, _I, _S = c_void_p, c_int, c_size_t
_SIGNATURES: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "cublasLtCreate": (_V,),
        "cublasLtMatmulDescCreate": (_V, _I, _I),
        "cublasLtMatmulDescSetAttribute": (_V, _I, _V, _S),
        "cublasLtMatmulDescDestroy": (_V,),
        "cublasLtMatrixLayoutCreate": (_V, _I, c_uint64, c_uint64, c_int64),
        "cublasLtMatrixLayoutDestroy": (_V,),
        "cublasLtMatmulPreferenceCreate": (_V,),
        "cublasLtMatmulPreferenceSetAttribute": (_V, _I, _V, _S),
        "cublasLtMatmulPreferenceDestroy": (_V,),
        "cublasLtMatmulAlgoGetHeuristic": (*[_V] * 7, _I, _V, _V),
        "cublasLtMatmulAlgoGetIds": (_V, *[_I] * 7, _V, _V),
        "cublasLtMatmulAlgoInit": (_V, *[_I] * 7, _V),
        "cublasLtMatmulAlgoCheck": (*[_V] * 8,),
        "cublasLtMatmulAlgoCapGetAttribute": (_V, _I, _V, _S, _V),
        "cublasLtMatmulAlgoConfigSetAttribute": (_V, _I, _V, _S),
        "cublasLtMatmulAlgoConfigGetAttribute": (_V, _I, _V, _S, _V),
        "cublasLtMatmul": (*[_V] * 14, _S, _V),
    }
)


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


class CublasLt:
    """The loaded library with a handle for the current device.

    Raises OSError and ValueError when it cannot be loaded, LibraryFailure when it cannot be initialized.
    """

    def __init__(self, path: Path) -> None:
        self.calls = Calls(path, _SIGNATURES, _STATUSES)
        number = self.calls.library.cublasLtGetVersion
        number.argtypes, number.restype = (), c_size_t
        self.version = _version(int(number()))
        self.handle = self.calls.made("cublasLtCreate")

    def initialized(self, number: int, types: tuple[int, ...]) -> Algorithm | None:
        """The algorithm of an id, with its default configuration; None where it is not for these types."""
        algorithm = Algorithm()
        code = self.calls.status(
            "cublasLtMatmulAlgoInit", self.handle, _COMPUTE_32F, _R_32F, *types, number, byref(algorithm)
        )
        return None if code else algorithm

    def ids(self, types: tuple[int, ...], most: int = 4096) -> tuple[int, ...]:
        """The ids of all algorithms for these types."""
        found, count = (c_int * most)(), c_int()
        self.calls(
            "cublasLtMatmulAlgoGetIds", self.handle, _COMPUTE_32F, _R_32F, *types, most, found, byref(count)
        )
        return tuple(sorted(found[: count.value]))

    def capability(self, algorithm: Algorithm, number: int) -> int:
        """A capability that is one number, 0 where the version does not know it."""
        value, written = c_uint32(), c_size_t()
        code = self.calls.status(
            "cublasLtMatmulAlgoCapGetAttribute",
            *(byref(algorithm), number, byref(value), ctypes.sizeof(value), byref(written)),
        )
        return 0 if code else value.value

    def capabilities(self, algorithm: Algorithm, number: int) -> tuple[int, ...]:
        """A capability that is a list; (0,), which means undefined, where it is empty."""
        written = c_size_t()
        ask = "cublasLtMatmulAlgoCapGetAttribute"
        if self.calls.status(ask, byref(algorithm), number, None, 0, byref(written)) or not written.value:
            return (0,)
        values = (c_uint32 * (written.value // 4))()
        if self.calls.status(ask, byref(algorithm), number, values, ctypes.sizeof(values), byref(written)):
            return (0,)
        return tuple(values) or (0,)

    def limits(self, algorithm: Algorithm) -> AlgorithmLimits:
        """What an initialized algorithm can be configured to."""
        one, several = self.capability, self.capabilities
        return AlgorithmLimits(
            several(algorithm, _CAP_TILES),
            several(algorithm, _CAP_STAGES),
            bool(one(algorithm, _CAP_SPLIT_K)),
            one(algorithm, _CAP_REDUCTIONS),
            one(algorithm, _CAP_SWIZZLE),
            one(algorithm, _CAP_CUSTOM),
            all(one(algorithm, number) <= _ALIGNMENT_BYTES for number in _CAP_ALIGNMENTS),
        )

    def configured(self, algorithm: Algorithm, **values: int) -> Algorithm | None:
        """A copy with these values of CONFIGURATION; None where the library does not take one."""
        made = Algorithm.from_buffer_copy(bytes(algorithm))
        for word, value in values.items():
            number, kind, _ = CONFIGURATION[word]
            cell = kind(value)
            if self.calls.status(
                "cublasLtMatmulAlgoConfigSetAttribute", byref(made), number, byref(cell), ctypes.sizeof(cell)
            ):
                return None
        return made

    def configuration(self, algorithm: Algorithm) -> dict[str, int]:
        """The values of CONFIGURATION, 0 for those that the version does not know."""
        found = {}
        for word, (number, kind, _) in CONFIGURATION.items():
            cell, written = kind(), c_size_t()
            self.calls.status(
                "cublasLtMatmulAlgoConfigGetAttribute",
                *(byref(algorithm), number, byref(cell), ctypes.sizeof(cell), byref(written)),
            )
            found[word] = int(cell.value)
        return found


class Product:
    """A problem's product as the library sees it. `close` frees its descriptors.

    cuBLASLt's matrices are column-major, and C in rows is the transpose of C in columns. So it is asked for
    C' = B' A': its first operand is our second, and m is our N.
    """

    def __init__(self, library: CublasLt, problem: Problem) -> None:
        """problem: of the operation gemm. Raises Unlaunchable for one that the library cannot be asked for,
        LibraryFailure."""
        transposed = transposed_operands(problem)
        self._library, self.problem = library, problem
        calls = library.calls
        self.types = types_of(problem.dtype, problem.result_dtype)
        rows_of_b, columns_of_b = problem.operand_shapes[1]
        rows_of_a, columns_of_a = problem.operand_shapes[0]
        self._desc = calls.made("cublasLtMatmulDescCreate", _COMPUTE_32F, _R_32F)
        for attribute, flag in zip((_DESC_TRANSA, _DESC_TRANSB), transposed, strict=True):
            value = c_int32(_TRANSPOSE if flag else _KEEP)
            calls("cublasLtMatmulDescSetAttribute", self._desc, attribute, byref(value), ctypes.sizeof(value))
        # In memory order a matrix of R rows is a column-major matrix of R columns.
        self._layouts = [
            calls.made("cublasLtMatrixLayoutCreate", kind, inner, outer, inner)
            for kind, outer, inner in (
                (self.types[0], rows_of_b, columns_of_b),
                (self.types[1], rows_of_a, columns_of_a),
                (self.types[2], *problem.operand_shapes[2]),
            )
        ]

    def close(self) -> None:
        """Frees the descriptors."""
        for layout in self._layouts:
            self._library.calls("cublasLtMatrixLayoutDestroy", layout)
        self._library.calls("cublasLtMatmulDescDestroy", self._desc)

    def check(self, algorithm: Algorithm) -> tuple[int, Result]:
        """The library's status for an algorithm, and its demands: 0 where it computes the product."""
        result = Result()
        code = self._library.calls.status(
            "cublasLtMatmulAlgoCheck", self._library.handle, *self._described, byref(algorithm), byref(result)
        )
        return code or int(result.state), result

    @property
    def _described(self) -> tuple[c_void_p, ...]:
        first, second, out = self._layouts
        return (self._desc, first, second, out, out)

    def heuristic(self, most: int, workspace_bytes: int) -> list[Result]:
        """The library's own ranking, its first choice first; empty for a product that it has nothing for.

        Sums that leave the registers stay in fp32: reductions in the type of the result would round twice.
        """
        calls, count = self._library.calls, c_int()
        preference = calls.made("cublasLtMatmulPreferenceCreate")
        try:
            reductions = c_uint32(REDUCTION_IN_COMPUTE_TYPE)
            settings: list[tuple[int, Any]] = [
                (_PREF_WORKSPACE, c_size_t(workspace_bytes)),
                (_PREF_REDUCTIONS, reductions),
                *((attribute, c_uint32(_ALIGNMENT_BYTES)) for attribute in _PREF_ALIGNMENTS),
            ]
            for attribute, value in settings:
                calls(
                    "cublasLtMatmulPreferenceSetAttribute",
                    *(preference, attribute, byref(value), ctypes.sizeof(value)),
                )
            found = (Result * most)()
            name = "cublasLtMatmulAlgoGetHeuristic"
            asked = (self._library.handle, *self._described, preference)
            code = calls.status(name, *asked, most, found, byref(count))
            if code == NOT_SUPPORTED:
                return []
            if code:
                raise LibraryFailure(name, code, calls.name_of(code))
        finally:
            calls("cublasLtMatmulPreferenceDestroy", preference)
        return [one for one in found[: count.value] if not one.state]

    def start(
        self, algorithm: Algorithm, addresses: tuple[int, int, int, int], workspace_bytes: int, stream: int
    ) -> None:
        """Starts a run on a stream. addresses: of A, B, C and the workspace. Raises LibraryFailure."""
        a, b, c, workspace = addresses
        first, second, out = self._layouts
        one, zero = c_float(1.0), c_float(0.0)
        self._library.calls(
            "cublasLtMatmul",
            *(self._library.handle, self._desc, byref(one), b, first, a, second, byref(zero), c, out, c, out),
            *(byref(algorithm), workspace or None, workspace_bytes, stream),
        )


def types_of(dtype: str, result_dtype: str) -> tuple[int, int, int, int]:
    """The cudaDataType_t of both operands, C and D."""
    result = _TYPES[result_dtype]
    return (_TYPES[dtype], _TYPES[dtype], result, result)


def _version(number: int) -> str:
    """130100 -> 13.1.0."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
