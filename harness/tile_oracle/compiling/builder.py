"""The builder compiles kernels in the background, caches the binaries and returns futures."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from tile_oracle.compiling.binary import Binary, BuildResult
from tile_oracle.compiling.cache import (
    BuildCache,
    CacheEntry,
    check_runs_code,
    content_key,
    default_cache_folder,
)
from tile_oracle.compiling.code_verifier import NOTE, REFUSE, VERIFIABLE, CodeVerifier
from tile_oracle.compiling.compiler import Compiler
from tile_oracle.compiling.compiler_message import compiler_message
from tile_oracle.compiling.equipment import equip
from tile_oracle.compiling.isa import Isa
from tile_oracle.compiling.job_queue import Job, JobQueue
from tile_oracle.compiling.kernel_source import NATIVE, KernelSource
from tile_oracle.compiling.prebuilt_folder import is_prebuilt_folder
from tile_oracle.compiling.source import DEVICE_WORK, device_work_source, source_suffix
from tile_oracle.compiling.toolchain import Toolchain
from tile_oracle.errors import BuildError, KernelError
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


class Builder:
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
        self._equipment, self._timeout_s, self._verifier = found, timeout_s, verifier
        if build_dir is None:
            # Without a compiler nothing is cached, so no home folder is needed.
            uncached = found.prebuilt if found.toolchain is None else None
            build_dir = default_cache_folder() if uncached is None else uncached.folder
        suffix = found.toolchain.suffix if found.toolchain is not None else ".so"
        self.cache = BuildCache(build_dir, suffix, source_suffix(arch))
        self._compiler: Compiler | None = None
        if found.toolchain is not None:
            self._compiler = Compiler(found.source, found.toolchain, found.isa, self.cache, timeout_s)
        if runs_here and arch == "cpu":
            check_runs_code(self.cache.folder if found.prebuilt is None else found.prebuilt.folder)
        self._queue = JobQueue(jobs or max(1, usable_cores() - 1), self._run, self._fail)
        self._lock = threading.Lock()
        self._futures: dict[Kernel, Future[BuildResult]] = {}
        self._compiles: dict[Kernel, Job] = {}
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
            job = Job(kernel, *done, future)
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
        if self._compiler is not None:
            self._compiler.stop()
        self._queue.join()

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, job: Job) -> bool:
        """Builds a job. Returns False while another session or thread builds the same binary."""
        lock = None if self.cache.find(job.key) else self.cache.try_lock(job.key)
        if lock is None and self.cache.find(job.key) is None:
            job.locked_since = job.locked_since or time.monotonic()
            if time.monotonic() - job.locked_since <= 2 * self._timeout_s:
                return False
            # The lock's holder is probably suspended. Two builders are safe: entries are renamed into place.
        with lock or nullcontext():
            result = self._make(job.kernel, job.unit, job.key)
        self._finish(job, result)
        return True

    def _finish(self, job: Job, result: BuildResult) -> None:
        self._count(result)
        with self._lock:
            self._compiles.pop(job.kernel, None)
            if result.interrupted:
                self._futures.pop(job.kernel, None)  # the next request compiles it again
        with suppress(Exception):
            job.future.set_result(result)

    def _fail(self, job: Job, error: Exception) -> None:
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

    @property
    def source_identity(self) -> str:
        """Hash of everything but the kernel that determines a binary. A run is resumed only if it is
        equal."""
        if self._compiler is not None:
            return self._compiler.identity
        folder = self._equipment.prebuilt
        assert folder is not None
        return content_key(asdict(folder.facts))

    def source_hash(self, kernel: Kernel) -> str:
        """Returns the `source_hash` that the kernel's binary has or would have, without compiling it.

        "" for a kernel that has no code on this architecture, or that is not prebuilt and cannot be compiled.
        """
        try:
            unit = self._equipment.source.unit(kernel)
        except KernelError:
            return ""
        binary = self._equipment.find_prebuilt(kernel.name, unit)
        if binary is not None:
            return binary.source_hash
        return "" if self._compiler is None else self._compiler.key(unit)

    def _without_compiler(self, kernel: Kernel) -> BuildResult | tuple[str, str]:
        """Returns the result if no compiler is needed, else (translation unit, cache key).

        Raises BuildError when a compiler is needed and there is none.
        """
        try:
            unit = self._equipment.source.unit(kernel)
        except KernelError as error:
            return BuildResult(kernel, "build_error", None, str(error), cached=False)
        binary = self._equipment.find_prebuilt(kernel.name, unit)
        if binary is not None:
            return BuildResult(kernel, "ok", binary)
        if self._compiler is None:
            folder = self._equipment.prebuilt
            where = f" is not in {folder.folder} and" if folder is not None else ""
            raise BuildError(
                f"kernel {kernel.name}{where} cannot be compiled: {self._equipment.why_no_toolchain}"
            )
        key = self._compiler.key(unit)
        entry = self.cache.find(key)
        if entry is not None and self._verifier.knows(entry):
            return self._found(self._compiler, kernel, key, entry)
        return unit, key

    def _make(self, kernel: Kernel, unit: str, key: str) -> BuildResult:
        """Compiles a kernel, unless the cache now has it, or has a log of its failure in this session.

        The caller holds the cache's lock on the key. Raises BuildError when the cache cannot be written, and
        after `close`.
        """
        compiler = self._compiler
        assert compiler is not None
        entry = self.cache.find(key)
        if entry is not None:
            return self._found(compiler, kernel, key, entry)
        failed = self.cache.log_since(key, self._began)
        if failed is not None:
            return BuildResult(kernel, "build_error", None, failed, failed_with=compiler.toolchain)
        make = partial(compiler.make, kernel.name, unit, key, self._verifier.look)
        entry, ended = compiler.make_again_if_killed(make, self._queue.run_fewer)
        if entry is None:
            facts = (ended.log, ended.seconds, False, ended.killed, compiler.toolchain)
            return BuildResult(kernel, "build_error", None, *facts)
        binary = compiler.binary(key, entry)
        return self._judged(BuildResult(kernel, "ok", binary, ended.log, ended.seconds, cached=False))

    def device_work(self) -> Binary:
        """Returns the harness's own GPU code (kernels/gpu/device_work.hpp), compiling it if necessary.

        Raises BuildError when it cannot be built, and for an architecture that has none.
        """
        unit = device_work_source(self.arch)
        binary = self._equipment.find_prebuilt(DEVICE_WORK, unit)
        if binary is not None:
            return binary
        if self._equipment.source.implementation != NATIVE:
            # Device work is native code; another source's toolchain may not produce loadable modules.
            return Builder(self.arch, build_dir=self.cache.folder, timeout_s=self._timeout_s).device_work()
        if self._compiler is None:
            raise BuildError(
                f"the harness's own code for {self.arch} cannot be compiled: "
                f"{self._equipment.why_no_toolchain}"
            )
        key = self._compiler.key(unit)
        entry = self.cache.find(key)
        if entry is None:
            # Another session may build it too; no lock is needed, since entries are renamed into place.
            with self.cache.try_lock(key) or nullcontext():
                entry, ended = self._compiler.make(DEVICE_WORK, unit, key)
            if entry is None:
                raise BuildError(
                    f"kernels/gpu/device_work.hpp does not compile: {compiler_message(ended.log)}"
                )
        return self._compiler.binary(key, entry)

    def assembly(self, kernel: Kernel) -> str:
        """Compiles a kernel to assembly, without a binary. Raises BuildError when that fails."""
        if self._compiler is None:
            raise BuildError(f"{kernel.name} cannot be verified without the compiler that made it")
        return self._compiler.assembly(kernel)

    def _found(self, compiler: Compiler, kernel: Kernel, key: str, entry: CacheEntry) -> BuildResult:
        log = entry.facts.get("log")
        log = log if isinstance(log, str) else ""
        return self._judged(BuildResult(kernel, "ok", compiler.binary(key, entry), log))

    def _judged(self, result: BuildResult) -> BuildResult:
        return self._verifier.judged(result, self.assembly)
