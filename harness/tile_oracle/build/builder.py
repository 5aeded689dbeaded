"""The builder: kernels in, futures of binaries out, compiled in the background and cached."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from tile_oracle.build.ahead import is_ahead_folder
from tile_oracle.build.binary import Binary, BuildResult
from tile_oracle.build.cache import BuildCache, CacheEntry, content_key, default_cache_folder
from tile_oracle.build.complaint import complaint
from tile_oracle.build.gpu_toolchain import ASSEMBLY
from tile_oracle.build.isa import Isa, isa_for, this_cpu
from tile_oracle.build.kernel_source import NATIVE, KernelSource
from tile_oracle.build.native import native_source
from tile_oracle.build.prebuilt import PrebuiltKernels
from tile_oracle.build.process import CompilerProcesses, Ended
from tile_oracle.build.source import (
    ABI_VERSION,
    DEVICE_WORK,
    Headers,
    device_work_source,
    lds_buffers,
    source_suffix,
)
from tile_oracle.build.toolchain import INCLUDE_FOLDER, AssemblyToolchain, Toolchain
from tile_oracle.cores import usable_cores
from tile_oracle.errors import BuildError, KernelError
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.verify.findings import Report
from tile_oracle.verify.verdicts import keep_verdict, read_verdict
from tile_oracle.verify.verifier import verify_assembly

__all__ = ["NOTE", "REFUSE", "VERIFIABLE", "Binary", "BuildResult", "BuildStats", "Builder"]

NOTE, REFUSE = "note", "refuse"
"""What a builder does with what the verifier finds."""

VERIFIABLE = ("gfx950",)
"""Architectures whose machine code can be verified."""

_KEY_VERSION = 1
_POLL_S = 0.02
_TRIES_AFTER_SIGNAL = 2
_LONGEST_TIMEOUT_S = 24 * 3600.0


@dataclass(frozen=True)
class BuildStats:
    """What a builder did so far. compile_seconds is the wall time of compiler processes, added up."""

    compiled: int = 0
    cached: int = 0
    failed: int = 0
    compile_seconds: float = 0.0


class _Job:
    """A kernel that is waiting for a compiler."""

    def __init__(self, kernel: Kernel, source: str, key: str, future: Future[BuildResult]) -> None:
        self.kernel = kernel
        self.source = source
        self.key = key
        self.future = future
        self.needed = False
        self.locked_since: float | None = None


class Builder:
    """Builds kernels for one architecture.

    Compilers run in background threads' child processes; nothing is ever loaded here. Results are
    remembered, so asking again costs a dictionary lookup. Use as a context manager, or call `close`.
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
        """`build_dir` is the cache's folder; one that `tile-oracle build` made is taken as `prebuilt`.

        `jobs` compilers run at once (default: one less than the cores, so that timed kernels have one);
        `include` replaces the headers that ship for the architecture; `timeout_s` stops a compiler.
        `runs_here`: refuse an instruction set that this machine lacks; False to build for another one.
        `source`: whose kernels to build; ours by default.
        `verify`: gfx950 machine code is verified as it is built (verify): NOTE keeps the report for
        `report`, REFUSE makes a kernel with a finding a build_error.

        Raises BuildError when there is no toolchain and nothing prebuilt, and for a folder, instruction
        set or architecture that cannot be used.
        """
        if jobs is not None and jobs < 1:
            raise BuildError(f"jobs = {jobs}: at least one compiler must run")
        if not 0 < timeout_s <= _LONGEST_TIMEOUT_S:
            raise BuildError(f"compile timeout {timeout_s:g} s is not between 0 and {_LONGEST_TIMEOUT_S:g} s")
        if build_dir is not None and prebuilt is None and is_ahead_folder(build_dir):
            build_dir, prebuilt = None, build_dir
        if verify and arch not in VERIFIABLE:
            raise BuildError(f"kernels for {arch} cannot be verified: only {', '.join(VERIFIABLE)}")
        self._verify = verify
        self.arch = arch
        self.notes: list[str] = []
        """What a person should be told once: a stale folder, a missing compiler."""
        self.source: KernelSource = source if source is not None else native_source(arch, include)
        self.compiled_from = self.source.identity
        """What is compiled, besides the units; `source` may be a folder of such binaries instead."""
        self.headers: Headers = self.source.headers
        self.isa: Isa = isa_for(arch, isa)
        missing = self.isa.missing(this_cpu()) if runs_here else ()
        if missing:
            raise BuildError(f"this machine lacks {', '.join(missing)} of --isa {isa}: use --isa native")
        self.toolchain: Toolchain | None = None
        self.flags: tuple[str, ...] = ()
        self._no_toolchain = ""
        folder = PrebuiltKernels(prebuilt, self.source) if prebuilt is not None else None
        try:
            self.toolchain = (
                self.source.find_toolchain(toolchain) if isinstance(toolchain, str) else toolchain
            )
            self.flags = self.toolchain.flags(arch, self.isa)
        except BuildError as error:
            if folder is None:
                raise
            self.toolchain, self._no_toolchain = None, str(error)
        self._use_unless_stale(folder)
        if build_dir is None:
            # Without a compiler nothing is cached: a machine without a home folder is none the worse.
            build_dir = folder.folder if folder and not self.toolchain else default_cache_folder()
        self._output = "kernel" + (self.toolchain.suffix if self.toolchain is not None else ".so")
        self.cache = BuildCache(build_dir, Path(self._output).suffix, source_suffix(arch))
        self._timeout_s = timeout_s
        self._jobs = jobs or max(1, usable_cores() - 1)
        self._processes = CompilerProcesses()
        self._changed = threading.Condition()
        self._futures: dict[Kernel, Future[BuildResult]] = {}
        self._queue: deque[_Job] = deque()
        self._jobs_by_kernel: dict[Kernel, _Job] = {}
        self._threads: list[threading.Thread] = []
        self._idle = self._busy = 0
        self._at_once = self._jobs
        self._alone = threading.Lock()
        self._closed = False
        self._stats = BuildStats()
        self._began = time.time()

    # ---- asking -----------------------------------------------------------------------------

    def submit(self, kernel: Kernel) -> Future[BuildResult]:
        """The future result of a kernel; compiled in the order of submission unless it is there already.

        The future raises BuildError when the build folder cannot be used or the builder was closed.
        """
        future = self._futures.get(kernel)
        if future is not None:
            return future
        with self._changed:
            if kernel in self._futures:
                return self._futures[kernel]
            future = self._futures[kernel] = Future()
            # Shared between all who ask for the kernel, so none of them may cancel it.
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
            self._enqueue(_Job(kernel, *done, future))
        return future

    def need(self, kernel: Kernel) -> BuildResult:
        """The result of a kernel that is needed now: it goes to the front of the queue. Blocks.

        Raises BuildError when the build folder cannot be used or the builder was closed.
        """
        future = self.submit(kernel)
        if not future.done():
            with self._changed:
                job = self._jobs_by_kernel.get(kernel)
                if job is not None and not job.needed:
                    job.needed = True
                    with suppress(ValueError):
                        self._queue.remove(job)
                        self._queue.appendleft(job)
        return future.result()

    def source_hash(self, kernel: Kernel) -> str:
        """The `source_hash` that the kernel's binary has or would have; nothing is compiled. "" for a kernel
        that has no code here, or that this builder cannot compile and does not have."""
        try:
            unit = self.source.unit(kernel)
        except KernelError:
            return ""
        binary = self._prebuilt(kernel.name, unit)
        if binary is not None:
            return binary.source_hash
        return "" if self.toolchain is None else self._key(unit)

    def device_work(self) -> Binary:
        """The harness's own code for a GPU, compiled now unless it is there already. Blocks.

        Raises BuildError when it cannot be had, and for an architecture that has none.
        """
        unit = device_work_source(self.arch)
        binary = self._prebuilt(DEVICE_WORK, unit)
        if binary is not None:
            return binary
        if self.source.implementation != NATIVE:
            # Ours: the toolchain of other kernels may make something else than a module.
            with Builder(self.arch, build_dir=self.cache.folder, timeout_s=self._timeout_s) as own:
                binary = own.device_work()
                self.cache.mark(binary.source_hash)
                return binary
        if self.toolchain is None:
            raise BuildError(
                f"the harness's own code for {self.arch} cannot be compiled: {self._no_toolchain}"
            )
        key = self._key(unit)
        entry = self.cache.find(key)
        if entry is None:
            # Not waited for another session that builds it, too: entries are renamed into place.
            with self.cache.try_lock(key) or nullcontext():
                entry, ended = self._make(DEVICE_WORK, unit, key)
            if entry is None:
                raise BuildError(f"kernels/gpu/device_work.hpp does not compile: {complaint(ended.log)}")
        return self._binary(key, entry)

    def describe(self) -> str:
        """Compiler and instruction set, in a line."""
        return f"{self.toolchain.identity}, {self.isa.name}" if self.toolchain else "prebuilt kernels"

    def report(self, kernel: Kernel) -> Report:
        """What the verifier says of a kernel's machine code; compiled, or taken from the cache. Blocks.

        Raises BuildError for a kernel that does not build, or whose assembly cannot be had.
        """
        result = self.need(kernel)
        if result.binary is None:
            raise BuildError(f"{kernel.name} cannot be verified: {complaint(result.log)}")
        return self._report(kernel, result.binary)

    def stats(self) -> BuildStats:
        """What was done so far."""
        with self._changed:
            return self._stats

    def close(self) -> None:
        """Stops compilers and gives up what is queued: its futures raise BuildError. Safe to call twice."""
        with self._changed:
            self._closed = True
            given_up = list(self._queue)
            self._queue.clear()
            self._changed.notify_all()
        for job in given_up:
            self._fail(job, BuildError("the builder was closed"))
        self._processes.stop_all()
        for thread in self._threads:
            thread.join()
        self.cache.close()

    def __enter__(self) -> Builder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- what is there already ----------------------------------------------------------------

    def _without_compiler(self, kernel: Kernel) -> BuildResult | tuple[str, str]:
        """The result, or (unit, key) of what must be compiled."""
        try:
            unit = self.source.unit(kernel)
        except KernelError as error:
            return BuildResult(kernel, "build_error", None, str(error), 0.0, False)
        binary = self._prebuilt(kernel.name, unit)
        if binary is not None:
            return BuildResult(kernel, "ok", binary, "", 0.0, cached=True)
        if self.toolchain is None:
            where = f" is not in {self.source.folder} and" if isinstance(self.source, PrebuiltKernels) else ""
            raise BuildError(f"kernel {kernel.name}{where} cannot be compiled: {self._no_toolchain}")
        key = self._key(unit)
        entry = self.cache.find(key)
        if entry is not None and not (self._verify and read_verdict(entry.path.parent) is None):
            return self._found(kernel, key, entry)
        return unit, key

    @cached_property
    def source_identity(self) -> str:
        """Hash of all that decides the binaries besides the kernels: equal for runs that may be joined."""
        return self.source.identity if self.toolchain is None else content_key(self._key_parts())

    def _key(self, unit: str) -> str:
        return content_key(self._key_parts() | {"source": unit})

    def _key_parts(self) -> dict[str, Any]:
        assert self.toolchain is not None
        return {
            "key_version": _KEY_VERSION,
            "abi": ABI_VERSION,
            "arch": self.arch,
            "headers": self.compiled_from,
            "flags": self.flags,
            "toolchain": self.toolchain.fingerprint,
            "isa": self.isa.fingerprint,
        }

    def _found(self, kernel: Kernel, key: str, entry: CacheEntry) -> BuildResult:
        log = entry.facts.get("log")
        log = log if isinstance(log, str) else ""
        return self._judged(BuildResult(kernel, "ok", self._binary(key, entry), log, 0.0, cached=True))

    def _binary(self, key: str, entry: CacheEntry) -> Binary:
        assert self.toolchain is not None
        made_by = self.toolchain.identity
        return Binary(entry.path, key, entry.bytes, made_by, self.flags, self.arch, self.isa.name)

    def _prebuilt(self, name: str, unit: str) -> Binary | None:
        try:
            return self.source.prebuilt(name, unit)
        except BuildError as error:
            if self.toolchain is None:
                raise
            self.notes.append(f"{error}; the kernel is compiled again")
            return None

    def _use_unless_stale(self, folder: PrebuiltKernels | None) -> None:
        if folder is None:
            return
        why = folder.why_stale(self.isa)
        if why is None:
            self.source = folder
        elif self.toolchain is None:
            raise BuildError(f"{folder.folder} {why}, and cannot be built again: {self._no_toolchain}")
        else:
            self.notes.append(f"{folder.folder} {why}: its kernels are compiled again")

    # ---- compiling ----------------------------------------------------------------------------

    def _enqueue(self, job: _Job) -> None:
        with self._changed:
            closed = self._closed
            if not closed:
                self._jobs_by_kernel[job.kernel] = job
                self._queue.append(job)
                if self._idle < len(self._queue) and len(self._threads) < self._jobs:
                    thread = threading.Thread(target=self._work, name="tile-oracle-build", daemon=True)
                    self._threads.append(thread)
                    thread.start()
                self._changed.notify_all()
        if closed:
            self._fail(job, BuildError("the builder is closed"))

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                while not self._closed and (not self._queue or self._busy >= self._at_once):
                    self._changed.wait()
                self._idle -= 1
                if self._closed:
                    return
                job = self._queue.popleft()
                self._busy += 1
            try:
                result = self._build_unless_locked(job)
            except Exception as error:
                # Whoever waits for the kernel gets the error; this thread goes on for the others.
                self._fail(job, error)
                continue
            finally:
                with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()
            if result is None:
                self._put_back(job)
            else:
                self._finish(job, result)

    def _build_unless_locked(self, job: _Job) -> BuildResult | None:
        """The result, or None while another session (or thread) builds the same binary."""
        entry = self.cache.find(job.key)
        if entry is not None:
            return self._found(job.kernel, job.key, entry)
        lock = self.cache.try_lock(job.key)
        if lock is not None:
            with lock:
                return self._build_locked(job)
        job.locked_since = job.locked_since or time.monotonic()
        if time.monotonic() - job.locked_since > 2 * self._timeout_s:
            # Its holder is stopped. Entries are renamed into place, so two builders do no harm.
            return self._build_locked(job)
        return None

    def _run_fewer(self) -> None:
        """A compiler was killed: the memory may not be enough for so many at once."""
        with self._changed:
            self._at_once = max(1, self._at_once // 2)

    def _put_back(self, job: _Job) -> None:
        with self._changed:
            closed = self._closed
            if not closed:
                # Kept out of the queue meanwhile: other threads would only find it locked, too.
                self._changed.wait(_POLL_S)
                closed = self._closed
            if not closed:
                if job.needed:
                    self._queue.appendleft(job)
                else:
                    self._queue.append(job)
        if closed:
            self._fail(job, BuildError("the builder was closed"))

    def _build_locked(self, job: _Job) -> BuildResult:
        entry = self.cache.find(job.key)
        if entry is not None:
            return self._found(job.kernel, job.key, entry)
        failed = self.cache.log_since(job.key, self._began)
        if failed is not None:
            return BuildResult(job.kernel, "build_error", None, failed, 0.0, cached=True)
        entry, ended = self._make(job.kernel.name, job.source, job.key)
        for _ in range(_TRIES_AFTER_SIGNAL):
            if entry is not None or not ended.interrupted:
                break
            self._run_fewer()
            with self._alone:
                entry, ended = self._make(job.kernel.name, job.source, job.key)
        if entry is None:
            return BuildResult(
                job.kernel, "build_error", None, ended.log, ended.seconds, False, interrupted=ended.killed
            )
        binary = self._binary(job.key, entry)
        return self._judged(BuildResult(job.kernel, "ok", binary, ended.log, ended.seconds, cached=False))

    def _make(self, name: str, source: str, key: str) -> tuple[CacheEntry | None, Ended]:
        """Compiles a translation unit into the cache; no entry when that fails."""
        assert self.toolchain is not None
        self.source.check_unchanged()
        with self.cache.work_folder() as work:
            source_name = "kernel" + source_suffix(self.arch)
            try:
                self.headers.write(work / INCLUDE_FOLDER)
                (work / source_name).write_text(source, "utf-8")
                self.toolchain.prepare(work)
            except OSError as error:
                raise BuildError(
                    f"the build folder {self.cache.folder} cannot be written: {error.strerror or error}; "
                    "name another with --build-dir or TILE_ORACLE_CACHE"
                ) from None
            ended = self._compile(work, source_name, name)
            with self._changed:
                if self._closed:
                    raise BuildError("the builder was closed")
            if not ended.ok:
                if "No space left on device" in ended.log:
                    raise BuildError(f"the disk of the build folder {self.cache.folder} is full")
                if not ended.interrupted:
                    self.cache.keep_log(key, ended.log)
                return None, ended
            facts = {
                "arch": self.arch,
                "flags": list(self.flags),
                "isa": self.isa.name,
                "kernel": name,
                "log": ended.log,
                "seconds": round(ended.seconds, 3),
                "toolchain": self.toolchain.identity,
            }
            added = self.cache.add(key, work / self._output, source, facts)
            if self._verify and name != DEVICE_WORK and (work / ASSEMBLY).is_file():
                buffers = lds_buffers(parse_kernel_name(name), self.arch)
                text = (work / ASSEMBLY).read_text("utf-8", "replace")
                keep_verdict(added.path.parent, verify_assembly(text, buffers))
            return added, ended

    def _compile(self, work: Path, source_name: str, name: str) -> Ended:
        """Runs the toolchain's commands and looks at what they made; all of it as one ending."""
        assert self.toolchain is not None
        log, seconds = "", 0.0
        for command in self.toolchain.commands(source_name, self._output, self.flags):
            ended = self._processes.run(command, work, self._timeout_s)
            log, seconds = f"{log}\n{ended.log}".strip(), seconds + ended.seconds
            if not ended.ok:
                return replace(ended, log=log, seconds=seconds)
        try:
            wrong = self.source.what_is_wrong(work / self._output, name, self.isa)
        except BuildError:
            wrong = "the compiler left no binary that can be read"
        return Ended(wrong is None, f"{log}\n{wrong or ''}".strip(), seconds)

    # ---- verifying ----------------------------------------------------------------------------

    def _judged(self, result: BuildResult) -> BuildResult:
        """The result, or a build_error where kernels with findings are refused."""
        if not self._verify or result.binary is None:
            return result
        findings = self._report(result.kernel, result.binary).findings
        if self._verify != REFUSE or not findings:
            return result
        log = "\n".join(["error: the machine code does not wait as it must", *findings[0].lines()])
        return replace(result, status="build_error", binary=None, log=log)

    def _report(self, kernel: Kernel, binary: Binary) -> Report:
        kept = read_verdict(binary.path.parent)
        if kept is None:
            kept = verify_assembly(self._assembly(kernel), lds_buffers(kernel, self.arch))
            keep_verdict(binary.path.parent, kept)
        return kept

    def _assembly(self, kernel: Kernel) -> str:
        """The assembly of a kernel that is built already: by the same compiler with the same flags."""
        if not isinstance(self.toolchain, AssemblyToolchain):
            raise BuildError(f"{kernel.name} cannot be verified without the compiler that made it")
        source_name = "kernel" + source_suffix(self.arch)
        with self.cache.work_folder() as work:
            self.headers.write(work / INCLUDE_FOLDER)
            (work / source_name).write_text(self.source.unit(kernel), "utf-8")
            self.toolchain.prepare(work)
            command = self.toolchain.assembly_command(source_name, ASSEMBLY, self.flags)
            ended = self._processes.run(command, work, self._timeout_s)
            if not ended.ok:
                raise BuildError(f"{kernel.name} cannot be verified: {complaint(ended.log)}")
            return (work / ASSEMBLY).read_text("utf-8", "replace")

    # ---- bookkeeping --------------------------------------------------------------------------

    def _finish(self, job: _Job, result: BuildResult) -> None:
        self._count(result)
        with self._changed:
            self._jobs_by_kernel.pop(job.kernel, None)
            if result.interrupted:
                self._futures.pop(job.kernel, None)  # the next one who asks has it tried again
        with suppress(Exception):
            job.future.set_result(result)

    def _fail(self, job: _Job, error: Exception) -> None:
        with self._changed:
            self._jobs_by_kernel.pop(job.kernel, None)
        with suppress(Exception):
            job.future.set_exception(error)

    def _count(self, result: BuildResult) -> None:
        with self._changed:
            s = self._stats
            self._stats = replace(
                s,
                compiled=s.compiled + (result.status == "ok" and not result.cached),
                cached=s.cached + result.cached,
                failed=s.failed + (result.status != "ok"),
                compile_seconds=s.compile_seconds + result.seconds,
            )
