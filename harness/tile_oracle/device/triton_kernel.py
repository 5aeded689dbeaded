"""Launches kernels that Triton compiled ahead. Needs neither Triton nor the file that declares them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from ctypes import c_float, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.loaded_run import LoadedKernel, Run, needed
from tile_oracle.device.runtime.driver import Arguments, Driver, Geometry, Launch, RuntimeFailure
from tile_oracle.problem import Problem
from tile_oracle.triton.archive import ArchivedArgument, ArchivedLaunch, Variant, read_archive
from tile_oracle.triton.expression import ExpressionError, evaluate
from tile_oracle.triton.views import OPERANDS, OUT, WORKSPACE, values_of

_ALIGNMENT = 256
_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
_MOST_WORKSPACE_BYTES = 1 << 40


@dataclass(frozen=True)
class _Loaded:
    """A launch whose code is on the device. module, function: the driver's handles. why_not: why the driver
    refuses its LDS, or ""."""

    told: ArchivedLaunch
    module: int
    function: int
    why_not: str


@dataclass(frozen=True)
class _Planned:
    """A launch for one problem. arguments: an array's role, or "", and the offset in it or the value."""

    function: int
    geometry: Geometry
    arguments: tuple[tuple[str, Any], ...]


def _launches(planned: Sequence[_Planned], *addresses: int) -> tuple[Launch, ...]:
    """Returns the launches for the addresses of the operands, of the result and of the workspace."""
    *operands, out, workspace = addresses
    places = {**dict(zip(OPERANDS, operands, strict=False)), OUT: out, WORKSPACE: workspace}

    def value(role: str, told: Any) -> Any:
        return c_void_p(places[role] + told) if role else told

    return tuple(
        Launch(one.function, one.geometry, Arguments(*(value(*argument) for argument in one.arguments)))
        for one in planned
    )


class TritonKernel(LoadedKernel):
    """The launches of an archive of Triton."""

    def __init__(self, driver: Driver, binary: Path, compute_units: int) -> None:
        """Raises RuntimeFailure, OSError, and ValueError for a file that is no archive."""
        self._driver, self._units = driver, compute_units
        self._archive = read_archive(binary)
        self._loaded: dict[str, tuple[_Loaded, ...]] = {}
        try:
            self._of(self._archive.variants[0])
        except RuntimeFailure:
            self.unload()
            raise

    def _of(self, variant: Variant) -> tuple[_Loaded, ...]:
        """Returns a variant's launches, whose code is loaded when it is first needed."""
        if variant.name not in self._loaded:
            self._loaded[variant.name] = ()
            for told in variant.launches:
                self._loaded[variant.name] += (self._load(told),)
        return self._loaded[variant.name]

    def _load(self, told: ArchivedLaunch) -> _Loaded:
        module = self._driver.load_module(told.image)
        function = self._driver.function(module, told.function)
        why_not = ""
        try:
            self._driver.allow_lds(function, told.lds_bytes)
        except RuntimeFailure as failure:
            why_not = f"needs {told.lds_bytes:,} bytes of LDS, which the device does not have: {failure}"
        return _Loaded(told, module, function, why_not)

    def plan(self, problem: Problem) -> Run:
        """Raises Unlaunchable with the reason when it cannot run the problem."""
        values = values_of(problem, self._units)
        try:
            variant = next(one for one in self._archive.variants if evaluate(one.when, values))
            workspace = evaluate(self._archive.workspace_bytes, values)
            if not 0 <= workspace <= _MOST_WORKSPACE_BYTES:
                raise Unlaunchable(f"a workspace of {workspace:,} bytes cannot be")
            planned = []
            for loaded in self._of(variant):
                one, workspace = self._planned(loaded, values, workspace)
                planned.append(one)
        except ExpressionError as error:
            raise Unlaunchable(str(error)) from None
        except StopIteration:
            raise Unlaunchable("it was compiled for none of the problem's alignments") from None
        most = max(planned, key=lambda one: one.geometry.lds_bytes).geometry
        needs = needed(most.block[0], most.lds_bytes)
        return Run(workspace, needs, partial(_launches, planned))

    def _planned(self, loaded: _Loaded, values: Mapping[str, int], workspace: int) -> tuple[_Planned, int]:
        """Returns the launch, and the size of the workspace with its scratch memory."""
        told = loaded.told
        if loaded.why_not:
            raise Unlaunchable(loaded.why_not)
        x, y, z = (evaluate(axis, values) for axis in told.grid)
        for extent, most in zip((x, y, z), _MOST_BLOCKS, strict=True):
            if not 1 <= extent <= most:
                raise Unlaunchable(f"its grid would be {x:,} x {y:,} x {z:,}")
        scratch: tuple[str, Any] = ("", c_void_p(None))
        if told.scratch_bytes:
            step = math.lcm(told.scratch_align, _ALIGNMENT)
            scratch = (WORKSPACE, -(-workspace // step) * step)
            workspace = scratch[1] + x * y * z * told.scratch_bytes
            if workspace > _MOST_WORKSPACE_BYTES:
                raise Unlaunchable(f"a workspace of {workspace:,} bytes cannot be")
        geometry = Geometry((x, y, z), (told.threads, 1, 1), told.lds_bytes)
        declared = (_argument(argument, values) for argument in told.arguments)
        # The binary also takes scratch memory, and that of a profiler.
        return _Planned(loaded.function, geometry, (*declared, scratch, ("", c_void_p(None)))), workspace

    def facts(self) -> Mapping[str, int]:
        first = self._of(self._archive.variants[0])[0]
        return self._driver.function_facts(first.function, first.told.threads, first.told.lds_bytes)

    def unload(self) -> None:
        """Free its memory."""
        loaded, self._loaded = self._loaded, {}
        for launches in loaded.values():
            for one in launches:
                self._driver.unload_module(one.module)


def _argument(argument: ArchivedArgument, values: Mapping[str, int]) -> tuple[str, Any]:
    """Returns an argument of `_Planned`. Raises Unlaunchable."""
    if isinstance(argument.value, float):
        return "", c_float(argument.value)
    value = evaluate(argument.value, values)
    if argument.role:
        return argument.role, value
    bits = 64 if argument.type == "i64" else 32
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise Unlaunchable(f"its argument {argument.name} = {value:,} does not fit into {bits} bits")
    return "", c_int64(value) if bits == 64 else c_int32(value)
