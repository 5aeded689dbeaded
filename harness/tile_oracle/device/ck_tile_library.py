"""Loads and calls the library of a CK Tile kernel: kernels/ck_tile/abi.h in Python."""

from __future__ import annotations

import ctypes
import math
from ctypes import c_char_p, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path

from tile_oracle.device.gpu_abi import EXTENTS, Unlaunchable
from tile_oracle.device.runtime.driver import LibraryLaunch
from tile_oracle.operation.on_device import native_on_gpu
from tile_oracle.problem import Problem

ABI_VERSION = 1

_OK = 0
_WHY_BYTES = 1024
_MOST_OPERAND_BYTES = 2**31 - 1
"""CK Tile addresses operands with 32-bit offsets."""


class CkProblem(ctypes.Structure):
    """to_ck_problem."""

    _fields_ = (
        *((name, c_void_p) for name in ("in0", "in1", "out", "workspace")),
        *((name, c_int32) for name in (*EXTENTS, "gemm_m", "gemm_n", "gemm_k", "op")),
    )


class CkTilePlan(ctypes.Structure):
    """to_ck_plan_t: how the library launches its kernel. zero_fills: it first fills the output with zeros."""

    _fields_ = (
        ("workspace_bytes", c_int64),
        ("grid", c_int32 * 3),
        ("threads", c_int32),
        ("lds_bytes", c_int32),
        ("zero_fills", c_int32),
    )


class CkTileLibrary:
    """One loaded library. Raises OSError when it cannot be loaded, ValueError when its ABI does not match."""

    def __init__(self, path: Path, runtime: ctypes.CDLL) -> None:
        """`runtime`: the worker's libamdhip64, which the library shares."""
        # A library linked without ROCm resolves HIP functions from the process, so they must be global.
        ctypes.CDLL(runtime._name, mode=ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL(str(path))
        try:
            version = library.to_ck_abi_version
            self._kernel, self._launch = library.to_ck_kernel, library.to_ck_launch
            self._plan = library.to_ck_plan
        except AttributeError as error:
            raise ValueError(f"it is not the library of a CK Tile kernel: {error}") from None
        if version() != ABI_VERSION:
            raise ValueError(f"its CK Tile ABI is {version()}, tile-oracle's {ABI_VERSION}")
        self._kernel.restype = c_char_p
        self._plan.argtypes = (c_void_p, c_void_p, c_char_p, c_size_t)
        self._launch.argtypes = (c_void_p, c_void_p)
        for function in (self._plan, self._launch):
            function.restype = c_int32

    @property
    def kernel(self) -> str:
        """The name of the kernel that the library was built for."""
        return str(self._kernel().decode())

    def plan(self, problem: Problem) -> CkTilePlan:
        """Returns how the kernel runs a problem. Raises Unlaunchable with CK Tile's reason."""
        largest = max(_operand_bytes(problem))
        if largest > _MOST_OPERAND_BYTES:
            raise Unlaunchable(f"an operand of {largest:,} bytes exceeds CK Tile's 32-bit offsets")
        plan, why = CkTilePlan(), ctypes.create_string_buffer(_WHY_BYTES)
        argument = ck_problem(problem, 0, 0, 0, 0)
        if self._plan(ctypes.byref(argument), ctypes.byref(plan), why, _WHY_BYTES) != _OK:
            text = why.value.decode("utf-8", "replace")
            raise Unlaunchable(" ".join(text.split()) or "CK Tile refuses it without a reason")
        return plan

    def launch(self, problem: Problem, in0: int, in1: int, out: int, workspace: int) -> LibraryLaunch:
        """Returns a launch of the kernel on the given addresses; `ck_problem` describes the order of
        operands."""
        argument = ck_problem(problem, in0, in1, out, workspace)

        def start(stream: int) -> int:
            return int(self._launch(ctypes.byref(argument), stream))

        return LibraryLaunch("to_ck_launch", start)


def ck_problem(problem: Problem, in0: int, in1: int, out: int, workspace: int) -> CkProblem:
    """Returns the structure for a problem. in0, in1: its operands (`operand_shapes`)."""
    made = CkProblem(in0 or None, in1 or None, out or None, workspace or None)
    for name, value in native_on_gpu(problem.op).ck_tile_members(problem).items():
        setattr(made, name, value)
    return made


def _operand_bytes(problem: Problem) -> tuple[int, ...]:
    """Bytes of both operands and the result; types that are not 16 bits wide count as 4 bytes."""
    size = {"bf16": 2, "fp16": 2}.get(problem.dtype, 4)
    return tuple(size * math.prod(shape) for shape in problem.operand_shapes)
