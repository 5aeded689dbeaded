"""Compiles the translation units of one kernel source into cache entries."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tile_oracle.compiling.binary import Binary
from tile_oracle.compiling.cache import BuildCache, CacheEntry, content_key
from tile_oracle.compiling.compiler_message import compiler_message
from tile_oracle.compiling.fork_server import ForkServer
from tile_oracle.compiling.gpu_toolchain import ASSEMBLY
from tile_oracle.compiling.isa import Isa
from tile_oracle.compiling.kernel_source import KernelSource
from tile_oracle.compiling.process import CompilerProcesses, Ended
from tile_oracle.compiling.source import ABI_VERSION, source_suffix
from tile_oracle.compiling.toolchain import INCLUDE_FOLDER, Toolchain
from tile_oracle.errors import BuildError
from tile_oracle.kernel import Kernel

Made = tuple[CacheEntry | None, Ended]
"""The outcome for a translation unit. The entry is None when it did not compile."""

_KEY_VERSION = 1
_TRIES_AFTER_SIGNAL = 2


class Compiler:
    """A kernel source, a toolchain and an instruction set. They and a translation unit determine the
    binary."""

    def __init__(
        self, source: KernelSource, toolchain: Toolchain, isa: Isa, cache: BuildCache, timeout_s: float
    ) -> None:
        """Raises BuildError when the toolchain cannot build for this source and instruction set."""
        self._source, self._toolchain, self._isa = source, toolchain, isa
        self._cache, self._timeout_s = cache, timeout_s
        self._flags = toolchain.flags(source.arch, isa)
        self._unit_name = "kernel" + source_suffix(source.arch)
        self._output = "kernel" + toolchain.suffix
        self._processes = CompilerProcesses()
        server = toolchain.server()
        self._server = ForkServer(server, source.headers.write, timeout_s) if server else None
        self._alone = threading.Lock()
        self._stopped = False

    @cached_property
    def _key_parts(self) -> dict[str, Any]:
        return {
            "key_version": _KEY_VERSION,
            "abi": ABI_VERSION,
            "arch": self._source.arch,
            "headers": self._source.identity,
            "flags": self._flags,
            "toolchain": self._toolchain.fingerprint,
            "isa": self._isa.fingerprint,
        }

    @property
    def identity(self) -> str:
        """Hash of everything but the translation unit that determines a binary."""
        return content_key(self._key_parts)

    @property
    def toolchain(self) -> str:
        """The toolchain as recorded."""
        return self._toolchain.identity

    def key(self, unit: str) -> str:
        """Returns the cache key of a translation unit."""
        return content_key(self._key_parts | {"source": unit})

    def binary(self, key: str, entry: CacheEntry) -> Binary:
        """Returns a cache entry as the Binary that a worker loads."""
        arch, made_by = self._source.arch, self._toolchain.identity
        return Binary(entry.path, key, entry.bytes, made_by, self._flags, arch, self._isa.name)

    def make(
        self,
        name: str,
        unit: str,
        key: str,
        look: Callable[[Path, CacheEntry], None] = lambda work, made: None,
    ) -> Made:
        """Compiles a unit into the cache. `look` is called with the work folder before it is removed.

        Raises BuildError when the cache cannot be written, and after `stop`.
        """
        self._source.check_unchanged()
        with self._cache.work_folder() as work:
            with self._cache.writing():
                self._prepare(work, unit)
            ended = self._run(work, name)
            if self._stopped:
                raise BuildError("the builder was closed")
            if not ended.ok:
                if "No space left on device" in ended.log:
                    raise BuildError(f"the disk of the build folder {self._cache.folder} is full")
                if not ended.interrupted:
                    self._cache.keep_log(key, ended.log)
                return None, ended
            facts = {
                "arch": self._source.arch,
                "flags": list(self._flags),
                "isa": self._isa.name,
                "kernel": name,
                "log": ended.log,
                "seconds": round(ended.seconds, 3),
                "toolchain": self._toolchain.identity,
            }
            added = self._cache.add(key, work / self._output, unit, facts)
            look(work, added)
            return added, ended

    def make_again_if_killed(self, make: Callable[[], Made], run_fewer: Callable[[], None]) -> Made:
        """Calls `make`, and again when a signal killed the compiler.

        The usual cause is a lack of memory. `run_fewer` therefore lowers the number of parallel compilers
        first, and only one retry runs at a time.
        """
        entry, ended = make()
        for _ in range(_TRIES_AFTER_SIGNAL):
            if entry is not None or not ended.interrupted:
                break
            run_fewer()
            with self._alone:
                entry, ended = make()
        return entry, ended

    def assembly(self, kernel: Kernel) -> str:
        """Returns the kernel's assembly, from the same compiler with the same flags. Raises BuildError."""
        with self._cache.work_folder() as work:
            self._prepare(work, self._source.unit(kernel))
            command = self._toolchain.assembly_command(self._unit_name, ASSEMBLY, self._flags)
            ended = self._processes.run(command, work, self._timeout_s)
            if not ended.ok:
                raise BuildError(f"{kernel.name} cannot be verified: {compiler_message(ended.log)}")
            return (work / ASSEMBLY).read_text("utf-8", "replace")

    def stop(self) -> None:
        """Kills all running compilers; later calls of `make` raise BuildError."""
        self._stopped = True
        self._processes.stop_all()
        if self._server is not None:
            self._server.close()

    def _prepare(self, work: Path, unit: str) -> None:
        self._source.headers.write(work / INCLUDE_FOLDER)
        (work / self._unit_name).write_text(unit, "utf-8")
        self._toolchain.prepare(work)

    def _run(self, work: Path, name: str) -> Ended:
        """Runs the toolchain's commands, checks their output and combines logs and times."""
        log, seconds = "", 0.0
        forked = self._toolchain.forked(self._unit_name, self._output)
        start = None if self._server is None else partial(self._server.start, forked)
        for command in self._toolchain.commands(self._unit_name, self._output, self._flags):
            ended = self._processes.run(command, work, self._timeout_s, start)
            log, seconds = f"{log}\n{ended.log}".strip(), seconds + ended.seconds
            if not ended.ok:
                return replace(ended, log=log, seconds=seconds)
        try:
            wrong = self._source.what_is_wrong(work / self._output, name, self._isa)
        except BuildError:
            wrong = "the compiler wrote no readable binary"
        return Ended(wrong is None, f"{log}\n{wrong or ''}".strip(), seconds)
