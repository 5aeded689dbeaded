"""hipBLASLt's C interface, as far as products of two matrices need it.

Functions, structures and numbers are those of hipblaslt.h of ROCm 6 and 7 (github.com/ROCm/hipBLASLt). The C
interface offers what the heuristic returns; it has no enumeration and no check of a single algorithm.
"""

from __future__ import annotations

import ctypes
import zlib
from ctypes import byref, c_int, c_size_t, c_uint8, c_uint64, c_void_p
from pathlib import Path

from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.library.blaslt import BlasLt, Interface, Product, result_of
from tile_oracle.device.library.calls import Prepared
from tile_oracle.libraries.offers import WORKSPACE_BYTES, ProblemOffers
from tile_oracle.problem import Problem

_PREF_WORKSPACE = 1
_MOST_RANKED = 4096
_INDEX_BYTES, _DATA_BYTES = 4, 16


class _Algorithm(ctypes.Structure):
    """hipblasLtMatmulAlgo_t."""

    _fields_ = (("data", c_uint8 * _DATA_BYTES), ("most_workspace_bytes", c_size_t))


class _Result(ctypes.Structure):
    """hipblasLtMatmulHeuristicResult_t."""

    _fields_ = result_of(_Algorithm)


_STATUSES = {
    1: "NOT_INITIALIZED", 2: "ALLOC_FAILED", 3: "INVALID_VALUE", 5: "EXECUTION_FAILED", 6: "INTERNAL_ERROR",
    7: "NOT_SUPPORTED", 8: "ARCH_MISMATCH",
}  # fmt: skip
_INTERFACE = Interface(
    "hipblasLt", 2, keep=111, transpose=112, desc_trans=(0, 1), scales=(5, 6), scale_modes=(31, 32),
    batch=(0, 1), epilogue=2, bias=(3, None), not_supported=7, result=_Result,
    statuses={number: f"HIPBLAS_STATUS_{name}" for number, name in _STATUSES.items()},
)  # fmt: skip


class HipblasLt(BlasLt):
    """The loaded library."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _INTERFACE, {"GetVersion": (c_void_p, c_void_p)})
        number = c_int()
        self.calls("GetVersion", self.handle, byref(number))
        found = number.value
        self.version = f"{found // 100000}.{found // 100 % 1000}.{found % 100}"


class HipProduct(Product):
    """A product as hipBLASLt sees it.

    ranked: workspace of each algorithm that the library names, by the algorithm's bytes, in its order.
    """

    def __init__(self, library: HipblasLt, problem: Problem) -> None:
        super().__init__(library, problem)
        most = c_uint64(WORKSPACE_BYTES["hipblaslt"])
        found = self.heuristic(_MOST_RANKED, [(_PREF_WORKSPACE, most)])
        self.ranked = {bytes(one.algorithm): int(one.workspace_bytes) for one in found}

    def prepare(self, algorithm: bytes) -> Prepared:
        if algorithm not in self.ranked:
            raise Unlaunchable("hipBLASLt does not name the algorithm for this problem")
        needed = self.ranked[algorithm]
        return needed, self.starting(_Algorithm.from_buffer_copy(algorithm), needed)


def algorithm_of(data: str) -> bytes:
    """Returns an algorithm from hexadecimal digits. Raises ValueError."""
    raw = bytes.fromhex(data)
    if len(raw) != ctypes.sizeof(_Algorithm):
        raise ValueError(f"an algorithm of hipBLASLt has {ctypes.sizeof(_Algorithm)} bytes, not {len(raw)}")
    return raw


def name_of(algorithm: bytes) -> str:
    """s1234: the number of the library's solution; and a hash of further data, if there is any."""
    number = int.from_bytes(algorithm[:_INDEX_BYTES], "little")
    more = algorithm[_INDEX_BYTES:_DATA_BYTES]
    return f"s{number}.bits=x{zlib.crc32(more):08x}" if any(more) else f"s{number}"


def offers_for(library: HipblasLt, product: HipProduct, most: int) -> ProblemOffers:
    """Returns the first `most` of the library's ranking."""
    found = {name_of(algorithm): (algorithm, needed) for algorithm, needed in product.ranked.items()}
    ranking = ((name, algorithm.hex(), needed) for name, (algorithm, needed) in found.items())
    return ProblemOffers.ranked("hipblaslt", ranking, most)
