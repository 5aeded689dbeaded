"""Operands that a caller passes to a kernel: names, shapes, types, and the transfer to the worker.

The memory layout is that of kernels/cpu/abi.h: C order, channels last, the group next to the channel:

    forward      x, w  -> y      x   N [D] H W G C/G      w   G K/G [Z] Y X C/G      y   N [D] H W G K/G
    bwd_data     dy, w -> dx     dy like y, dx like x
    bwd_weight   x, dy -> dw     dw like w
    gemm         a, b  -> c      row-major (r) or column-major (c), by the problem's layout

fp32 is float32 and fp16 is float16. bf16 is passed as its bits in uint16
(`tile_oracle.problem.number_formats.encode` converts floats to bits, `decode` bits to floats).
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
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.operation import operation_named
from tile_oracle.operation.descriptor import Argument
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import STORAGE
from tile_oracle.targets.base import DataFiles

Array = npt.NDArray[Any]

_SHARED_MEMORY = Path("/dev/shm")  # a file there is memory, and never reaches a disk


def argument_names(problem: Problem) -> tuple[str, str, str]:
    """Returns the names of both operands and the result of a problem, such as ("x", "w", "y"). Raises
    OperandError."""
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
    """Returns the axes of an argument, outermost first, such as `N Hi Wi G C/G`."""
    return next(argument.axes for argument in _arguments(problem) if argument.name == name)


def taken_operands(
    problem: Problem, positional: Sequence[object], named: Mapping[str, object]
) -> tuple[Array, Array]:
    """Checks and returns both operands of a call, given by position or by name. Raises OperandError."""
    wanted = argument_names(problem)[:2]
    which = f"a problem of {_name(problem)} takes"
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
    """Returns the array if a kernel can read it unchanged. Raises OperandError with the expected type, shape
    or order."""
    storage = STORAGE.get(problem.dtype)
    if storage is None:
        raise OperandError(f"{problem.dtype} arrays cannot be given: there are {', '.join(STORAGE)}")
    bits = ", the bits of bf16 (tile_oracle.problem.number_formats.encode)" if problem.dtype == "bf16" else ""
    if not isinstance(value, np.ndarray):
        given = type(value).__name__
        raise OperandError(f"{name} is of type {given}: give a numpy array of {storage.name}{bits}")
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
    """Writes the operands to files for a worker, and makes an empty one for its output; in memory if there is
    room.

    Raises OperandError if no folder has enough room.
    """
    count = math.prod(problem.operand_shapes[2])
    needed = first.nbytes + second.nbytes + count * STORAGE[problem.dtype].itemsize
    folder = _folder_with_room(needed)
    try:
        data = DataFiles(*(folder / name for name in ("first", "second", "out")))
        with disk_errors_as(
            OperandError,
            f"{needed:,} bytes cannot be handed to the worker in {folder.parent}",
            "set TMPDIR to a folder with enough room",
        ):
            first.tofile(data.first)
            second.tofile(data.second)
            data.out.touch()
        yield data
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_output(problem: Problem, data: DataFiles) -> Array:
    """Reads the output that a worker wrote. Raises OperandError if it is incomplete."""
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
        "set TMPDIR to a folder with enough room"
    )


def _shown(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) if shape else "()"
