"""Compiles a pool ahead of time into a folder for another machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.compiling.binary import BuildResult
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.isa import GPU_MACHINES
from tile_oracle.compiling.prebuilt_folder import PrebuiltFacts, PrebuiltWriter
from tile_oracle.compiling.source import ABI_VERSION, DEVICE_WORK, device_work_source
from tile_oracle.errors import BuildError
from tile_oracle.kernel import Kernel
from tile_oracle.version import __version__

_TICK_S = 0.5


@dataclass(frozen=True)
class Progress:
    """Progress of a build. cached: how many of `done` were in the cache, which says nothing about the others.
    last_s: when the last one was done, on the clock of elapsed_s; None: now."""

    done: int
    total: int
    failed: int
    elapsed_s: float
    cached: int = 0
    last_s: float | None = None

    @property
    def rate_per_s(self) -> float:
        """Compiled kernels per second, until the last one was done."""
        until_s = self.elapsed_s if self.last_s is None else self.last_s
        return (self.done - self.cached) / until_s if until_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Estimated seconds left at the rate so far; None before the first kernel is compiled. Does not grow
        while a kernel takes its time."""
        if self.rate_per_s <= 0:
            return None
        since_s = 0.0 if self.last_s is None else self.elapsed_s - self.last_s
        return max(0.0, (self.total - self.done) / self.rate_per_s - since_s)


@dataclass(frozen=True)
class PrebuiltReport:
    """Result of a prebuild."""

    folder: Path
    built: tuple[BuildResult, ...]
    failed: tuple[BuildResult, ...]
    """Sorted by kernel name."""
    kernels_in_folder: int
    """Includes kernels of earlier builds with the same sources, toolchain and instruction set."""
    replaced: int
    """Kernels of an earlier, incompatible build that were dropped."""
    elapsed_s: float


def prebuilt_facts(builder: Builder) -> PrebuiltFacts:
    """Build settings shared by a builder's kernels. Raises BuildError without a toolchain."""
    if builder.toolchain is None:
        raise BuildError("kernels cannot be compiled ahead of time without a compiler: pip install ziglang")
    return PrebuiltFacts(
        abi=ABI_VERSION,
        arch=builder.arch,
        features=builder.isa.features,
        flags=builder.flags,
        harness_version=__version__,
        headers=builder.source.identity,
        isa=builder.isa.name,
        machine=builder.isa.machine,
        toolchain=builder.toolchain.identity,
    )


def build_all(
    builder: Builder,
    kernels: Iterable[Kernel],
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> list[BuildResult]:
    """Builds kernels and returns the results sorted by name.

    `on_progress` is called about twice a second and at the end. Raises BuildError when the cache cannot be
    used, and when there are no kernels.
    """
    begin = time.monotonic()
    waiting: set[Future[BuildResult]] = {builder.submit(kernel) for kernel in kernels}
    if not waiting:
        raise BuildError(
            "there is no kernel to build: the kernel set has none for this kind, or the filter excludes all"
        )
    total, results, last_s = len(waiting), list[BuildResult](), 0.0
    while waiting:
        done, waiting = wait(waiting, timeout=_TICK_S, return_when=FIRST_COMPLETED)
        results += [future.result() for future in done]
        elapsed_s = time.monotonic() - begin
        last_s = elapsed_s if done else last_s
        failures = sum(result.binary is None for result in results)
        cached = sum(result.cached for result in results)
        on_progress(Progress(len(results), total, failures, elapsed_s, cached, last_s))
    return sorted(results, key=lambda result: result.kernel.name)


def prebuild(
    builder: Builder,
    kernels: Iterable[Kernel],
    folder: Path,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> PrebuiltReport:
    """Builds kernels and writes them to the folder.

    `on_progress` is called about twice a second and at the end. A kernel that does not compile is reported
    but is not an error. Raises BuildError when the folder or the cache cannot be used; the folder's manifest
    is then unchanged.
    """
    begin = time.monotonic()
    writer = PrebuiltWriter(folder, prebuilt_facts(builder))
    results = build_all(builder, kernels, on_progress)
    for result in results:
        if result.binary is not None:
            writer.add(result.kernel.name, builder.source.unit(result.kernel), result.binary)
    if builder.arch in GPU_MACHINES:
        writer.add(DEVICE_WORK, device_work_source(builder.arch), builder.device_work())
    built = tuple(result for result in results if result.binary is not None)
    failed = tuple(result for result in results if result.binary is None)
    in_folder = writer.finish(without=[result.kernel.name for result in failed])
    return PrebuiltReport(folder, built, failed, in_folder, writer.replaced, time.monotonic() - begin)
