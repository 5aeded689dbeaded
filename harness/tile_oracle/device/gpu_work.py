"""The harness's own kernels on a GPU (kernels/gpu/device_work.hpp): inputs, reference, comparison."""

from __future__ import annotations

import ctypes
import math
import struct
from ctypes import c_float, c_int, c_longlong, c_ulonglong, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tile_oracle.device.check_data import (
    Pattern,
    columns_of_result,
    columns_of_second,
    dense,
    fold_axes,
)
from tile_oracle.device.gpu_abi import WORK_DTYPES
from tile_oracle.device.runtime.driver import Arguments, Driver, Geometry, Launch
from tile_oracle.device.stray_values import POISON_BYTE
from tile_oracle.number_formats import STORAGE
from tile_oracle.operation.on_gpu import on_gpu
from tile_oracle.problem import Problem, gemm_shape

GUARD_BYTES = 256 << 10
"""Before and after each buffer; a multiple of every alignment that a kernel may count on."""
GUARD_BYTE = 0x5A

WORK_KERNELS = (
    *(
        "to_fill_integers",
        "to_fill_pattern",
        "to_negate_columns",
        "to_flip_sign",
        "to_reference",
        "to_reference_long",
        "to_product",
        "to_product_long",
    ),
    *("to_compare", "to_count_other"),
)
"""What device_work.hpp exports."""

_THREADS = 256
_MOST_BLOCKS = 1 << 15
_LONG_SUM = 4096
"""Products of one value from which a whole block adds them up, where there are not many values."""
_FEW_VALUES = 1 << 18
_VERDICT = struct.Struct("<4Q")
_NOWHERE = 2**64 - 1
_SLOTS = 3
"""Of one look: beside the output, beside the workspace, the output."""
_LOOK_BYTES = _SLOTS * _VERDICT.size
_MOST_LOOKS = 4


class _Pattern(ctypes.Structure):
    """device_work.hpp: to_work::Pattern."""

    _fields_ = (
        *((name, c_longlong) for name in ("inner", "extent", "column_inner", "depth")),
        *((name, c_int) for name in ("least", "most", "one_least", "one_most", "fold_sign", "selected")),
        ("scale", c_float),
        ("dtype", c_int),
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

    def __init__(self, driver: Driver, size_bytes: int, guard: int = GUARD_BYTE, skew: int = 0) -> None:
        """`guard`: the byte that fills the guard zones, and the buffer at first.

        skew: bytes beyond the alignment of fresh memory at which the buffer begins.
        """
        self._driver = driver
        self.size_bytes = size_bytes
        whole = size_bytes + 2 * GUARD_BYTES + skew
        self._base = driver.allocate(whole)
        self._skew = skew
        self.address = self._base + GUARD_BYTES + skew
        driver.set_bytes(self._base, guard, whole)

    @property
    def guards(self) -> tuple[int, int]:
        """Where the guard zones begin."""
        return self._base + self._skew, self.address + self.size_bytes

    def poison(self) -> None:
        """Fills all but the guard zones with what no kernel writes."""
        self._driver.set_bytes(self.address, POISON_BYTE, self.size_bytes)

    def close(self) -> None:
        self._driver.free(self._base)


@dataclass(frozen=True)
class Findings:
    """What was found after a run: beside the output, beside the workspace, and in the output."""

    beside_output: int
    beside_workspace: int
    verdict: Verdict


class DeviceWork:
    """Launches the kernels. Nothing is waited for but what was found."""

    def __init__(self, driver: Driver, binary: Path) -> None:
        self._driver = driver
        module = driver.load_module(binary.read_bytes())
        self._functions = {name: driver.function(module, name) for name in WORK_KERNELS}
        self._verdict = driver.allocate(_MOST_LOOKS * _LOOK_BYTES)
        self._looks = 0

    def fill_integers(self, problem: Problem, seed: int, first: int, second: int) -> None:
        """Both operands: wide integers, every partial sum of whose products is exact in fp32."""
        self.fill(problem, dense(problem), seed, first, second)

    def fill(self, problem: Problem, pattern: Pattern, seed: int, first: int, second: int) -> None:
        """Both operands, as tile_oracle.device.check_data describes a pattern."""
        for number, address in enumerate((first, second)):
            count = math.prod(problem.operand_shapes[number])
            where = (c_void_p(address), c_longlong(count), c_ulonglong(_stream(seed, number)))
            if pattern.selected:
                self._run("to_fill_pattern", _blocks(count), *where, _pattern_of(problem, pattern, number))
                continue
            most = (pattern.first, pattern.second)[number][1]
            self._run(
                "to_fill_integers",
                _blocks(count),
                *(*where, c_longlong(most), c_ulonglong(int(pattern.kept * 2**32)), _dtype(problem.dtype)),
                c_float(pattern.scale),
            )

    def negate_columns(self, problem: Problem, seed: int, second: int, expected: int) -> None:
        """Half of the second operand's columns, at random, and the same columns of an expected result."""
        shapes = problem.operand_shapes
        for address, shape, columns, dtype in (
            (second, shapes[1], columns_of_second(problem), problem.dtype),
            (expected, shapes[2], columns_of_result(problem), problem.result_dtype),
        ):
            count = math.prod(shape)
            self._run(
                "to_negate_columns",
                _blocks(count),
                *(c_void_p(address), c_longlong(count), c_longlong(columns.inner), c_longlong(columns.depth)),
                *(c_ulonglong(_stream(seed, 4)), _dtype(dtype)),
            )

    def sign_flip(self, problem: Problem, address: int, index: int) -> Launch:
        """What flips the sign of an element of an operand, to be launched."""
        arguments = Arguments(c_void_p(address), c_longlong(index), _dtype(problem.dtype))
        geometry = Geometry((1, 1, 1), (_THREADS, 1, 1))
        return Launch(self._functions["to_flip_sign"], geometry, arguments)

    def reference(
        self, problem: Problem, first: int, second: int, out: int, sample: int | None = None
    ) -> None:
        """The result by its definition; `sample`: so many values in even strides."""
        name, args = on_gpu(problem.op).by_definition(problem, first, second, out)
        values, stride = _sample(problem, sample)
        extent = (c_longlong(values), c_longlong(stride))
        if gemm_shape(problem)[2] >= _LONG_SUM and values <= _FEW_VALUES:
            self._run(f"{name}_long", min(values, _MOST_BLOCKS), args, *extent)
        else:
            self._run(name, _blocks(values), args, *extent)

    def compare(self, problem: Problem, got: int, want: int) -> Verdict:
        """Compares two outputs, bit for bit but for the sign of zeros."""
        self.begin_looks()
        self._compare(problem, got, want, None)
        return self._read(1)[0].verdict

    def find(
        self,
        problem: Problem,
        out: Buffer,
        workspace: Buffer | None,
        expected: int,
        sample: int | None = None,
    ) -> Findings:
        """Looks at a run's output, and beside it and its workspace. expected: 0 to compare nothing."""
        self.begin_looks()
        self.look(problem, out, workspace, expected, sample)
        return self.end_looks()[0]

    def begin_looks(self) -> None:
        """Several looks at what the device still computes may follow: `end_looks` waits for them once."""
        self._driver.copy_in(self._verdict, _MOST_LOOKS * _SLOTS * _VERDICT.pack(0, _NOWHERE, 0, 0))
        self._looks = 0

    def look(
        self,
        problem: Problem,
        out: Buffer,
        workspace: Buffer | None,
        expected: int,
        sample: int | None = None,
    ) -> None:
        """As `find`, of what was launched before; _MOST_LOOKS at most."""
        assert self._looks < _MOST_LOOKS
        self._count_damage(out, 0)
        if workspace is not None:
            self._count_damage(workspace, 1)
        if expected:
            self._compare(problem, out.address, expected, sample)
        self._looks += 1

    def end_looks(self) -> list[Findings]:
        """What each look found."""
        return self._read(self._looks)

    def _read(self, looks: int) -> list[Findings]:
        data = self._driver.copy_out(self._verdict, looks * _LOOK_BYTES)
        found = []
        for look in range(looks):
            one = data[look * _LOOK_BYTES : (look + 1) * _LOOK_BYTES]
            output, workspace, (wrong, first, unwritten, nan) = _VERDICT.iter_unpack(one)
            verdict = Verdict(wrong, None if first == _NOWHERE else first, unwritten, nan)
            found.append(Findings(output[0], workspace[0], verdict))
        return found

    def damaged_guard_bytes(self, buffer: Buffer, guard: int = GUARD_BYTE) -> int:
        """How many bytes beside a buffer are not what they were."""
        self.begin_looks()
        self._count_damage(buffer, 0, guard)
        return self._read(1)[0].beside_output

    def _compare(self, problem: Problem, got: int, want: int, sample: int | None) -> None:
        values, stride = _sample(problem, sample)
        self._run(
            "to_compare",
            _blocks(values),
            *(c_void_p(got), c_void_p(want), c_longlong(values), _dtype(problem.result_dtype)),
            *(self._slot(2), c_longlong(stride)),
        )

    def _count_damage(self, buffer: Buffer, slot: int, guard: int = GUARD_BYTE) -> None:
        before, after = buffer.guards
        self._run(
            "to_count_other",
            _blocks(GUARD_BYTES),
            *(c_void_p(before), c_void_p(after), c_longlong(GUARD_BYTES), c_int(guard), self._slot(slot)),
        )

    def _slot(self, number: int) -> c_void_p:
        return c_void_p(self._verdict + self._looks * _LOOK_BYTES + number * _VERDICT.size)

    def value(self, problem: Problem, out: int, index: int) -> bytes:
        """One value of an output, as it is stored."""
        size = STORAGE[problem.result_dtype].itemsize
        return self._driver.copy_out(out + index * size, size)

    def _run(self, name: str, blocks: int, *arguments: Any) -> None:
        geometry = Geometry((max(1, blocks), 1, 1), (_THREADS, 1, 1))
        self._driver.launch(Launch(self._functions[name], geometry, Arguments(*arguments)))


def _pattern_of(problem: Problem, pattern: Pattern, number: int) -> _Pattern:
    """One operand of a pattern with selected columns."""
    axis, columns = fold_axes(problem)[number], columns_of_second(problem)
    folded = 0 if pattern.every_column else (1, -1)[number]
    least, most = pattern.first if number == 0 else (0, pattern.cancelling)
    selected = 0 if number == 0 else 2 if pattern.every_column else 1
    shape = (axis.inner, axis.extent, columns.inner, columns.depth)
    magnitudes = (least, most, *pattern.second)
    return _Pattern(*shape, *magnitudes, folded, selected, pattern.scale, WORK_DTYPES.index(problem.dtype))


def _sample(problem: Problem, most: int | None) -> tuple[int, int]:
    """How many values of the result are looked at, and how far they are apart."""
    values = math.prod(problem.operand_shapes[2])
    if most is None or values <= most:
        return values, 1
    return most, values // most


def _dtype(dtype: str) -> c_int:
    return c_int(WORK_DTYPES.index(dtype))


def _blocks(count: int) -> int:
    return min(-(-count // _THREADS), _MOST_BLOCKS)


def _stream(seed: int, number: int) -> int:
    """Seeds of different buffers must not be neighbours: the generator counts on from its seed."""
    return (seed * 0x2545F4914F6CDD1D + number * 0xD1342543DE82EF95) % 2**64
