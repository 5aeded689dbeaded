"""A program of feature formulas run by native code, one problem at a time."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tile_oracle.selector import native_library
from tile_oracle.selector.program import ByteWriter, Place, ProgramMaker


class NativeProgram:
    def __init__(self, data: bytes) -> None:
        self._library = native_library.load()
        self._library.to_program_read.restype = ctypes.c_void_p
        error = ctypes.create_string_buffer(400)
        size = ctypes.c_size_t(len(data))
        self._handle = ctypes.c_void_p(self._library.to_program_read(data, size, error, ctypes.c_size_t(400)))
        if not self._handle:
            raise ValueError(error.value.decode())

    @classmethod
    def of(cls, program: ProgramMaker) -> NativeProgram:
        writer = ByteWriter()
        program.write(writer)
        return cls(writer.written())

    def values(self, inputs: Sequence[float], places: Sequence[Place]) -> list[Any]:
        """The values at each place, (classes,)."""
        operands = np.concatenate([p.operand + np.arange(p.count, dtype=np.uint32) for p in places])
        operands = np.ascontiguousarray(operands, dtype=np.uint32)
        given, found = np.array(inputs, dtype=np.float64), np.empty(len(operands))
        status = self._library.to_program_run(
            self._handle, _address(given), len(given), _address(operands), len(operands), _address(found)
        )
        if status:
            raise ValueError("the program does not take these inputs")
        return np.split(found, np.cumsum([p.count for p in places])[:-1])

    def __del__(self) -> None:
        self._library.to_program_free(self._handle)


def _address(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
