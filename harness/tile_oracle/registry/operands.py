"""Arrays that a caller gives to a kernel: their names, what they must be, and how they reach the worker.

Data lie in memory as kernels/cpu/abi.h says, in C order, channels last, the group beside the channel:

    forward      x, w  -> y      x   N [D] H W G C/G      w   G K/G [Z] Y X C/G      y   N [D] H W G K/G
    bwd_data     dy, w -> dx     dy like y, dx like x
    bwd_weight   x, dy -> dw     dw like w
    gemm         a, b  -> c      rows one after the other (r) or columns (c), as the problem's layout says

fp32 is float32 and fp16 is float16. bf16 travels as its bits, uint16 (`tile_oracle.number_formats.encode`
makes them of floats, `decode` floats of them).
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.errors import OperandError
from tile_oracle.number_formats import STORAGE
from tile_oracle.operation import operation_named
from tile_oracle.operation.descriptor import Argument
from tile_oracle.problem import Problem
from tile_oracle.target.base import DataFiles

Array = npt.NDArray[Any]

_SHARED_MEMORY = Path("/dev/shm")  # a file there is memory, and never reaches a disk


def argument_names(problem: Problem) -> tuple[str, str, str]:
    """What both operands and the result of a problem are called: ("x", "w", "y"). Raises OperandError."""
    first, second, result = _arguments(problem)
    return first.name, second.name, result.name


def _arguments(problem: Problem) -> tuple[Argument, Argument, Argument]:
    named = operation_named(problem.op).arguments
    if named is None:
        raise OperandError(f"arrays of {problem.op} cannot be given: its descriptor needs arguments")
    return named(problem)


def _name(problem: Problem) -> str:
    return str(problem.kind.words.get("direction", problem.op))


def axes(problem: Problem, name: str) -> str:
    """The axes of an argument, outermost first: `N Hi Wi G C/G`."""
    return next(argument.axes for argument in _arguments(problem) if argument.name == name)


def taken_operands(
    problem: Problem, positional: Sequence[object], named: Mapping[str, object]
) -> tuple[Array, Array]:
    """Both operands of a call, given in order or by their names, checked. Raises OperandError."""
    wanted = argument_names(problem)[:2]
    which = f"a {_name(problem)} problem takes"
    unknown = [name for name in named if name not in wanted[len(positional) :]]
    if unknown or len(positional) + len(named) != 2:
        given = ", ".join((*(f"{len(positional)} by position" for _ in positional[:1]), *named))
        raise OperandError(f"{which} {wanted[0]} and {wanted[1]}, not {given or 'nothing'}")
    values = [*positional, *(named[name] for name in wanted[len(positional) :])]
    return (
        checked_operand(problem, wanted[0], values[0], problem.operand_shapes[0]),
        checked_operand(problem, wanted[1], values[1], problem.operand_shapes[1]),
    )


def checked_operand(problem: Problem, name: str, value: object, shape: tuple[int, ...]) -> Array:
    """The array, if a kernel can read it as it is. Raises OperandError, which says what would be right."""
    storage = STORAGE.get(problem.dtype)
    if storage is None:
        raise OperandError(f"{problem.dtype} arrays cannot be given: there are {', '.join(STORAGE)}")
    bits = ", the bits of bf16 (tile_oracle.number_formats.encode)" if problem.dtype == "bf16" else ""
    if not isinstance(value, np.ndarray):
        raise OperandError(f"{name} is a {type(value).__name__}: give a numpy array of {storage.name}{bits}")
    if value.dtype != storage:
        foreign = "" if value.dtype.isnative else " of foreign byte order"
        raise OperandError(f"{name} is {value.dtype.name}{foreign}: {problem.id} wants {storage.name}{bits}")
    if value.shape != shape:
        raise OperandError(
            f"{name} has shape {_shown(value.shape)}: {problem.id} wants {_shown(shape)}, "
            f"axes {axes(problem, name)}"
        )
    if not value.flags.c_contiguous:
        raise OperandError(
            f"{name} has strides {value.strides} and kernels read C order: give np.ascontiguousarray({name})"
        )
    return value


@contextmanager
def shared_files(problem: Problem, first: Array, second: Array) -> Iterator[DataFiles]:
    """The operands in files that a worker reads, and an empty one for its output; in memory where that has
    room.

    Raises OperandError when there is room for them nowhere.
    """
    count = math.prod(problem.operand_shapes[2])
    needed = first.nbytes + second.nbytes + count * STORAGE[problem.dtype].itemsize
    folder = _folder_with_room(needed)
    try:
        data = DataFiles(*(folder / name for name in ("first", "second", "out")))
        try:
            first.tofile(data.first)
            second.tofile(data.second)
            data.out.touch()
        except OSError as error:
            raise OperandError(
                f"{needed:,} bytes cannot be handed to the worker in {folder.parent}: "
                f"{error.strerror or error}; name a folder with room by TMPDIR"
            ) from None
        yield data
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_output(problem: Problem, data: DataFiles) -> Array:
    """The output that a worker left. Raises OperandError when it is not all there."""
    shape = problem.operand_shapes[2]
    values: Array = np.fromfile(data.out, STORAGE[problem.dtype])
    if values.size != math.prod(shape):
        raise OperandError(
            f"the worker left {values.size:,} of {math.prod(shape):,} values of the output: is the disk full?"
        )
    return values.reshape(shape)


def _folder_with_room(needed_bytes: int) -> Path:
    places = (_SHARED_MEMORY, Path(tempfile.gettempdir()))
    for place in places:
        try:
            there = os.statvfs(place)
            if there.f_bavail * there.f_frsize > 1.1 * needed_bytes and os.access(place, os.W_OK | os.X_OK):
                return Path(tempfile.mkdtemp(prefix="tile-oracle-", dir=place))
        except OSError:
            continue
    raise OperandError(
        f"{needed_bytes:,} bytes of operands and output do not fit into {' or '.join(map(str, places))}: "
        "name a folder with room by TMPDIR"
    )


def _shown(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) if shape else "()"
