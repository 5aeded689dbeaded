"""Kernels that a worker has loaded onto a GPU: modules of kernels/gpu, libraries of CK Tile, archives of
Triton, algorithms of vendors' libraries."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tile_oracle.device.ck_tile_library import CkTileLibrary
from tile_oracle.device.gpu_abi import (
    FINISH,
    KERNEL,
    LAUNCH_INFO,
    LaunchPlan,
    gpu_args,
    plan_launch,
    read_launch_info,
)
from tile_oracle.device.library.kernel import load_algorithm
from tile_oracle.device.loaded_run import Launches, LoadedKernel, Run, needed
from tile_oracle.device.runtime.driver import Arguments, Driver, Launch, RuntimeFailure
from tile_oracle.device.triton_kernel import TritonKernel
from tile_oracle.libraries.offers import SUFFIX
from tile_oracle.problem import Problem
from tile_oracle.triton.archive import SUFFIX as TRITON_SUFFIX


def load_kernel(driver: Driver, binary: Path, compute_units: int) -> LoadedKernel:
    """Loads a library (.so), an archive of Triton (.zip), an algorithm of a vendor's library, or a module
    (any other suffix).

    Raises RuntimeFailure, OSError, and ValueError for a file with another ABI.
    """
    if binary.suffix == ".so":
        return LibraryKernel(CkTileLibrary(binary, driver.library))
    if binary.suffix == TRITON_SUFFIX:
        return TritonKernel(driver, binary, compute_units)
    if binary.suffix == SUFFIX:
        return load_algorithm(binary)
    return ModuleKernel(driver, binary, compute_units)


class ModuleKernel(LoadedKernel):
    """A module that implements kernels/gpu/abi.h."""

    def __init__(self, driver: Driver, binary: Path, compute_units: int) -> None:
        self._driver, self._units = driver, compute_units
        self._module = driver.load_module(binary.read_bytes())
        try:
            self._info = read_launch_info(driver.global_bytes(self._module, LAUNCH_INFO))
            self._conv = driver.function(self._module, KERNEL)
            self._finish = driver.function(self._module, FINISH) if self._info.two_stage else 0
            driver.allow_lds(self._conv, self._info.lds_bytes)
        except (RuntimeFailure, ValueError):
            self.unload()
            raise

    def plan(self, problem: Problem) -> Run:
        plan = plan_launch(problem, self._info, self._units)
        needs = needed(self._info.threads, self._info.lds_bytes)
        return Run(plan.workspace_bytes, needs, partial(self._launches, problem, plan))

    def _launches(
        self, problem: Problem, plan: LaunchPlan, first: int, second: int, out: int, scratch: int
    ) -> Launches:
        arguments = Arguments(gpu_args(problem, first, second, out, scratch, plan.split_k))
        conv = Launch(self._conv, plan.conv, arguments)
        return (conv,) if plan.finish is None else (conv, Launch(self._finish, plan.finish, arguments))

    def facts(self) -> Mapping[str, int]:
        return self._driver.function_facts(self._conv, self._info.threads, self._info.lds_bytes)

    def unload(self) -> None:
        self._driver.unload_module(self._module)


class LibraryKernel(LoadedKernel):
    """A library that implements kernels/ck_tile/abi.h and launches its kernel itself."""

    def __init__(self, library: CkTileLibrary) -> None:
        self._library = library

    def plan(self, problem: Problem) -> Run:
        plan = self._library.plan(problem)
        return Run(
            plan.workspace_bytes,
            needed(plan.threads, plan.lds_bytes),
            lambda first, second, out, scratch: (self._library.launch(problem, first, second, out, scratch),),
        )
