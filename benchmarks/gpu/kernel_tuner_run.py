"""Kernel Tuner (the package kernel-tuner) over our kernels, compiled ahead of time or not.

    python benchmarks/gpu/kernel_tuner_run.py PROBLEMS MOST OUTPUT [KERNELS]

KERNELS is a folder that `tile-oracle build` made; without it every kernel is compiled when its turn comes,
for each problem anew: Kernel Tuner keeps no binaries from one tuning to the next. MOST kernels of the pool
are tried on each problem. What it came to is written to OUTPUT, as JSON, the seconds in compilers apart.

Its own backends compile CUDA C++ with NVRTC, which cannot read kernels/gpu; so this gives it a backend that
compiles and loads through build and device.runtime. All else is its own: searching, verifying
against the expected output, and timing with events, 20 runs a configuration.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import kernel_tuner
import numpy as np
from kernel_tuner.backends import nvcuda
from kernel_tuner.backends.backend import GPUBackend
from kernel_tuner.observers.observer import BenchmarkObserver

from benchmarks.gpu.setting import some_kernels
from tile_oracle.compiling.builder import Builder
from tile_oracle.device.check_data import dense
from tile_oracle.device.gpu_abi import KERNEL, LAUNCH_INFO, gpu_args, plan_launch, read_launch_info
from tile_oracle.device.gpu_work import Buffer, DeviceWork
from tile_oracle.device.runtime.cuda import open_cuda
from tile_oracle.device.runtime.driver import Arguments, Driver, Launch
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem.number_formats import STORAGE
from tile_oracle.problem_set import load_problem_sets

ITERATIONS = 20


class Timer(BenchmarkObserver):
    """The time between the backend's two events, as Kernel Tuner's own backends observe it."""

    def __init__(self, backend: DriverBackend) -> None:
        self._backend = backend
        self._times: list[float] = []

    def after_finish(self) -> None:
        begin, end = self._backend.events
        self._times.append(self._backend.driver.elapsed_ns([begin, end])[0] / 1e6)

    def get_results(self) -> dict[str, Any]:
        found = {"time": float(np.average(self._times)), "times": self._times}
        self._times = []
        return found


class DriverBackend(GPUBackend):
    """See kernel_tuner.backends.backend.GPUBackend, which makes it; what it needs besides is on the class."""

    driver: Driver
    builder: Builder
    problem: GroupedConvProblem
    compiling_s = 0.0
    units = {"time": "ms"}  # noqa: RUF012

    def __init__(
        self,
        device: int = 0,
        iterations: int = ITERATIONS,
        compiler_options: Any = None,
        observers: Any = None,
    ) -> None:
        properties = self.driver.properties()
        self.name, self.max_threads, self.iterations = properties.name, 1024, iterations
        self._units = properties.compute_units
        self.env = {"device_name": properties.name, "iterations": iterations}
        self.events = (self.driver.make_event(), self.driver.make_event())
        self.observers = [*(observers or []), Timer(self)]
        for observer in self.observers:
            observer.register_device(self)
        self._module = 0

    def ready_argument_list(self, arguments: Sequence[Any]) -> list[int]:
        addresses = []
        for argument in arguments:
            addresses.append(self.driver.allocate(argument.nbytes))
            self.memcpy_htod(addresses[-1], argument)
        return addresses

    def compile(self, kernel_instance: Any) -> Any:
        """Loads what was compiled beforehand, or is compiled now."""
        if self._module:
            self.driver.unload_module(self._module)
        began = time.monotonic()
        built = self.builder.need(parse_kernel_name(kernel_instance.params["kernel"]))
        DriverBackend.compiling_s += time.monotonic() - began
        assert built.binary is not None, built.log
        self._module = self.driver.load_module(built.binary.path.read_bytes())
        info = read_launch_info(self.driver.global_bytes(self._module, LAUNCH_INFO))
        function = self.driver.function(self._module, KERNEL)
        self.driver.allow_lds(function, info.lds_bytes)
        return function, plan_launch(self.problem, info, self._units)

    def run_kernel(
        self, func: Any, gpu_args_: Sequence[int], threads: Any, grid: Any, stream: Any = None
    ) -> None:
        function, plan = func
        first, second, out = gpu_args_
        arguments = Arguments(gpu_args(self.problem, first, second, out, 0, plan.split_k))
        self.driver.launch(Launch(function, plan.conv, arguments))

    def start_event(self) -> None:
        self.driver.record(self.events[0])

    def stop_event(self) -> None:
        self.driver.record(self.events[1])

    def kernel_finished(self) -> bool:
        self.driver.synchronize()
        return True

    def synchronize(self) -> None:
        self.driver.synchronize()

    def memset(self, allocation: int, value: int, size: int) -> None:
        self.driver.set_bytes(allocation, value, size)

    def memcpy_dtoh(self, dest: Any, src: int) -> None:
        dest.reshape(-1).view(np.uint8)[:] = np.frombuffer(self.driver.copy_out(src, dest.nbytes), np.uint8)

    def memcpy_htod(self, dest: int, src: Any) -> None:
        self.driver.copy_in(dest, np.ascontiguousarray(src).tobytes())

    def copy_constant_memory_args(self, cmem_args: Any) -> None:
        """There are none."""

    def copy_shared_memory_args(self, smem_args: Any) -> None:
        """A kernel says itself what it takes."""

    def copy_texture_memory_args(self, texmem_args: Any) -> None:
        """There are none."""


def operands(driver: Driver, work: DeviceWork, problem: GroupedConvProblem) -> list[np.ndarray]:
    """Small integers for both inputs and the exact output, as they are stored: 16 bits each."""
    sizes = [int(np.prod(shape)) * STORAGE[problem.dtype].itemsize for shape in problem.operand_shapes]
    buffers = [Buffer(driver, size) for size in sizes]
    first, second, out = (buffer.address for buffer in buffers)
    work.fill(problem, dense(problem), 20260, first, second)
    work.reference(problem, first, second, out)
    found = [np.frombuffer(driver.copy_out(b.address, b.size_bytes), np.uint16).copy() for b in buffers]
    for buffer in buffers:
        buffer.close()
    return found


def tune(
    problem: GroupedConvProblem, names: Sequence[str], values: Sequence[np.ndarray]
) -> tuple[int, float]:
    """How many configurations were measured, and in how many seconds."""
    DriverBackend.problem = problem
    empty = np.zeros_like(values[2])
    began = time.monotonic()
    results, _ = kernel_tuner.tune_kernel(
        "to_conv",
        'extern "C" __global__ void to_conv(const void *in0, const void *in1, void *out) {}',
        (1, 1),
        [values[0], values[1], empty],
        {"kernel": list(names), "block_size_x": [1]},
        answer=[None, None, values[2]],
        lang="nvcuda",
        iterations=ITERATIONS,
        strategy="brute_force",
        quiet=True,
    )
    return len(results), time.monotonic() - began


def main(
    problem_set: str,
    most: str,
    output: str,
    kernels: str | None = None,
    open_driver: Callable[[], Driver] = open_cuda,
) -> None:
    nvcuda.CudaFunctions = DriverBackend
    configurations, seconds = 0, 0.0
    with contextlib.ExitStack() as kept:
        folder = Path(kernels or kept.enter_context(tempfile.TemporaryDirectory()))
        driver = DriverBackend.driver = open_driver()
        with Builder("sm_90", build_dir=folder) as builder:
            work = DeviceWork(driver, builder.device_work().path)
        for number, problem in enumerate(load_problem_sets(problem_set).problems):
            assert isinstance(problem, GroupedConvProblem)
            names = some_kernels(problem, int(most))
            build_dir = Path(kernels) if kernels else folder / str(number)
            with Builder("sm_90", build_dir=build_dir) as DriverBackend.builder:
                count, taken_s = tune(problem, names, operands(driver, work, problem))
            configurations, seconds = configurations + count, seconds + taken_s
    found = {
        "configurations": configurations,
        "seconds": seconds,
        "compiling_s": DriverBackend.compiling_s,
        "configurations_per_s": configurations / seconds,
        "kernel_tuner": kernel_tuner.__version__,
    }
    Path(output).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:5])
