"""Finds the binary of a kernel, prebuilt or cached, or compiles it in the calling thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path

from tile_oracle.compiling.binary import Binary, BuildResult
from tile_oracle.compiling.cache import BuildCache, CacheEntry, content_key, default_cache_folder
from tile_oracle.compiling.code_verifier import CodeVerifier
from tile_oracle.compiling.compiler import Compiler
from tile_oracle.compiling.compiler_message import compiler_message
from tile_oracle.compiling.equipment import Equipment, equip
from tile_oracle.compiling.kernel_source import NATIVE
from tile_oracle.compiling.prebuilt_folder import is_prebuilt_folder
from tile_oracle.compiling.source import DEVICE_WORK, device_work_source, source_suffix
from tile_oracle.errors import BuildError, KernelError
from tile_oracle.kernel import Kernel


class BinaryMaker:
    """Makes binaries with one `Equipment`, in one cache folder. Safe to use from several threads."""

    def __init__(
        self, equipment: Equipment, build_dir: Path | None, timeout_s: float, verifier: CodeVerifier
    ) -> None:
        """Opens the cache in `build_dir`, or in the default folder. `timeout_s`: limit of one compiler
        process.

        Raises BuildError for a folder that cannot be used.
        """
        self._equipment = equipment
        self._arch = equipment.source.arch
        self._timeout_s = timeout_s
        self._verifier = verifier
        toolchain, folder = equipment.toolchain, equipment.prebuilt
        if build_dir is None:
            # Without a compiler nothing is cached, so no home folder is needed.
            build_dir = folder.folder if folder and not toolchain else default_cache_folder()
        suffix = toolchain.suffix if toolchain is not None else ".so"
        self.cache = BuildCache(build_dir, suffix, source_suffix(self._arch))
        self._compiler: Compiler | None = None
        if toolchain is not None:
            self._compiler = Compiler(equipment.source, toolchain, equipment.isa, self.cache, timeout_s)

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

    def _make(
        self, kernel: Kernel, unit: str, key: str, began: float, run_fewer: Callable[[], None]
    ) -> BuildResult:
        """Compiles a kernel, unless the cache now has it, or has a log of its failure since `began`.

        `began`: seconds since the epoch. `run_fewer` is called when a signal killed the compiler. The caller
        holds the cache's lock on the key. Raises BuildError when the cache cannot be written, and after
        `_stop`.
        """
        compiler = self._compiler
        assert compiler is not None
        entry = self.cache.find(key)
        if entry is not None:
            return self._found(compiler, kernel, key, entry)
        failed = self.cache.log_since(key, began)
        if failed is not None:
            return BuildResult(kernel, "build_error", None, failed, failed_with=compiler.toolchain)
        make = partial(compiler.make, kernel.name, unit, key, self._verifier.look)
        entry, ended = compiler.make_again_if_killed(make, run_fewer)
        if entry is None:
            facts = (ended.log, ended.seconds, False, ended.killed, compiler.toolchain)
            return BuildResult(kernel, "build_error", None, *facts)
        binary = compiler.binary(key, entry)
        return self._judged(BuildResult(kernel, "ok", binary, ended.log, ended.seconds, cached=False))

    def device_work(self) -> Binary:
        """Returns the harness's own GPU code (kernels/gpu/device_work.hpp), compiling it if necessary.

        Raises BuildError when it cannot be built, and for an architecture that has none.
        """
        unit = device_work_source(self._arch)
        binary = self._equipment.find_prebuilt(DEVICE_WORK, unit)
        if binary is not None:
            return binary
        if self._equipment.source.implementation != NATIVE:
            # Device work is native code; another source's toolchain may not produce loadable modules.
            return self._native_device_work()
        if self._compiler is None:
            raise BuildError(
                f"the harness's own code for {self._arch} cannot be compiled: "
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

    def _native_device_work(self) -> Binary:
        folder = self.cache.folder
        prebuilt = folder if is_prebuilt_folder(folder) else None
        native = BinaryMaker(
            equip(self._arch, prebuilt=prebuilt),
            None if prebuilt else folder,
            self._timeout_s,
            CodeVerifier(self._arch, ""),
        )
        return native.device_work()

    def assembly(self, kernel: Kernel) -> str:
        """Compiles a kernel to assembly, without a binary. Raises BuildError when that fails."""
        if self._compiler is None:
            raise BuildError(f"{kernel.name} cannot be verified without the compiler that made it")
        return self._compiler.assembly(kernel)

    def _stop(self) -> None:
        """Kills all running compilers; `_make` raises BuildError from now on."""
        if self._compiler is not None:
            self._compiler.stop()

    def _found(self, compiler: Compiler, kernel: Kernel, key: str, entry: CacheEntry) -> BuildResult:
        log = entry.facts.get("log")
        log = log if isinstance(log, str) else ""
        return self._judged(BuildResult(kernel, "ok", compiler.binary(key, entry), log))

    def _judged(self, result: BuildResult) -> BuildResult:
        return self._verifier.judged(result, self.assembly)
