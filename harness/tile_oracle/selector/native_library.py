"""Compiles the selector's C++ once for this machine and loads it: `load() -> ctypes.CDLL`.

selector/src/*.cpp becomes one shared library. It is kept in the build cache (TILE_ORACLE_CACHE) under a key
of the sources, the flags and the compiler, so an edit or another compiler makes another library. One binary
serves all processors of the architecture: it selects SIMD instructions at run time. Wheels for Linux carry
the library; then nothing is compiled (tile_oracle.selector.prebuilt_library).
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tile_oracle.compiling.cache import (
    BuildCache,
    CacheEntry,
    check_runs_code,
    content_key,
    default_cache_folder,
)
from tile_oracle.compiling.process import CompilerProcesses, Ended
from tile_oracle.compiling.source import Headers
from tile_oracle.compiling.toolchain import ZigToolchain, find_toolchain
from tile_oracle.errors import BuildError, ModelError
from tile_oracle.files.data_files import data_folder
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.selector import prebuilt_library
from tile_oracle.terminal.progress_line import wait

_log = logging.getLogger(__name__)

_FLAGS = (
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    # No fused multiply-add: results are bit-identical on every machine.
    "-ffp-contract=off",
    "-I../cpp/include",
)
_TIMEOUT_S = 600.0
_POLL_S = 0.1
_COMPILERS = ("clang++", "g++", "ziglang")
"""In order of preference: a system compiler has a C++ library, ziglang first has to compile one."""

_KEY_VERSION = 1


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: what it is, a hash of it, and its first words."""

    identity: str
    fingerprint: str
    command: tuple[str, ...]


@lru_cache(maxsize=1)
def load() -> ctypes.CDLL:
    """Loads the library: the wheel's, if it was built from the installed sources, else the cache's, which is
    built if necessary. Raises BuildError if there is no compiler, if none of the compilers succeeds, or if
    the cache cannot be written."""
    prebuilt = prebuilt_library.find(built_from())
    if prebuilt is not None:
        try:
            return ctypes.CDLL(str(prebuilt))
        except OSError as error:
            _log.warning("the wheel's %s cannot be loaded (%s): building it", prebuilt.name, error)
    check_runs_code(default_cache_folder())
    return _loaded(built())


@lru_cache(maxsize=8)
def load_of(sources: Path) -> ctypes.CDLL:
    """Loads the library of an exported folder's own sources, which may be older or edited. Raises BuildError
    like `load`."""
    content = _content(sources)
    if content.digest == _content().digest:
        return load()
    check_runs_code(default_cache_folder())
    return _loaded(_built_with(compilers("auto"), default_cache_folder(), content))


def declare(library: ctypes.CDLL, functions: Mapping[str, tuple[Any, tuple[Any, ...]]]) -> None:
    """Declares functions: name -> (type of the result, types of the arguments). Raises ModelError for a
    library of other sources that lacks one."""
    for name, (result, arguments) in functions.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ModelError(f"{library._name} has no {name}: export the model again") from None
        function.restype, function.argtypes = result, arguments


def _loaded(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"{path} cannot be loaded ({error}): remove it, and it is built again") from None


def is_compiled() -> bool:
    """Returns whether `load` needs no compiler: the wheel or the cache has the library. Raises BuildError if
    a folder cannot be read."""
    if prebuilt_library.find(built_from()) is not None:
        return True
    cache, digest = BuildCache(default_cache_folder()), _content().digest
    return any(cache.find(_key(compiler, digest)) is not None for compiler in compilers("auto"))


def built(toolchain: str = "auto", folder: Path | None = None) -> Path:
    """Returns the path of the library, which is built if necessary. toolchain: auto, clang++, g++, ziglang or
    a compiler's path. folder: the cache. Raises BuildError like `load`."""
    return _built_with(compilers(toolchain), folder if folder is not None else default_cache_folder())


def built_for(machine: str, glibc: str, folder: Path) -> Path:
    """Returns the path of the library for another machine (x86_64, aarch64) with at least this version of
    glibc, compiled by ziglang. folder: the cache. Raises BuildError."""
    zig = find_toolchain("ziglang")
    assert isinstance(zig, ZigToolchain)
    command = (zig.wheel.zig, "c++", "-target", f"{machine}-linux-gnu.{glibc}", "-s")
    return _built_with([Compiler(zig.identity, zig.fingerprint, command)], folder)


def built_from() -> str:
    """Returns a hash of the sources and flags that a library is built from."""
    return content_key({"version": _KEY_VERSION, "sources": _content().digest, "flags": _FLAGS})


def _built_with(compilers: Iterable[Compiler], folder: Path, content: Headers | None = None) -> Path:
    """Returns the library by the first of these compilers that succeeds. content: of other sources."""
    cache = BuildCache(folder)
    content = content or _content()
    failures: list[str] = []
    for compiler in compilers:
        key = _key(compiler, content.digest)
        entry = cache.find(key)
        if entry is None:
            entry = _build_locked(cache, key, compiler, content, failures)
        if entry is not None:
            return entry.path
    raise BuildError(f"the native selector does not compile: {'; '.join(failures)}")


def _key(compiler: Compiler, sources: str) -> str:
    return content_key(
        {
            "version": _KEY_VERSION,
            "what": "selector",
            "sources": sources,
            "flags": _FLAGS,
            "command": compiler.command[1:],
            "compiler": compiler.fingerprint,
        }
    )


def _content(folder: Path | None = None) -> Headers:
    folder = folder or data_folder("selector")
    files = [p for p in folder.rglob("*") if p.suffix in (".cpp", ".hpp", ".h", ".inc")]
    relative = sorted((str(p.relative_to(folder)), p) for p in files)
    relative = [(name, path) for name, path in relative if not name.startswith("example/")]
    with disk_errors_as(BuildError, f"{folder} cannot be read"):
        return Headers(folder, tuple((name, path.read_bytes()) for name, path in relative))


def compilers(toolchain: str) -> Iterator[Compiler]:
    """Yields the available compilers. Raises BuildError if there is none."""
    found, reason = False, BuildError("no C++ compiler was found")
    for name in _COMPILERS if toolchain == "auto" else (toolchain,):
        try:
            one = find_toolchain(name)
        except BuildError as error:
            reason = error
            continue
        found = True
        if isinstance(one, ZigToolchain):
            yield Compiler(one.identity, one.fingerprint, (one.wheel.zig, "c++"))
        else:
            # The compiler's name is not part of the key: its fingerprint identifies it.
            yield Compiler(one.identity, one.fingerprint, (str(getattr(one, "compiler", name)),))
    if not found:
        raise reason


def _build_locked(
    cache: BuildCache, key: str, compiler: Compiler, content: Headers, failures: list[str]
) -> CacheEntry | None:
    """Builds the library, or waits for another process that builds it. If that fails, returns None and
    appends the reason to `failures`."""
    began = time.time()
    while (lock := cache.try_lock(key)) is None:
        time.sleep(_POLL_S)
    with lock:
        entry = cache.find(key)
        if entry is not None:
            return entry
        log = cache.log_since(key, began)
        if log is None:
            with wait(f"compiling the native selector with {compiler.identity} (once)"):
                entry, log = _compile(cache, key, compiler, content)
        if entry is None:
            failures.append(_said(compiler, log))
        return entry


def _said(compiler: Compiler, log: str) -> str:
    """Returns a compiler's first error, in one line."""
    first = next((line for line in log.splitlines() if "error" in line), log.strip()[:200])
    return f"{compiler.identity} says {' '.join(first.split())[:300]!r}"


def compile_in(
    work: Path, what: str, sources: Sequence[str], options: Sequence[str], linked: Sequence[str]
) -> None:
    """Compiles the user's code in a folder of its own and links it, with the first compiler that succeeds.
    Zig compiles its C++ library for a minute before it links, and so not for code that has an error. Raises
    BuildError with the first error of each."""
    failures = []
    for compiler in compilers("auto"):
        with wait(f"compiling {what} with {compiler.identity}"):
            ended = _linked(compiler, work, sources, options, linked)
        failed = next((one for one in ended if not one.ok), None)
        if failed is None:
            return
        failures.append(_said(compiler, failed.log))
    raise BuildError(f"{what} does not compile: {'; '.join(failures)}")


def _linked(
    compiler: Compiler, work: Path, sources: Sequence[str], options: Sequence[str], linked: Sequence[str]
) -> list[Ended]:
    """Compiles sources beside each other, and links the objects if all succeed."""
    processes = CompilerProcesses()

    def run(*arguments: str) -> Ended:
        return processes.run((*compiler.command, *arguments), work, _TIMEOUT_S)

    objects = [f"{place}.o" for place, _ in enumerate(sources)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        ended = list(threads.map(lambda one, to: run(*options, "-c", one, "-o", to), sources, objects))
    return [*ended, run(*objects, *linked)] if all(one.ok for one in ended) else ended


def _compile(
    cache: BuildCache, key: str, compiler: Compiler, content: Headers
) -> tuple[CacheEntry | None, str]:
    units = [name for name, _ in content.files if name.startswith("src") and name.endswith(".cpp")]
    with cache.work_folder() as work:
        content.write(work / "cpp")
        (work / "built").mkdir()
        sources = [f"../cpp/{unit}" for unit in units]
        ended = _linked(compiler, work / "built", sources, _FLAGS, (*_FLAGS, "-shared", "-o", "library.so"))
        log = "\n".join(one.log for one in ended if one.log)
        if not all(one.ok for one in ended):
            if not any(one.interrupted for one in ended):
                cache.keep_log(key, log)
            return None, log
        facts = {
            "what": "native selector",
            "flags": list(_FLAGS),
            "log": log,
            "seconds": round(sum(one.seconds for one in ended), 3),
            "toolchain": compiler.identity,
        }
        listing = "".join(f'#include "{name}"\n' for name in units)
        return cache.add(key, work / "built" / "library.so", listing, facts), ""
