"""Toolchains: finding compilers, identifying them, and their command lines.

A toolchain turns one translation unit into one loadable binary, in its own work folder. `flags` has
everything that affects the generated code and no paths; it is recorded and part of the cache key. `commands`
adds paths, relative to the work folder.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from pathlib import Path

from tile_oracle.compiling.isa import Isa
from tile_oracle.errors import BuildError

INCLUDE_FOLDER = "include"
"""Name of the header folder inside the work folder."""
_RESOURCE = "resource"
"""Name of the folder with clang's own headers, if it does not know it."""

_HOW_TO_GET_ONE = "pip install ziglang (a compiler as a wheel), or apt install g++, or name one by its path"

_CPU_FLAGS = (
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    # Kernels need no C library, so no header of the build machine can affect the binary.
    "-ffreestanding",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-fno-math-errno",
    # Distributions differ in these defaults; the speed of a kernel must not.
    "-fomit-frame-pointer",
    "-fno-stack-protector",
)


@dataclass(frozen=True)
class Toolchain(ABC):
    """Compiles translation units. Equal fingerprint, flags and source give equal binaries."""

    name: str
    """The name that selects it: ziglang, clang++, g++ or a path."""
    version: str
    """The compiler's own version number."""
    identity: str
    """The toolchain as recorded: "clang 22.1.8 (ziglang 0.17.0)"."""
    fingerprint: str
    """The toolchain's part of the cache key: the identity and the rest of the --version output."""
    _: KW_ONLY
    arch: str = "cpu"
    """The architecture that it was found for."""
    suffix: str = ".so"
    """File name suffix of a binary: .so, .hsaco, .ptx, .cubin."""
    wheel: ZigWheel | None = None
    """The ziglang wheel that has the compiler; it has neither its own headers nor a linker beside it."""

    def flags(self, arch: str, isa: Isa) -> tuple[str, ...]:
        """Returns the flags that affect the code. Raises BuildError when this toolchain cannot build for
        `isa`."""
        if arch != self.arch:
            raise BuildError(f"toolchain {self.name} builds for {self.arch}, not for {arch!r}")
        return self._flags(isa)

    @abstractmethod
    def _flags(self, isa: Isa) -> tuple[str, ...]: ...

    def prepare(self, work: Path) -> None:
        """Adds to a fresh work folder what the commands need besides the source and its headers."""
        if self.wheel is not None:
            self.wheel.prepare(work)

    @abstractmethod
    def commands(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """Returns the command lines to run in order in the work folder; file names are relative to it."""

    def server(self) -> tuple[str, ...]:
        """The command of a compiling.fork_server that compiles units; () where there is none."""
        return ()

    def forked(self, source: str, output: str) -> tuple[str, ...]:
        """The arguments by which the server compiles a unit; file names are relative to the work folder."""
        return ()

    def assembly_command(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the command line that writes a unit's machine code as text; file names are relative to the
        work folder. Raises BuildError where the toolchain cannot."""
        raise BuildError(f"{self.identity} does not write machine code as text")


@dataclass(frozen=True)
class ZigWheel:
    """The ziglang wheel, whose clang and LLD are run directly without zig's driver and cache."""

    folder: Path
    version: str
    """Of its clang."""
    identity: str
    first_line: str
    """Of what its clang prints as its version."""

    @property
    def zig(self) -> str:
        """The program."""
        return str(self.folder / "zig")

    @property
    def clang(self) -> tuple[str, ...]:
        """The start of a command line, in a work folder that was prepared."""
        return (self.zig, "clang", "-resource-dir", _RESOURCE)

    def link(self, objects: str, output: str, *options: str) -> tuple[str, ...]:
        """Returns the command that links a shared library. clang would look for lld on PATH."""
        return (self.zig, "ld.lld", "-shared", *options, objects, "-o", output)

    def assemble(self, source: str, output: str, arch: str) -> tuple[tuple[str, ...], ...]:
        """Returns the commands that make a code object of an AMD GPU's assembly."""
        target = ("--target=amdgcn-amd-amdhsa", f"-mcpu={arch}")
        return ((self.zig, "clang", *target, "-c", source, "-o", "kernel.o"), self.link("kernel.o", output))

    def prepare(self, work: Path) -> None:
        """Adds clang's own headers to a work folder."""
        (work / _RESOURCE).mkdir()
        (work / _RESOURCE / "include").symlink_to(self.folder / "lib" / "include")


@dataclass(frozen=True, kw_only=True)
class ZigToolchain(Toolchain):
    """The ziglang wheel's clang and LLD."""

    wheel: ZigWheel

    def _flags(self, isa: Isa) -> tuple[str, ...]:
        # By default the wheel's clang targets the machine it runs on.
        return (f"--target={isa.machine}-unknown-linux-musl", *_cpu_flags(isa))

    def commands(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        compile_ = (*self.wheel.clang, "-nostdlibinc", *flags)
        return (
            (*compile_, "-I", INCLUDE_FOLDER, "-c", source, "-o", output + ".o"),
            self.wheel.link(output + ".o", output, "-z", "noexecstack"),
        )


@dataclass(frozen=True, kw_only=True)
class SystemToolchain(Toolchain):
    """An installed clang++ or g++. One command compiles and links."""

    compiler: Path
    kind: str
    """clang or g++, as detected from --version."""
    machine: str
    """The machine it builds for: x86_64, aarch64."""

    def _flags(self, isa: Isa) -> tuple[str, ...]:
        if isa.machine != self.machine:
            raise BuildError(
                f"{self.identity} makes {self.machine} code, not {isa.name} ({isa.machine}): "
                "use --toolchain ziglang, or build on such a machine"
            )
        return _cpu_flags(isa)

    def commands(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        # libgcc is linked statically for half-float conversions that the instruction set lacks.
        link = ("-shared", "-nostdlib", "-Wl,-z,noexecstack", "-o", output, source)
        runtime = ("-lgcc",) if self.kind == "g++" else ()
        return ((str(self.compiler), *flags, "-I", INCLUDE_FOLDER, *link, *runtime),)


def _cpu_flags(isa: Isa) -> tuple[str, ...]:
    control_flow = ("-fcf-protection=none",) if isa.machine == "x86_64" else ()
    return (*_CPU_FLAGS, *control_flow, *isa.flags)


def find_toolchain(name: str = "auto") -> Toolchain:
    """Finds a toolchain by name: auto, ziglang, clang++, g++ or the path of a compiler.

    auto tries ziglang, clang++ and g++ in this order. Raises BuildError, which says how to get a compiler,
    when none is found or the named one does not run.
    """
    for one in ("ziglang", "clang++", "g++") if name == "auto" else (name,):
        if one in ("ziglang", "zig"):
            folder = zig_folder()
            if folder is not None:
                return _zig_toolchain(folder)
        elif path := shutil.which(one):
            return _system_toolchain(Path(path).absolute(), one)
    what = "no C++ compiler was found"
    if name != "auto":
        what = f"toolchain {name!r} is not a program on this machine"
    raise BuildError(f"{what}: {_HOW_TO_GET_ONE}")


def zig_folder() -> Path | None:
    """Returns the folder of the ziglang wheel, or None when it is not installed."""
    return next((one for one in package_folders("ziglang") if os.access(one / "zig", os.X_OK)), None)


def package_folders(name: str) -> tuple[Path, ...]:
    """Returns the folders of an installed Python package, which is not imported; () if there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return ()
    return tuple(map(Path, spec.submodule_search_locations or ())) if spec else ()


@lru_cache(maxsize=16)
def zig_wheel(folder: Path) -> ZigWheel:
    """Returns the wheel in a folder. Raises BuildError when its clang does not run."""
    zig = str(folder / "zig")
    first = ask_compiler(zig, "clang", "--version").partition("\n")[0]
    own = ask_compiler(zig, "version").strip()
    version = version_number(first, zig)
    return ZigWheel(folder, version, f"clang {version} (ziglang {own})", first)


def _zig_toolchain(folder: Path) -> ZigToolchain:
    wheel = zig_wheel(folder)
    fingerprint = f"{wheel.identity}; {wheel.first_line}"
    return ZigToolchain("ziglang", wheel.version, wheel.identity, fingerprint, wheel=wheel)


@lru_cache(maxsize=16)
def _system_toolchain(compiler: Path, name: str) -> SystemToolchain:
    text = ask_compiler(str(compiler), "--version")
    first = text.splitlines()[0] if text.strip() else ""
    if "clang version" in first:
        kind = "clang"
    elif "Free Software Foundation" in text:
        kind = "g++"
    else:
        raise BuildError(
            f"toolchain {name!r} is neither clang++ nor g++: its --version prints {first[:80]!r}"
        )
    version = version_number(first, name)
    machine = ask_compiler(str(compiler), "-dumpmachine").strip()
    fingerprint = f"{kind}; {first}; {machine}"
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine.split("-")[0], machine.split("-")[0])
    known = (name, version, f"{kind} {version}", fingerprint)
    return SystemToolchain(*known, compiler=compiler, kind=kind, machine=machine)


def version_number(line: str, name: str) -> str:
    """Returns the version number in a line of --version output. Raises BuildError when there is none."""
    # "g++ (Debian 12.2.0-14) 12.2.0": skip the distribution's own number in parentheses.
    match = re.search(r"\d+\.\d+(?:\.\d+)?", re.sub(r"\([^)]*\)", "", line))
    if match is None:
        raise BuildError(f"toolchain {name!r} has no version number: its --version prints {line[:80]!r}")
    return match.group()


def ask_compiler(*command: str) -> str:
    """Runs a compiler and returns its standard output. Raises BuildError when it does not start or fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            env=compiler_environment(),
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(
            f"toolchain {command[0]!r} does not run: {_one_line(error)}; {_HOW_TO_GET_ONE}"
        ) from None
    if done.returncode:
        said = _one_line(done.stderr or done.stdout)
        raise BuildError(f"toolchain {' '.join(command)!r} failed with status {done.returncode}: {said}")
    return done.stdout


def _one_line(what: object) -> str:
    return " ".join(str(what).split())[:200]


def compiler_environment(work: Path | None = None) -> dict[str, str]:
    """Returns the environment of a compiler: only what it needs to start.

    Variables such as CPATH or GCC_EXEC_PREFIX would change a binary without changing its cache key.
    """
    kept = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment["LC_ALL"] = "C"
    if work is not None:
        environment["TMPDIR"] = str(work)
        environment["HOME"] = str(work)
    return environment
