"""The builder compiles kernels in the background, caches the binaries and returns futures."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from tile_oracle.compiling.binary import Binary, BuildResult
from tile_oracle.compiling.binary_maker import BinaryMaker
from tile_oracle.compiling.cache import check_runs_code
from tile_oracle.compiling.code_verifier import NOTE, REFUSE, VERIFIABLE, CodeVerifier
from tile_oracle.compiling.compiler_message import compiler_message
from tile_oracle.compiling.equipment import equip
from tile_oracle.compiling.isa import Isa
from tile_oracle.compiling.job_queue import Job, JobQueue
from tile_oracle.compiling.kernel_source import KernelSource
from tile_oracle.compiling.prebuilt_folder import is_prebuilt_folder
from tile_oracle.compiling.toolchain import Toolchain
from tile_oracle.errors import BuildError
from tile_oracle.kernel import Kernel
from tile_oracle.process.cores import usable_cores
from tile_oracle.verify.findings import Report

__all__ = ["NOTE", "REFUSE", "VERIFIABLE", "Binary", "BuildResult", "BuildStats", "Builder"]

_LONGEST_TIMEOUT_S = 24 * 3600.0


@dataclass(frozen=True)
class BuildStats:
    """Counters of a builder. compile_seconds is the total wall time of the compiler processes."""

    compiled: int = 0
    cached: int = 0
    failed: int = 0
    compile_seconds: float = 0.0


class _Compile(Job):
    """A kernel that is waiting for a compiler."""

    def __init__(self, kernel: Kernel, unit: str, key: str, future: Future[BuildResult]) -> None:
        self.kernel, self.unit, self.key, self.future = kernel, unit, key, future
        self.locked_since: float | None = None


class Builder(BinaryMaker):
    """Builds kernels for one architecture.

    Background threads run compilers as child processes; this process never loads a binary. Results are kept,
    so asking again costs a dictionary lookup. Use as a context manager, or call `close`.
    """

    def __init__(
        self,
        arch: str = "cpu",
        toolchain: str | Toolchain = "auto",
        build_dir: Path | None = None,
        jobs: int | None = None,
        isa: str = "native",
        include: Path | None = None,
        prebuilt: Path | None = None,
        timeout_s: float = 300.0,
        runs_here: bool = True,
        source: KernelSource | None = None,
        verify: str = "",
    ) -> None:
        """Opens the cache and finds a toolchain.

        build_dir: the cache folder. A folder made by `tile-oracle build` is used as `prebuilt` instead.
        jobs: compilers that run at once. By default one fewer than the cores, to leave one for timed kernels.
        include: replaces the headers that ship for the architecture.
        timeout_s: time limit of one compiler process.
        runs_here: refuse an instruction set that this machine lacks. False builds for another machine.
        source: the kernel source; the project's own kernels by default.
        verify: verify gfx950 machine code as it is built. NOTE stores the report for `report`. REFUSE also
        turns a kernel with findings into a build_error.

        Raises BuildError when there is neither a toolchain nor a prebuilt folder, and for a folder,
        instruction set or architecture that cannot be used.
        """
        if jobs is not None and jobs < 1:
            raise BuildError(f"jobs = {jobs}: at least one compiler must run")
        if not 0 < timeout_s <= _LONGEST_TIMEOUT_S:
            raise BuildError(f"compile timeout {timeout_s:g} s is not between 0 and {_LONGEST_TIMEOUT_S:g} s")
        if build_dir is not None and prebuilt is None and is_prebuilt_folder(build_dir):
            build_dir, prebuilt = None, build_dir
        verifier = CodeVerifier(arch, verify)
        found = equip(arch, toolchain, isa, include, prebuilt, runs_here, source)
        self.arch = arch
        self.isa: Isa = found.isa
        self.toolchain: Toolchain | None = found.toolchain
        self.flags: tuple[str, ...] = found.flags
        self.source: KernelSource = found.source
        self.notes: list[str] = found.notes
        """Messages to show to the user once, such as a stale folder."""
        super().__init__(found, build_dir, timeout_s, verifier)
        if runs_here and arch == "cpu":
            check_runs_code(self.cache.folder if found.prebuilt is None else found.prebuilt.folder)
        self._queue = JobQueue[_Compile](jobs or max(1, usable_cores() - 1), self._run, self._fail)
        self._lock = threading.Lock()
        self._futures: dict[Kernel, Future[BuildResult]] = {}
        self._compiles: dict[Kernel, _Compile] = {}
        self._closed = False
        self._stats = BuildStats()
        self._began = time.time()

    def submit(self, kernel: Kernel) -> Future[BuildResult]:
        """Returns the future result of a kernel. Kernels without a binary compile in order of submission.

        The future raises BuildError when the build folder cannot be used or the builder was closed.
        """
        future = self._futures.get(kernel)
        if future is not None:
            return future
        with self._lock:
            if kernel in self._futures:
                return self._futures[kernel]
            future = self._futures[kernel] = Future()
            # The future is shared by all callers that ask for this kernel: none of them may cancel it.
            future.set_running_or_notify_cancel()
            if self._closed:
                future.set_exception(BuildError("the builder is closed"))
                return future
        try:
            done = self._without_compiler(kernel)
        except BuildError as error:
            future.set_exception(error)
            return future
        except BaseException as error:
            future.set_exception(error)
            raise
        if isinstance(done, BuildResult):
            self._count(done)
            future.set_result(done)
        else:
            job = _Compile(kernel, *done, future)
            with self._lock:
                self._compiles[kernel] = job
            self._queue.add(job)
        return future

    def need(self, kernel: Kernel) -> BuildResult:
        """Moves a kernel to the front of the queue and waits for its result.

        Raises BuildError when the build folder cannot be used or the builder was closed.
        """
        future = self.submit(kernel)
        job = self._compiles.get(kernel)
        if job is not None:
            self._queue.hurry(job)
        return future.result()

    def ended(self) -> list[Kernel]:
        """Returns the submitted kernels that wait for no compiler any more, with or without a binary."""
        return [kernel for kernel, future in list(self._futures.items()) if future.done()]

    def needs_compiler(self, kernel: Kernel) -> bool:
        """Returns whether the kernel's binary is neither prebuilt nor in the cache, but can be compiled."""
        try:
            return kernel not in self._futures and not isinstance(self._without_compiler(kernel), BuildResult)
        except BuildError:
            return False

    def describe(self) -> str:
        """Compiler and instruction set on one line."""
        return f"{self.toolchain.identity}, {self.isa.name}" if self.toolchain else "prebuilt kernels"

    def report(self, kernel: Kernel) -> Report:
        """Returns the verifier's report on a kernel's machine code, building the kernel if necessary.

        Raises BuildError for a kernel that does not build or whose assembly cannot be produced.
        """
        result = self.need(kernel)
        if result.binary is None:
            raise BuildError(f"{kernel.name} cannot be verified: {compiler_message(result.log)}")
        return self._verifier.report(kernel, result.binary, self.assembly)

    def stats(self) -> BuildStats:
        """Counters so far. Does not wait for the lock, which is held while a compiler is prepared."""
        return self._stats

    def close(self) -> None:
        """Stops compilers and drops queued jobs; their futures raise BuildError. Safe to call twice."""
        with self._lock:
            self._closed = True
        self._queue.close()
        self._stop()
        self._queue.join()

    def __enter__(self) -> Builder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, job: _Compile) -> bool:
        """Builds a job. Returns False while another session or thread builds the same binary."""
        lock = None if self.cache.find(job.key) else self.cache.try_lock(job.key)
        if lock is None and self.cache.find(job.key) is None:
            job.locked_since = job.locked_since or time.monotonic()
            if time.monotonic() - job.locked_since <= 2 * self._timeout_s:
                return False
            # The lock's holder is probably suspended. Two builders are safe: entries are renamed into place.
        with lock or nullcontext():
            result = self._make(job.kernel, job.unit, job.key, self._began, self._queue.run_fewer)
        self._finish(job, result)
        return True

    def _finish(self, job: _Compile, result: BuildResult) -> None:
        self._count(result)
        with self._lock:
            self._compiles.pop(job.kernel, None)
            if result.interrupted:
                self._futures.pop(job.kernel, None)  # the next request compiles it again
        with suppress(Exception):
            job.future.set_result(result)

    def _fail(self, job: _Compile, error: Exception) -> None:
        with self._lock:
            self._compiles.pop(job.kernel, None)
        with suppress(Exception):
            job.future.set_exception(error)

    def _count(self, result: BuildResult) -> None:
        with self._lock:
            s = self._stats
            self._stats = replace(
                s,
                compiled=s.compiled + (result.status == "ok" and not result.cached),
                cached=s.cached + result.cached,
                failed=s.failed + (result.status != "ok"),
                compile_seconds=s.compile_seconds + result.seconds,
            )
