"""Triton's interpreter as a device: kernels in Triton run on the CPU, are checked, and are not timed.

Host and device share this process's memory, so a stray access of a kernel meets the guard pages of the CPU's
operands. Only a worker process imports this.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from tile_oracle.compiling.toolchain import INCLUDE_FOLDER
from tile_oracle.compiling.triton.compile_unit import constant
from tile_oracle.compiling.triton.user_file import import_declarations, jit_function, one_line
from tile_oracle.device.base import CheckResult
from tile_oracle.device.cpu import CpuDevice
from tile_oracle.device.guarded_memory import GuardedBuffer
from tile_oracle.device.stray_values import POISON_BYTE
from tile_oracle.errors import HarnessError
from tile_oracle.problem import Problem
from tile_oracle.targets.base import DeviceInfo
from tile_oracle.triton.expression import evaluate
from tile_oracle.triton.views import LANGUAGE, OPERANDS, OUT, WORKSPACE, values_of

COMPUTE_UNITS = 5
"""What `p.compute_units` is: fewer than a small problem's tiles, so that persistent programs loop."""
_ALIGNMENT = 16
_DTYPES = {**LANGUAGE, "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2"}
"""Triton's name of a pointer's type -> the name that the interpreter reads from a tensor."""


def _array(address: int, dtype: str) -> SimpleNamespace:
    """Returns as much of a tensor as the interpreter asks for."""
    made = SimpleNamespace(dtype=dtype, data_ptr=lambda: address, storage_offset=lambda: 0)
    made.size = made.stride = lambda: (1,)
    for name in ("untyped_storage", "cpu", "new_empty", "set_", "copy_"):
        setattr(made, name, lambda *_, **__: made)
    return made


@dataclass(frozen=True)
class _Kernel:
    """A specification (tile_oracle.compiling.triton.specify), and the function of each launch."""

    unit: dict[str, Any]
    functions: tuple[Any, ...]
    folder: Path


@dataclass(frozen=True)
class _Call:
    """The arrays of a run: copies of the operands, and one for the result."""

    problem: Problem
    arrays: dict[str, GuardedBuffer]


class InterpreterDevice(CpuDevice):
    """Triton's interpreter. `check` says `untimed` of a right kernel, so nothing is timed."""

    adds_nothing = False
    times = False

    def __init__(self) -> None:
        super().__init__()
        triton = importlib.import_module("triton")
        _compute_in_bf16(importlib.import_module("triton.runtime.interpreter"))
        _interpret_libdevice()
        system = f"{platform.system()} {platform.release()}"
        self.info = DeviceInfo(f"Triton {triton.__version__}'s interpreter", system)
        self._folder = tempfile.TemporaryDirectory(prefix="tile-oracle-")
        self._declared: dict[tuple[tuple[str, int], ...], tuple[Path, list[Any]]] = {}

    def check(self, binary: Path, lost_ms: float | None = None) -> CheckResult:
        try:
            found = super().check(binary)
        except HarnessError as error:  # the file cannot be imported
            return CheckResult("build_error", str(error))
        return replace(found, status="untimed") if found.status == "ok" else found

    def _call(self, problem: Problem, operands: Sequence[GuardedBuffer], out: GuardedBuffer) -> _Call:
        arrays = {role: _aligned(one.size) for role, one in zip(OPERANDS, operands, strict=False)} | {
            OUT: _aligned(out.size)
        }
        for role, one in zip(OPERANDS, operands, strict=False):
            _bytes(arrays[role])[: one.size] = _bytes(one)
            arrays[role].make_read_only()
        return _Call(problem, arrays)

    def _library(self, binary: Path) -> Any:
        with zipfile.ZipFile(binary) as archive:
            files = {one.filename: one.CRC for one in archive.infolist() if not one.is_dir()}
            unit = json.loads(archive.read(next(one for one in files if "/" not in one)))
            key = tuple(sorted((name, crc) for name, crc in files.items() if "/" in name))
            if key not in self._declared:
                folder = Path(self._folder.name) / str(len(self._declared))
                archive.extractall(folder)
                os.environ.update(unit.get("environment", {}))
                self._declared[key] = folder, import_declarations(folder / INCLUDE_FOLDER / unit["file"])
        folder, declared = self._declared[key]
        declaration = declared[unit["declaration"]]
        launched = (declaration.main, *declaration.after)
        return _Kernel(unit, tuple(jit_function(one.function) for one in launched), folder / INCLUDE_FOLDER)

    def _launch(self, library: Any, args: Any, out: GuardedBuffer) -> CheckResult | None:
        unit = library.unit
        if any(type(one).__name__ == "GluonJITFunction" for one in library.functions):
            return CheckResult("unsupported", "it is written in Gluon, which has no interpreter")
        values = values_of(args.problem, COMPUTE_UNITS)
        size = evaluate(unit["workspace_bytes"], values)
        arrays = args.arrays | ({WORKSPACE: _aligned(size)} if size else {})
        written = [one for role, one in arrays.items() if role in (OUT, WORKSPACE)]
        for one in written:
            one.fill(POISON_BYTE)
        began = time.monotonic()
        try:
            with np.errstate(all="ignore"):
                for launch in unit["launches"]:
                    _run(library.functions[launch["number"]], launch, values, arrays)
        except Exception as error:  # the function is the user's, and the interpreter raises many kinds
            return _failed(error, library)
        finally:
            self.kernel_seconds += time.monotonic() - began
        beyond = _bytes(arrays[OUT])[out.size :]
        if not all(one.slack_is(POISON_BYTE) for one in written) or (beyond != POISON_BYTE).any():
            return CheckResult("wrong", "wrote outside its output or workspace", tainted=True)
        _bytes(out)[:] = _bytes(arrays[OUT])[: out.size]
        return None

    def _wrong_or_flaky(self, wrong: str, *_: Any) -> CheckResult:
        """Returns `wrong` at once: programs are run in one order, so a second run would give the same."""
        return CheckResult("wrong", wrong)


def _aligned(size: int) -> GuardedBuffer:
    """At an address as on a GPU, a multiple of 16 as kernels may assume, and at most 15 bytes before a guard
    page."""
    return GuardedBuffer(-(-size // _ALIGNMENT) * _ALIGNMENT, flush=True)


def _bytes(buffer: GuardedBuffer) -> Any:
    return buffer.view(np.uint8, (buffer.size,))


def _run(
    function: Any, launch: dict[str, Any], values: dict[str, int], arrays: dict[str, GuardedBuffer]
) -> None:
    arguments = {name: constant(value) for name, value in launch["constants"].items()}
    for name, type_, value in launch["arguments"]:
        if isinstance(value, dict):
            place = arrays[value["pointer"]].address + evaluate(value["offset"], values)
            arguments[name] = _array(place, _DTYPES[type_.removeprefix("*")])
        else:
            arguments[name] = _scalar(value) if isinstance(value, float) else evaluate(value, values)
    function[tuple(evaluate(axis, values) for axis in launch["grid"])](**arguments)


def _scalar(value: float) -> Any:
    """Returns a value of type fp32 as a compiled kernel has it. The interpreter would pass Python's
    number."""
    interpreter, language = map(importlib.import_module, ("triton.runtime.interpreter", "triton.language"))
    handle = interpreter.TensorHandle(np.array([value], np.float32), language.float32)
    return language.tensor(handle, language.float32)


def _failed(error: Exception, kernel: _Kernel) -> CheckResult:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    said = one_line(cause, kernel.folder, kernel.unit["file"])
    if isinstance(cause, NotImplementedError):
        return CheckResult("unsupported", f"Triton's interpreter lacks it: {said}")
    return CheckResult("build_error", f"{said} (in Triton's interpreter)")


def _compute_in_bf16(interpreter: Any) -> None:
    """Gives bf16 its arithmetic and rounds fp32 to the nearest bf16, as GPUs do.

    By itself the interpreter computes with the bits as integers, and cuts the lower ones off.
    """
    convert, numpy_type = interpreter._convert_float, interpreter._get_np_dtype

    def converted(values: Any, of: Any, to: Any, rounding: Any) -> Any:
        if (of.name, to.name) == ("fp32", "bf16") and "RTZ" not in str(rounding):
            return values.astype(ml_dtypes.bfloat16).view(np.uint16)
        return convert(values, of, to, rounding)

    def typed(of: Any) -> Any:
        return np.dtype(ml_dtypes.bfloat16) if of.scalar.name == "bf16" else numpy_type(of)

    interpreter._convert_float, interpreter._get_np_dtype = converted, typed
    interpreter._interpreter = _Memory(interpreter._interpreter)


def _interpret_libdevice() -> None:
    """Takes functions of libdevice from tl.math. By themselves they return None in the interpreter."""
    library = importlib.import_module("triton.language.extra.libdevice")
    mathematics = importlib.import_module("triton.language.math")
    for name in [one for one, value in vars(library).items() if isinstance(value, FunctionType)]:

        def interpreted(*operands: Any, name: str = name) -> Any:
            if not hasattr(mathematics, name):
                raise NotImplementedError(f"{name} of libdevice")
            return getattr(mathematics, name)(*operands)

        setattr(library, name, interpreted)


class _Memory:
    """The interpreter's accesses to memory, which know bf16 as bits alone."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def load(self, places: Any, mask: Any, other: Any, dtype: Any) -> Any:
        if dtype != ml_dtypes.bfloat16:
            return self._native.load(places, mask, other, dtype)
        return self._native.load(places, mask, other.view(np.uint16), np.dtype(np.uint16)).view(dtype)

    def store(self, places: Any, values: Any, mask: Any) -> Any:
        bits = values.view(np.uint16) if values.dtype == ml_dtypes.bfloat16 else values
        return self._native.store(places, bits, mask)


def open_device() -> InterpreterDevice:
    """Opens the device. Only the worker calls it."""
    os.environ["TRITON_INTERPRET"] = "1"  # Triton asks when a function is declared
    return InterpreterDevice()
