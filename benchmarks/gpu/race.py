"""Times our kernels and PyTorch's functions alike: in one process, on the same operands, in turns.

The operands are those on which sessions time, each time is the mean run of a CUDA graph that is long enough
for the device's events, and one graph of each contender follows another, so that clocks and temperature are
the same for all.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.pytorch import Operation, views
from tile_oracle.device.gpu_data import GpuData
from tile_oracle.device.gpu_timer import GpuTimer, Timed
from tile_oracle.device.gpu_work import DeviceWork
from tile_oracle.device.loaded_kernel import load_kernel
from tile_oracle.device.loaded_run import LoadedKernel
from tile_oracle.device.runtime.cuda import open_cuda
from tile_oracle.device.runtime.driver import LibraryLaunch
from tile_oracle.operation.on_device import on_gpu
from tile_oracle.problem import Problem

_GRAPH_NS, _MOST_RUNS = 250_000.0, 128
_ROUNDS, _GRAPHS = 12, 3
_SEED = 20260
"""That of sessions, --data-seed."""
_TOLERANCE = 0.02
"""Of the largest value: sums of split depths may be rounded to bf16 in between."""

Capture = Callable[[int], Timed]
"""Makes a graph of so many runs."""


class Track:
    """A GPU that this process shares with PyTorch, and kernels that were loaded."""

    def __init__(self, torch: Any, work: Path) -> None:
        """work: the binary of kernels/gpu/device_work.hpp."""
        torch.cuda.init()
        self._torch, self._driver = torch, open_cuda()
        self._work = DeviceWork(self._driver, work)
        self._units = self._driver.properties().compute_units
        self._timer = GpuTimer(self._driver, 0)
        self._stream = torch.cuda.ExternalStream(self._driver.stream)
        self._loaded: dict[Path, LoadedKernel] = {}
        self._aside = ThreadPoolExecutor(1)
        self._kept: list[Any] = []

    def open(self, problem: Problem) -> GpuData:
        """Returns a problem's operands, to be closed by `close`."""
        return on_gpu(problem.op).gpu_data(self._driver, self._work, problem, _SEED)

    def close(self, data: GpuData, captures: Mapping[str, Timed]) -> None:
        """Frees a problem's graphs and operands."""
        self._driver.synchronize()
        for timed in captures.values():
            if timed.graph:
                self._driver.destroy_graph(timed.graph)
        self._kept.clear()
        data.close()
        self._torch.cuda.empty_cache()

    def operands(self, data: GpuData) -> tuple[Any, Any]:
        """Returns both timed operands as PyTorch's operation takes them. They share the memory."""
        return views(
            data.problem, *(self._tensor(one.address, one.size_bytes) for one in data.sets[0].inputs)
        )

    def _tensor(self, address: int, size_bytes: int) -> Any:
        shared = {"shape": (size_bytes // 2,), "typestr": "<i2", "data": (address, False), "version": 3}
        memory = type("Memory", (), {"__cuda_array_interface__": shared})()
        return self._torch.as_tensor(memory, device="cuda").view(self._torch.bfloat16)

    def kernel(self, data: GpuData, binary: Path) -> Capture:
        """Returns how one of our kernels is captured. Raises Unlaunchable, RuntimeFailure."""
        if binary not in self._loaded:
            self._loaded[binary] = load_kernel(self._driver, binary, self._units)
        plan = self._loaded[binary].plan(data.problem)
        scratch = data.buffer(plan.workspace_bytes).address if plan.workspace_bytes else 0
        timed = data.sets[0]
        launches = plan.launches(*(one.address for one in timed.inputs), timed.out.address, scratch)
        return lambda runs: Timed(launches, self._driver.capture(launches, runs), runs)

    def function(self, run: Callable[[], Any], *, search: bool = False) -> Capture:
        """Returns how a function of PyTorch is captured.

        search: with cudnn.benchmark, in a thread of its own, since PyTorch keeps the algorithm of a
        convolution for each thread.
        """

        def graph(runs: int) -> Any:
            torch = self._torch
            torch.backends.cudnn.benchmark = search
            try:
                with torch.no_grad(), torch.cuda.stream(self._stream):
                    for _ in range(3):
                        run()
                    torch.cuda.synchronize()
                    made = torch.cuda.CUDAGraph()
                    made.capture_begin(capture_error_mode="thread_local")
                    for _ in range(runs):
                        run()
                    made.capture_end()
                    return made
            finally:
                torch.backends.cudnn.benchmark = False

        def capture(runs: int) -> Timed:
            made = self._aside.submit(graph, runs).result() if search else graph(runs)
            self._kept.append(made)

            def replay(stream: int) -> int:
                with self._torch.cuda.stream(self._stream):
                    made.replay()
                return 0

            return Timed((LibraryLaunch("CUDAGraph.replay", replay),), 0, runs)

        return capture

    def ready(self, capture: Capture) -> Timed:
        """Returns a contender's graph, as long as those of sessions."""
        alone = capture(1)
        alone_ns = float(self._timer.time(alone, 6)[1:].min())
        if alone.graph:
            self._driver.destroy_graph(alone.graph)
        return capture(max(1, min(_MOST_RUNS, math.ceil(_GRAPH_NS / alone_ns))))

    def agrees(self, data: GpuData, operation: Operation) -> bool:
        """Returns whether a function of PyTorch computes the expected result."""
        torch, timed = self._torch, data.sets[0]
        with torch.no_grad(), torch.cuda.stream(self._stream):
            result = operation(*self.operands(data))
            flat = (result.permute(0, 2, 3, 1) if result.dim() == 4 else result).reshape(-1).float()
            assert isinstance(timed.expected, int)
            expected = self._tensor(timed.expected, timed.out.size_bytes).float()
            largest = expected.abs().max()
            return bool(((flat - expected).abs() <= _TOLERANCE * largest).all())

    def race(self, contenders: Mapping[str, Timed]) -> dict[str, float]:
        """Returns each contender's milliseconds: the median over its graphs but those of the first round."""
        taken: dict[str, list[float]] = {name: [] for name in contenders}
        names = list(contenders)
        for number in range(_ROUNDS if names else 0):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                times = self._timer.time(contenders[name], _GRAPHS + 1)[1:]
                if number:
                    taken[name] += list(np.asarray(times) / 1e6)
        return {name: statistics.median(times) for name, times in taken.items()}
