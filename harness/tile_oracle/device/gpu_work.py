"""The harness's own kernels on a GPU (kernels/gpu/device_work.hpp): inputs, reference, comparison."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from ctypes import c_float, c_int, c_longlong, c_ulonglong
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tile_oracle.device.check_data import Pattern, columns_of_second, fold_axes
from tile_oracle.device.factors import RANGES, Axes, factor_axes
from tile_oracle.device.gpu_abi import WORK_DTYPES
from tile_oracle.device.runtime.driver import Arguments, Driver, Geometry, Launch
from tile_oracle.device.stray_values import POISON_BYTE
from tile_oracle.operation.on_device import native_on_gpu
from tile_oracle.problem import Problem, gemm_shape
from tile_oracle.problem.number_formats import STORAGE

GUARD_BYTES = 256 << 10
"""Size of the zones before and after each buffer; a multiple of every alignment that a kernel may rely on."""
GUARD_BYTE = 0x5A

WORK_KERNELS = (
    *("to_fill_integers", "to_fill_pattern", "to_scale", "to_negate", "to_compare", "to_within"),
    *("to_reference", "to_reference_long", "to_product", "to_product_long", "to_product_tiles"),
    *("to_count_other", "to_stamp"),
)
"""The kernels that device_work.hpp exports."""

_THREADS = 256
_MOST_BLOCKS = 1 << 15
_LONG_SUM = 4096
"""With at least this many products per value, and few values, a whole block computes each value."""
_FEW_VALUES = 1 << 18
_TILE = 128
"""The values of a matrix product that one block of to_product_tiles computes are _TILE x _TILE."""
_VERDICT = struct.Struct("<4Q")
_NOWHERE = 2**64 - 1
_SLOTS = 3
"""Slots of one look (a queued check): damage around the output, damage around the workspace, the output."""
_LOOK_BYTES = _SLOTS * _VERDICT.size
_MOST_LOOKS = 4
_STAMPS = struct.Struct("<2Q")


class _Pattern(ctypes.Structure):
    """device_work.hpp: to_work::Pattern."""

    _fields_ = (
        *((name, c_longlong) for name in ("inner", "extent", "column_inner", "depth")),
        *((name, c_int) for name in ("least", "most", "one_least", "one_most", "fold_sign", "selected")),
        ("scale", c_float),
        ("dtype", c_int),
    )


_FourLong = c_longlong * 4


class _Factors(ctypes.Structure):
    """device_work.hpp: to_work::Factors."""

    _fields_ = (
        *((name, _FourLong) for name in ("extents", "one", "other")),
        *((name, c_ulonglong) for name in ("one_seed", "other_seed")),
        *((name, c_int) for name in ("one_least", "one_span", "other_least", "other_span")),
        *((name, c_int) for name in ("inverse", "one_first", "other_first", "dtype")),
    )


_ROWS, _COLUMNS, _DEPTHS = 5, 6, 7
_VECTORS = ((_ROWS, _DEPTHS), (_COLUMNS, _DEPTHS), (_ROWS, _COLUMNS))
"""The two vectors of factors of the first operand, the second and the result."""


def operand_bytes(problem: Problem) -> tuple[int, int, int]:
    """Bytes of both inputs and of the output."""
    first, second, out = (math.prod(shape) for shape in problem.operand_shapes)
    size, result_size = STORAGE[problem.dtype].itemsize, STORAGE[problem.result_dtype].itemsize
    return (first * size, second * size, out * result_size)


@dataclass(frozen=True)
class Within:
    """What a result must be that is no exact sum: a least and a largest value for each value of some rows.

    low, high: addresses of the bounds, `rows` rows of `width` values in the result's format. step: they are
    for every `step`-th row; 0: the result's rows repeat after `rows` rows. Values without bounds must be
    numbers.
    """

    low: int
    high: int
    width: int
    rows: int
    step: int

    def place(self, index: int) -> int | None:
        """Returns where the bounds of a value are, or None."""
        row, column = divmod(index, self.width)
        if not self.step:
            return row % self.rows * self.width + column
        bounded = row % self.step == 0 and row // self.step < self.rows
        return row // self.step * self.width + column if bounded else None


@dataclass(frozen=True)
class Verdict:
    """The counts of a comparison. first: the lowest index of a wrong value, or None."""

    wrong: int
    first: int | None
    unwritten: int
    nan: int


class Buffer:
    """Device memory between two guard zones. `close` frees it."""

    def __init__(self, driver: Driver, size_bytes: int, guard: int = GUARD_BYTE, skew: int = 0) -> None:
        """`guard`: the byte that fills the guard zones and initially the buffer.

        skew: offset of the buffer's start from the alignment of allocated memory, in bytes.
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
        """Addresses of the guard zones."""
        return self._base + self._skew, self.address + self.size_bytes

    def poison(self) -> None:
        """Fills the buffer, without the guard zones, with a value that no kernel writes."""
        self._driver.set_bytes(self.address, POISON_BYTE, self.size_bytes)

    def close(self) -> None:
        self._driver.free(self._base)


@dataclass(frozen=True)
class Findings:
    """The findings after a run: damaged bytes around output and workspace, and the verdict on the output."""

    beside_output: int
    beside_workspace: int
    verdict: Verdict


class DeviceWork:
    """Launches the harness's own kernels. Only reading findings waits for the device."""

    def __init__(self, driver: Driver, binary: Path) -> None:
        self._driver = driver
        module = driver.load_module(binary.read_bytes())
        self._functions = {name: driver.function(module, name) for name in WORK_KERNELS}
        self._verdict = driver.allocate(_MOST_LOOKS * _LOOK_BYTES + _STAMPS.size)
        self._stamps = self._verdict + _MOST_LOOKS * _LOOK_BYTES
        self._looks = 0

    def fill(self, problem: Problem, pattern: Pattern, seed: int, first: int, second: int) -> None:
        """Fills both operands with a pattern of tile_oracle.device.check_data."""
        for number, address in enumerate((first, second)):
            count = math.prod(problem.operand_shapes[number])
            where = (address, count, _stream(seed, number))
            if pattern.selected or pattern.first[0]:
                self._run("to_fill_pattern", _blocks(count), *where, _pattern_of(problem, pattern, number))
                continue
            most, kept = (pattern.first, pattern.second)[number][1], int(pattern.kept * 2**32)
            more = (most, kept, _dtype(problem.dtype), c_float(pattern.scale))
            self._run("to_fill_integers", _blocks(count), *where, *more)

    def scale(self, problem: Problem, seed: int, addresses: Sequence[int]) -> None:
        """Multiplies both operands by powers of two (tile_oracle.device.factors)."""
        for number, address in enumerate(addresses):
            self._driver.launch(self._by_factors("to_scale", problem, seed, number, address))

    def negations(self, problem: Problem, seed: int, addresses: Sequence[int]) -> list[Launch]:
        """Launches that negate random rows, columns and depths of both operands and of the result."""
        return [
            self._by_factors("to_negate", problem, seed, number, address)
            for number, address in enumerate(addresses)
        ]

    def negate_others(self, launches: Sequence[Launch], seed: int) -> None:
        """Launches `negations`, but of other rows, columns and depths."""
        for launch, (one, other) in zip(launches, _VECTORS, strict=True):
            factors = launch.arguments.values[2]
            factors.one_seed, factors.other_seed = _stream(seed, one), _stream(seed, other)
            self._driver.launch(launch)

    def _by_factors(self, kernel: str, problem: Problem, seed: int, number: int, address: int) -> Launch:
        axes, limits = factor_axes(problem)[number].merged, RANGES[problem.dtype]
        one, other = _VECTORS[number]
        span = limits.most - limits.least + 1
        ends = (limits.least, span) if other != _DEPTHS else (-limits.depth, 2 * limits.depth + 1)
        numbers = (limits.least, span, *ends, number == 1, one == _COLUMNS, 1)
        dtype = problem.dtype if number < 2 else problem.result_dtype
        return self._scaling(
            kernel, axes, (_stream(seed, one), _stream(seed, other)), numbers, dtype, address
        )

    def negation(self, problem: Problem, seed: int, address: int, count: int) -> Launch:
        """Returns a launch that negates half of `count` elements of an operand."""
        axes = Axes((1, 1, 1, count), (0, 0, 0, 0), (0, 0, 0, 1))
        seeds = (_stream(seed, _ROWS), _stream(seed, _DEPTHS))
        return self._scaling("to_negate", axes, seeds, (0, 1, 0, 1, 0, 0, 1), problem.dtype, address)

    def _scaling(
        self, name: str, axes: Axes, seeds: tuple[int, int], numbers: Sequence[int], dtype: str, address: int
    ) -> Launch:
        steps = (_FourLong(*axes.extents), _FourLong(*axes.one), _FourLong(*axes.other))
        factors = _Factors(*steps, *seeds, *numbers, _dtype(dtype.partition("_")[0]))
        count = math.prod(axes.extents)
        return self._launch(name, _blocks(count), address, count, factors)

    def reference(
        self, problem: Problem, first: int, second: int, out: int, sample: int | None = None
    ) -> None:
        """Computes the result by its definition; `sample`: only that many values, evenly spaced."""
        name, args = native_on_gpu(problem.op).by_definition(problem, first, second, out)
        values, stride = _sample(problem, sample)
        extent = (values, stride)
        if f"{name}_tiles" in self._functions and stride == 1 and values > _FEW_VALUES:
            rows, columns, _ = gemm_shape(problem)
            self._run(f"{name}_tiles", min(-(-rows // _TILE) * -(-columns // _TILE), _MOST_BLOCKS), args)
        elif gemm_shape(problem)[2] >= _LONG_SUM and values <= _FEW_VALUES:
            self._run(f"{name}_long", min(values, _MOST_BLOCKS), args, *extent)
        else:
            self._run(name, _blocks(values), args, *extent)

    def compare(self, problem: Problem, got: int, want: int) -> Verdict:
        """Compares two outputs bit for bit, except for the sign of zeros."""
        self.begin_looks()
        self._compare(problem, got, want, None)
        return self._read(1)[0].verdict

    def gives(
        self, problem: Problem, first: int, second: int, out: int, expected: int, sample: int | None = None
    ) -> bool:
        """Returns whether the operands still have the expected result. `out`: memory for a result,
        overwritten."""
        self.begin_looks()
        self.reference(problem, first, second, out, sample)
        self._compare(problem, out, expected, sample, packed=True)
        return not self._read(1)[0].verdict.wrong

    def find(
        self,
        problem: Problem,
        out: Buffer,
        workspace: Buffer | None,
        expected: int | Within,
        sample: int | None = None,
    ) -> Findings:
        """Checks a run's output, and the guard zones of output and workspace.

        expected: the address of the expected values, of which there may be a sample, or bounds; 0 skips them.
        """
        self.begin_looks()
        self.look(problem, out, workspace, expected, sample)
        return self.end_looks()[0]

    def begin_looks(self) -> None:
        """Begins a series of looks, which are queued on the device; `end_looks` waits for all of them."""
        self._driver.copy_in(self._verdict, _MOST_LOOKS * _SLOTS * _VERDICT.pack(0, _NOWHERE, 0, 0))
        self._looks = 0

    def look(
        self,
        problem: Problem,
        out: Buffer,
        workspace: Buffer | None,
        expected: int | Within,
        sample: int | None = None,
    ) -> None:
        """Queues the checks of `find` for the last launch; at most _MOST_LOOKS times."""
        assert self._looks < _MOST_LOOKS
        self._count_damage(out, 0)
        if workspace is not None:
            self._count_damage(workspace, 1)
        if isinstance(expected, Within):
            self._compare_within(problem, out.address, expected)
        elif expected:
            self._compare(problem, out.address, expected, sample)
        self._looks += 1

    def end_looks(self) -> list[Findings]:
        """Returns the findings of each look."""
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

    def _compare(
        self, problem: Problem, got: int, want: int, sample: int | None, *, packed: bool = False
    ) -> None:
        """packed: `got` has only the values of the sample, as `want` has."""
        values, stride = _sample(problem, sample)
        given = (got, want, values, _dtype(problem.result_dtype), self._slot(2), 1 if packed else stride)
        self._run("to_compare", _blocks(values), *given)

    def _compare_within(self, problem: Problem, got: int, want: Within) -> None:
        values = math.prod(problem.operand_shapes[-1])
        given = (got, want.low, want.high, values, _dtype(problem.result_dtype), self._slot(2))
        self._run("to_within", _blocks(values), *given, want.width, want.rows, want.step)

    def _count_damage(self, buffer: Buffer, slot: int) -> None:
        given = (*buffer.guards, GUARD_BYTES, GUARD_BYTE, self._slot(slot))
        self._run("to_count_other", _blocks(GUARD_BYTES), *given)

    def _slot(self, number: int) -> int:
        return self._verdict + self._looks * _LOOK_BYTES + number * _VERDICT.size

    def stamp(self, number: int) -> None:
        """Notes the time of the device's timer when the stream reaches this point: number 0 or 1."""
        self._run("to_stamp", 1, self._stamps + 8 * number)

    def between_stamps_ns(self) -> float:
        """Nanoseconds from stamp 0 to stamp 1; 0 where there is no such timer."""
        begin, end = _STAMPS.unpack(self._driver.copy_out(self._stamps, _STAMPS.size))
        return float(end - begin) * self._driver.timer_tick_ns

    def value(self, problem: Problem, out: int, index: int) -> bytes:
        """Returns one value of an output, in its storage format."""
        size = STORAGE[problem.result_dtype].itemsize
        return self._driver.copy_out(out + index * size, size)

    def _run(self, name: str, blocks: int, *arguments: Any) -> None:
        self._driver.launch(self._launch(name, blocks, *arguments))

    def _launch(self, name: str, blocks: int, *arguments: Any) -> Launch:
        """Returns a launch. Of a number's eight bytes a kernel reads as many as its parameter has: the lowest
        ones, which come first."""
        geometry = Geometry((max(1, blocks), 1, 1), (_THREADS, 1, 1))
        values = (c_longlong(one) if isinstance(one, int) else one for one in arguments)
        return Launch(self._functions[name], geometry, Arguments(*values))


def _pattern_of(problem: Problem, pattern: Pattern, number: int) -> _Pattern:
    """Returns one operand of a pattern with selected columns, or without zeros."""
    axis, columns = fold_axes(problem)[number], columns_of_second(problem)
    if pattern.selected:
        folded = 0 if pattern.every_column else (1, -1)[number]
        least, most = pattern.first if number == 0 else (0, pattern.cancelling)
        selected = 0 if number == 0 else 2 if pattern.every_column else 1
    else:
        folded = selected = 0
        least, most = (pattern.first, pattern.second)[number]
    shape = (axis.inner, axis.extent, columns.inner, columns.depth)
    magnitudes = (least, most, *pattern.second)
    return _Pattern(*shape, *magnitudes, folded, selected, pattern.scale, _dtype(problem.dtype))


def _sample(problem: Problem, most: int | None) -> tuple[int, int]:
    """Returns the number of values of the result to compare, and their stride."""
    values = math.prod(problem.operand_shapes[2])
    if most is None or values <= most:
        return values, 1
    return most, values // most


def _dtype(dtype: str) -> int:
    return WORK_DTYPES.index(dtype)


def _blocks(count: int) -> int:
    return min(-(-count // _THREADS), _MOST_BLOCKS)


def _stream(seed: int, number: int) -> int:
    """Returns the seed of one buffer. Seeds must be far apart, because the generator counts on from its
    seed."""
    return (seed * 0x2545F4914F6CDD1D + number * 0xD1342543DE82EF95) % 2**64
