"""The harness's own kernels on a GPU (kernels/gpu/device_work.hpp): inputs, reference, comparison."""

from __future__ import annotations

import ctypes
import math
import struct
from ctypes import c_int, c_longlong, c_ulonglong, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.measure.reference import STORAGE, integer_range
from harness.problem import DIRECTIONS, GemmProblem, Problem
from harness.target.gpu_abi import EXTENTS
from harness.target.runtime.driver import Arguments, Driver, Geometry, Launch
from harness.target.stray_values import POISON_BYTE

GUARD_BYTES = 256 << 10
"""Before and after each buffer; a multiple of every alignment that a kernel may count on."""
GUARD_BYTE = 0x5A

WORK_KERNELS = (
    *(
        "to_fill_integers",
        "to_fill_random",
        "to_reference",
        "to_reference_long",
        "to_product",
        "to_product_long",
    ),
    *("to_compare", "to_count_other"),
)
"""What device_work.hpp exports."""

_DTYPES = ("bf16", "fp16", "fp32", "fp8")
"""As device_work.hpp numbers them."""

_THREADS = 256
_MOST_BLOCKS = 1 << 15
_LONG_SUM = 4096
"""Products of one value from which a whole block adds them up, where there are not many values."""
_FEW_VALUES = 1 << 18
_VERDICT = struct.Struct("<4Q")
_NOWHERE = 2**64 - 1


class _Convolution(ctypes.Structure):
    """device_work.hpp: to_work::Convolution."""

    _fields_ = (
        *((name, c_void_p) for name in ("in0", "in1", "out")),
        *((name, c_int) for name in ("direction", "dtype", *EXTENTS)),
    )


class _Product(ctypes.Structure):
    """device_work.hpp: to_work::Product."""

    _fields_ = (
        *((name, c_void_p) for name in ("a", "b", "c")),
        *((name, c_longlong) for name in ("a_row", "a_depth", "b_depth", "b_column")),
        *((name, c_int) for name in ("M", "N", "K", "dtype", "result_dtype")),
    )


def operand_bytes(problem: Problem) -> tuple[int, int, int]:
    """Of both inputs and of the output."""
    first, second, out = (math.prod(shape) for shape in problem.operand_shapes)
    size, result_size = STORAGE[problem.dtype].itemsize, STORAGE[problem.result_dtype].itemsize
    return (first * size, second * size, out * result_size)


@dataclass(frozen=True)
class Verdict:
    """What a comparison found. first: the lowest index of a wrong value, or None."""

    wrong: int
    first: int | None
    unwritten: int
    nan: int


class Buffer:
    """Device memory between two guard zones. `close` gives it back."""

    def __init__(self, driver: Driver, size_bytes: int, guard: int = GUARD_BYTE) -> None:
        """`guard`: the byte that fills the guard zones, and the buffer at first."""
        self._driver = driver
        self.size_bytes = size_bytes
        self._base = driver.allocate(size_bytes + 2 * GUARD_BYTES)
        self.address = self._base + GUARD_BYTES
        driver.set_bytes(self._base, guard, size_bytes + 2 * GUARD_BYTES)

    @property
    def guards(self) -> tuple[int, int]:
        """Where the guard zones begin."""
        return self._base, self.address + self.size_bytes

    def poison(self) -> None:
        """Fills all but the guard zones with what no kernel writes."""
        self._driver.set_bytes(self.address, POISON_BYTE, self.size_bytes)

    def close(self) -> None:
        self._driver.free(self._base)


class DeviceWork:
    """Launches the kernels. Nothing is waited for but verdicts."""

    def __init__(self, driver: Driver, binary: Path) -> None:
        self._driver = driver
        module = driver.load_module(binary.read_bytes())
        self._functions = {name: driver.function(module, name) for name in WORK_KERNELS}
        self._verdict = driver.allocate(_VERDICT.size)

    def fill_integers(self, problem: Problem, seed: int, first: int, second: int) -> None:
        """Both operands: integers so small that every partial sum of products stays exact in fp32."""
        limits = integer_range(problem)
        operands = ((first, limits.first, limits.kept), (second, limits.second, 1.0))
        for number, (address, amplitude, share) in enumerate(operands):
            count = math.prod(problem.operand_shapes[number])
            self._run(
                "to_fill_integers",
                _blocks(count),
                *(c_void_p(address), c_longlong(count), c_ulonglong(_stream(seed, number))),
                *(c_longlong(amplitude), c_ulonglong(int(share * 2**32)), _dtype(problem.dtype)),
            )

    def fill_random(self, problem: Problem, seed: int, first: int, second: int) -> None:
        """Both operands: numbers of variance 1."""
        for number, address in enumerate((first, second)):
            count = math.prod(problem.operand_shapes[number])
            self._run(
                "to_fill_random",
                _blocks(count),
                *(c_void_p(address), c_longlong(count), c_ulonglong(_stream(seed, 2 + number))),
                _dtype(problem.dtype),
            )

    def reference(self, problem: Problem, first: int, second: int, out: int) -> None:
        """The convolution or the product by its definition."""
        name, args = _by_definition(problem, first, second, out)
        values = math.prod(problem.operand_shapes[2])
        if problem.gemm_shape[2] >= _LONG_SUM and values <= _FEW_VALUES:
            self._run(f"{name}_long", min(values, _MOST_BLOCKS), args)
        else:
            self._run(name, _blocks(values), args)

    def compare(self, problem: Problem, got: int, want: int) -> Verdict:
        """Compares two outputs, bit for bit but for the sign of zeros."""
        self._clear()
        count = math.prod(problem.operand_shapes[2])
        addresses = (c_void_p(got), c_void_p(want))
        self._run(
            "to_compare",
            _blocks(count),
            *(*addresses, c_longlong(count), _dtype(problem.result_dtype), c_void_p(self._verdict)),
        )
        wrong, first, unwritten, nan = self._read()
        return Verdict(wrong, None if first == _NOWHERE else first, unwritten, nan)

    def damaged_guard_bytes(self, buffer: Buffer, guard: int = GUARD_BYTE) -> int:
        """How many bytes beside a buffer are not what they were."""
        self._clear()
        before, after = buffer.guards
        self._run(
            "to_count_other",
            _blocks(GUARD_BYTES),
            *(c_void_p(before), c_void_p(after), c_longlong(GUARD_BYTES), c_int(guard)),
            c_void_p(self._verdict),
        )
        return self._read()[0]

    def value(self, problem: Problem, out: int, index: int) -> bytes:
        """One value of an output, as it is stored."""
        size = STORAGE[problem.result_dtype].itemsize
        return self._driver.copy_out(out + index * size, size)

    def _clear(self) -> None:
        self._driver.copy_in(self._verdict, _VERDICT.pack(0, _NOWHERE, 0, 0))

    def _read(self) -> tuple[int, int, int, int]:
        wrong, first, unwritten, nan = _VERDICT.unpack(self._driver.copy_out(self._verdict, _VERDICT.size))
        return wrong, first, unwritten, nan

    def _run(self, name: str, blocks: int, *arguments: Any) -> None:
        geometry = Geometry((max(1, blocks), 1, 1), (_THREADS, 1, 1))
        self._driver.launch(Launch(self._functions[name], geometry, Arguments(*arguments)))


def _by_definition(problem: Problem, first: int, second: int, out: int) -> tuple[str, ctypes.Structure]:
    """Name and argument of the kernel that computes what the problem's definition says."""
    if isinstance(problem, GemmProblem):
        a = (problem.K, 1) if problem.layout[0] == "r" else (1, problem.M)
        b = (problem.N, 1) if problem.layout[1] == "r" else (1, problem.K)
        types = (_DTYPES.index(problem.dtype), _DTYPES.index(problem.result_dtype))
        return "to_product", _Product(first, second, out, *a, *b, *problem.gemm_shape, *types)
    args = _Convolution(first, second, out, DIRECTIONS.index(problem.direction))
    args.dtype = _DTYPES.index(problem.dtype)
    for name in EXTENTS:
        setattr(args, name, getattr(problem, name))
    return "to_reference", args


def _dtype(dtype: str) -> c_int:
    return c_int(_DTYPES.index(dtype))


def _blocks(count: int) -> int:
    return min(-(-count // _THREADS), _MOST_BLOCKS)


def _stream(seed: int, number: int) -> int:
    """Seeds of different buffers must not be neighbours: the generator counts on from its seed."""
    return (seed * 0x2545F4914F6CDD1D + number * 0xD1342543DE82EF95) % 2**64
