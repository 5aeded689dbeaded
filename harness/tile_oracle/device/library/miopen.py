"""MIOpen's C interface, as far as convolutions in its immediate mode need it.

Functions, structures and numbers are those of miopen.h of ROCm 6 (github.com/ROCm/MIOpen). The library names
the solutions for a convolution, the fastest first by its own estimate, and runs one by its number.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_float, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.library.calls import Calls, Prepared, StreamLibrary, channels_second
from tile_oracle.libraries.offers import ProblemOffers
from tile_oracle.problem import Problem

_TYPES: Mapping[str, int] = {"fp16": 0, "fp32": 1, "bf16": 5}
_CROSS_CORRELATION = 0
_DIRECTIONS: Mapping[str, tuple[str, tuple[int, int]]] = {
    "forward": ("ConvolutionForward", (1, 0)),
    "bwd_data": ("ConvolutionBackwardData", (0, 1)),
    "bwd_weight": ("ConvolutionBackwardWeights", (1, 0)),
}
"""Direction -> how its functions begin, and the places of their two operands among ours."""


class _Solution(ctypes.Structure):
    """miopenConvSolution_t."""

    _fields_ = (
        ("time_ms", c_float),
        ("workspace_bytes", c_size_t),
        ("number", c_uint64),
        ("algorithm", c_int),
    )


_V, _I, _S = c_void_p, c_int, c_size_t
_OF_DIRECTION: Mapping[str, tuple[Any, ...]] = {
    "GetSolutionCount": (*[_V] * 5, _V),
    "GetSolution": (*[_V] * 5, _S, _V, _V),
    "GetSolutionWorkspaceSize": (*[_V] * 5, c_uint64, _V),
    "CompileSolution": (*[_V] * 5, c_uint64),
    "Immediate": (*[_V] * 9, _S, c_uint64),
}
_SIGNATURES: Mapping[str, tuple[Any, ...]] = {
    "Create": (_V,),
    "SetStream": (_V, _V),
    "GetVersion": (_V, _V, _V),
    "CreateTensorDescriptor": (_V,),
    "SetTensorDescriptor": (_V, _I, _I, _V, _V),
    "DestroyTensorDescriptor": (_V,),
    "CreateConvolutionDescriptor": (_V,),
    "InitConvolutionNdDescriptor": (_V, _I, _V, _V, _V, _I),
    "SetConvolutionGroupCount": (_V, _I),
    "DestroyConvolutionDescriptor": (_V,),
    **{
        f"{begin}{end}": arguments
        for begin, _ in _DIRECTIONS.values()
        for end, arguments in _OF_DIRECTION.items()
    },
}


class Miopen(StreamLibrary):
    """The loaded library with a handle for the current device.

    Raises OSError and ValueError when it cannot be loaded, LibraryFailure when it cannot be initialized.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(Calls(path, "miopen", _SIGNATURES, "GetErrorString"))
        numbers = [c_size_t() for _ in range(3)]
        self.calls("GetVersion", *map(byref, numbers))
        self.version = ".".join(str(one.value) for one in numbers)


class MiopenConvolution:
    """A problem's convolution as the library sees it: channels-last tensors by their strides."""

    def __init__(self, library: Miopen, problem: Problem) -> None:
        """Raises LibraryFailure for a convolution that the library does not take."""
        self._library, calls = library, library.calls
        row = problem.as_row()
        self._begin, self._order = _DIRECTIONS[row["direction"]]
        axes = ("d", "h", "w")[3 - row["ndim"] :]
        self._convolution = calls.made("CreateConvolutionDescriptor")
        pads, strides, dilations = (
            _integers([row[f"{name}_{axis}"] for axis in axes]) for name in ("pad", "stride", "dilation")
        )
        described = (len(axes), pads, strides, dilations, _CROSS_CORRELATION)
        calls("InitConvolutionNdDescriptor", self._convolution, *described)
        calls("SetConvolutionGroupCount", self._convolution, row["G"])
        weight = 2 if row["direction"] == "bwd_weight" else 1
        self._tensors = [
            self._tensor(shape, problem.dtype, weight=place == weight)
            for place, shape in enumerate(problem.operand_shapes)
        ]
        self._compiled: set[int] = set()

    def _tensor(self, shape: Sequence[int], dtype: str, *, weight: bool) -> c_void_p:
        dims, strides = map(_integers, channels_second(shape, weight=weight))
        tensor = self._library.calls.made("CreateTensorDescriptor")
        self._library.calls("SetTensorDescriptor", tensor, _TYPES[dtype], len(dims), dims, strides)
        return tensor

    @property
    def _described(self) -> tuple[c_void_p, ...]:
        """What the functions of a direction begin with."""
        first, second = (self._tensors[place] for place in self._order)
        return (self._library.handle, first, second, self._convolution, self._tensors[2])

    def solutions(self) -> list[tuple[int, int]]:
        """(number, bytes of workspace) of the library's solutions, its first choice first."""
        calls, count = self._library.calls, c_size_t()
        calls(f"{self._begin}GetSolutionCount", *self._described, byref(count))
        found = (_Solution * max(1, count.value))()
        most = c_size_t(count.value)
        if count.value:
            calls(f"{self._begin}GetSolution", *self._described, count, byref(most), found)
        return [(int(one.number), int(one.workspace_bytes)) for one in found[: most.value]]

    def prepare(self, number: int) -> Prepared:
        """Compiles a solution. Raises Unlaunchable where it is none of this problem's, LibraryFailure."""
        library, size = self._library, c_size_t()
        name = f"{self._begin}GetSolutionWorkspaceSize"
        code = library.calls.status(name, *self._described, number, byref(size))
        if code:
            raise Unlaunchable(str(library.calls.failure(name, code)))
        if number not in self._compiled:
            library.calls(f"{self._begin}CompileSolution", *self._described, number)
            self._compiled.add(number)
        first, second = self._order

        def prepare(*addresses: int) -> Callable[[int], None]:
            *operands, out, workspace = addresses

            def start(stream: int) -> None:
                library.use_stream(stream)
                library.calls(
                    f"{self._begin}Immediate",
                    *(library.handle, self._tensors[first], operands[first]),
                    *(self._tensors[second], operands[second], self._convolution, self._tensors[2], out),
                    *(workspace or None, size.value, number),
                )

            return start

        return size.value, prepare

    def close(self) -> None:
        """Frees the descriptors."""
        for tensor in self._tensors:
            self._library.calls("DestroyTensorDescriptor", tensor)
        self._library.calls("DestroyConvolutionDescriptor", self._convolution)


def _integers(values: Sequence[int]) -> Any:
    """Returns an array of C integers. Raises Unlaunchable for a number that does not fit."""
    if any(value >= 2**31 for value in values):
        raise Unlaunchable("a size or stride of 2^31 or more is not one of MIOpen's integers")
    return (c_int * len(values))(*values)


def offers_for(library: Miopen, convolution: MiopenConvolution, most: int) -> ProblemOffers:
    """Returns the first `most` solutions. Raises LibraryFailure."""
    found = ((f"s{number}", str(number), needed) for number, needed in convolution.solutions())
    return ProblemOffers.ranked("miopen", found, most)
