"""What the C interfaces of cuBLASLt and hipBLASLt share: hipBLASLt's functions are named and called alike."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.library.calls import Calls, Prepare, Statuses
from tile_oracle.problem import Problem

R_32F = 0
TYPES: Mapping[str, int] = {"bf16": 14, "fp16": 2, "fp32": R_32F, "fp8": 28, "fp8_e4m3": 28, "fp8_e5m2": 29}
"""cudaDataType_t and hipDataType, of OCP's formats. fp8 is E4M3."""
_SCALE_MODES: Mapping[str, tuple[int, int]] = {"tensor": (0, 0), "row": (3, 3), "block": (5, 4)}
"""...MatmulMatrixScale_t of the library's operands: of B and A."""
_BLOCK, _BLOCKS_OF_ROW = 128, 4
_EPILOGUES: Mapping[str, tuple[int, float]] = {
    **{"none": (1, 0.0), "residual": (1, 1.0), "bias": (4, 0.0), "bias_residual": (4, 1.0)},
    **{"gelu_tanh": (32, 0.0), "bias_gelu_tanh": (36, 0.0)},
}
"""Epilogue -> ...Epilogue_t, whose GELU is the form with tanh, and the factor of C, which D is."""
_SOME_ADDRESS = 256
"""A heuristic is asked before there are scales."""

_V, _I, _S = c_void_p, c_int, c_size_t
_SIGNATURES: Mapping[str, tuple[Any, ...]] = {
    "Create": (_V,), "MatmulDescCreate": (_V, _I, _I), "MatmulDescSetAttribute": (_V, _I, _V, _S),
    "MatmulDescDestroy": (_V,), "MatrixLayoutCreate": (_V, _I, c_uint64, c_uint64, c_int64),
    "MatrixLayoutSetAttribute": (_V, _I, _V, _S), "MatrixLayoutDestroy": (_V,),
    "MatmulPreferenceCreate": (_V,), "MatmulPreferenceSetAttribute": (_V, _I, _V, _S),
    "MatmulPreferenceDestroy": (_V,), "MatmulAlgoGetHeuristic": (*[_V] * 7, _I, _V, _V),
    "Matmul": (*[_V] * 14, _S, _V),
}  # fmt: skip


@dataclass(frozen=True)
class Interface:
    """In what the two differ."""

    prefix: str
    """How the functions' names begin."""
    compute_32f: int
    keep: int
    transpose: int
    desc_trans: tuple[int, int]
    """The attributes of a product that say whether its operands are transposed."""
    scales: tuple[int, int]
    """Those of the addresses of its operands' scales."""
    scale_modes: tuple[int, int]
    """Those of what has a scale of its own."""
    batch: tuple[int, int]
    """The attributes of a matrix that say how many lie one after the other, and how far apart."""
    epilogue: int
    bias: tuple[int, int | None]
    """Those of a product for the bias: its address, and the distance of those of a batch, if there is one."""
    not_supported: int
    result: type[ctypes.Structure]
    """...MatmulHeuristicResult_t."""
    statuses: Statuses


def result_of(algorithm: type[ctypes.Structure]) -> tuple[tuple[str, Any], ...]:
    """Returns the fields of ...MatmulHeuristicResult_t, given ...MatmulAlgo_t."""
    needs = (("algorithm", algorithm), ("workspace_bytes", c_size_t), ("state", c_int))
    return (*needs, ("waves", c_float), ("reserved", c_int * 4))


class BlasLt:
    """The loaded library with a handle for the current device.

    Raises OSError and ValueError when it cannot be loaded, LibraryFailure when it cannot be initialized.
    """

    version: str

    def __init__(self, path: Path, interface: Interface, signatures: Mapping[str, tuple[Any, ...]]) -> None:
        """signatures: of further functions."""
        self.interface = interface
        self.calls = Calls(path, interface.prefix, {**_SIGNATURES, **signatures}, interface.statuses)
        self.handle = self.calls.made("Create")

    def attribute(self, name: str, of: Any, number: int, value: Any) -> None:
        """Sets an attribute."""
        self.calls(f"{name}SetAttribute", of, number, byref(value), ctypes.sizeof(value))


class Product:
    """A problem's product as the library sees it.

    The library's matrices are column-major, and C in rows is the transpose of C in columns. So it is asked
    for C' = B' A': its first operand is our second, and m is our N.
    """

    def __init__(self, library: BlasLt, problem: Problem) -> None:
        """Raises Unlaunchable for a problem that the library cannot be asked for, LibraryFailure."""
        row, interface = problem.as_row(), library.interface
        if row.get("split_k", 1) != 1:
            raise Unlaunchable(
                f"split_k: the library chooses its own splits, split_k = {row['split_k']} must be 1"
            )
        self._library = library
        self._desc = library.calls.made("MatmulDescCreate", interface.compute_32f, R_32F)
        layouts = row.get("layout", "rcr")
        for attribute, layout in zip(interface.desc_trans, (layouts[1], layouts[0]), strict=True):
            value = c_int32(interface.transpose if layout == "c" else interface.keep)
            library.attribute("MatmulDesc", self._desc, attribute, value)
        (first, second, *_), out = problem.operand_shapes[:-1], problem.operand_shapes[-1]
        of_a, of_b = (TYPES[one] for one in problem.operand_dtypes)
        result = TYPES[problem.result_dtype]
        self.types = (of_b, of_a, result, result)
        self._scales = interface.scales if "scale" in row else ()
        if "scale" in row:
            self._demand_scales(row["scale"], row["K"])
        self._has_bias, self._beta = False, 0.0
        if "epilogue" in row:
            self._demand_epilogue(row["epilogue"], row["batch"], row["N"])
        self._layouts = [
            self._layout(kind, shape) for kind, shape in ((of_b, second), (of_a, first), (result, out))
        ]

    def _layout(self, kind: int, shape: tuple[int, ...]) -> c_void_p:
        """In memory order a matrix of R rows is a column-major matrix of R columns."""
        *batch, outer, inner = shape
        layout = self._library.calls.made("MatrixLayoutCreate", kind, inner, outer, inner)
        if batch != [] and batch != [1]:
            for number, value in zip(
                self._library.interface.batch, (c_int32(*batch), c_int64(outer * inner)), strict=True
            ):
                self._library.attribute("MatrixLayout", layout, number, value)
        return layout

    def _demand_epilogue(self, epilogue: str, batch: int, width: int) -> None:
        """Says what follows the product. Raises Unlaunchable where the library has no such."""
        library, interface = self._library, self._library.interface
        if epilogue not in _EPILOGUES:
            raise Unlaunchable(
                f"epilogue: the library has none of {epilogue}, it has {', '.join(sorted(_EPILOGUES))}"
            )
        number, self._beta = _EPILOGUES[epilogue]
        library.attribute("MatmulDesc", self._desc, interface.epilogue, c_int32(number))
        self._has_bias = epilogue.startswith("bias")
        if self._has_bias:
            address, stride = interface.bias
            library.attribute("MatmulDesc", self._desc, address, c_void_p(_SOME_ADDRESS))
            if batch > 1:
                if stride is None:
                    raise Unlaunchable("epilogue: the library has no bias for each product of a batch")
                library.attribute("MatmulDesc", self._desc, stride, c_int64(width))

    def _demand_scales(self, scale: str, depth: int) -> None:
        """Says what has a scale of its own. Raises Unlaunchable where the library's version has no such."""
        library, interface, blocks = self._library, self._library.interface, -(-depth // _BLOCK)
        if scale == "block" and blocks % _BLOCKS_OF_ROW:
            raise Unlaunchable(
                f"the library's scales of 128 x 128 have rows of multiples of {_BLOCKS_OF_ROW}: "
                f"K = {depth} has {blocks} blocks"
            )
        for attribute, mode in zip(interface.scale_modes, _SCALE_MODES[scale], strict=True):
            value = c_int32(mode)
            asked = (self._desc, attribute, byref(value), ctypes.sizeof(value))
            if mode and (code := library.calls.status("MatmulDescSetAttribute", *asked)):
                failure = library.calls.failure("MatmulDescSetAttribute", code)
                raise Unlaunchable(f"version {library.version} has no scales of {scale}s: {failure.name}")
        self._put_scales((_SOME_ADDRESS, _SOME_ADDRESS))

    def _put_scales(self, addresses: Sequence[int]) -> None:
        for attribute, address in zip(self._scales, reversed(addresses), strict=True):
            self._library.attribute("MatmulDesc", self._desc, attribute, c_void_p(address))

    def close(self) -> None:
        """Frees the descriptors."""
        for layout in self._layouts:
            self._library.calls("MatrixLayoutDestroy", layout)
        self._library.calls("MatmulDescDestroy", self._desc)

    @property
    def described(self) -> tuple[c_void_p, ...]:
        """What functions about a product take."""
        first, second, out = self._layouts
        return (self._desc, first, second, out, out)

    def heuristic(self, most: int, settings: Sequence[tuple[int, Any]]) -> list[Any]:
        """Returns the library's own ranking as `Interface.result`, its first choice first; empty for a
        product that it has nothing for. settings: attributes of the preference. Raises LibraryFailure."""
        library, count = self._library, c_int()
        preference = library.calls.made("MatmulPreferenceCreate")
        try:
            for attribute, value in settings:
                library.attribute("MatmulPreference", preference, attribute, value)
            found = (library.interface.result * most)()
            asked = (library.handle, *self.described, preference)
            code = library.calls.status("MatmulAlgoGetHeuristic", *asked, most, found, byref(count))
            if code and code != library.interface.not_supported:
                raise library.calls.failure("MatmulAlgoGetHeuristic", code)
        finally:
            library.calls("MatmulPreferenceDestroy", preference)
        return [one for one in found[: count.value] if not one.state]

    def starting(self, algorithm: Any, workspace_bytes: int) -> Prepare:
        """Returns what starts a run. algorithm: ...MatmulAlgo_t."""
        first, second, out = self._layouts
        one, beta = c_float(1.0), c_float(self._beta)

        def prepare(*addresses: int) -> Callable[[int], None]:
            a, b, *more, c, workspace = addresses
            added = more.pop() if self._beta else c
            product = (self._desc, byref(one), b, first, a, second, byref(beta), added, out, c, out)
            chosen = (byref(algorithm), workspace or None, workspace_bytes)

            def start(stream: int) -> None:
                if self._has_bias:
                    address, _ = self._library.interface.bias
                    self._library.attribute("MatmulDesc", self._desc, address, c_void_p(more[0]))
                else:
                    self._put_scales(more)
                self._library.calls("Matmul", self._library.handle, *product, *chosen, stream)

            return start

        return prepare
