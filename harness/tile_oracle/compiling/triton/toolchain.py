"""Triton as a toolchain: every kernel is compiled in a fork of a process that has imported Triton."""

from __future__ import annotations

import sys
from typing import TypeVar

from tile_oracle.compiling.gpu_toolchain import ASSEMBLY
from tile_oracle.compiling.isa import Isa
from tile_oracle.compiling.toolchain import INCLUDE_FOLDER, Toolchain
from tile_oracle.compiling.triton.child_process import child_command, triton_version
from tile_oracle.errors import BuildError
from tile_oracle.triton.archive import SUFFIX


class TritonToolchain(Toolchain):
    """The installed Triton."""

    def _flags(self, isa: Isa) -> tuple[str, ...]:
        return ("--fp-fusion", "--no-line-info")

    def commands(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        unit, *rest = self.forked(source, output)
        return (child_command("compile_unit", unit, INCLUDE_FOLDER, *rest),)

    def forked(self, source: str, output: str) -> tuple[str, ...]:
        return (source, output, *((ASSEMBLY,) if self.arch.startswith("gfx") else ()))

    def server(self) -> tuple[str, ...]:
        return child_command("serve_forks")

    def assembly_command(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[str, ...]:
        """What writes the assembly of all launches, one after another."""
        return child_command("compile_unit", source, INCLUDE_FOLDER, f"kernel{self.suffix}", output)


_T = TypeVar("_T", bound=TritonToolchain)


class Packing(TritonToolchain):
    """Compiles nothing: Triton's interpreter needs the specification and the user's files."""

    def _flags(self, isa: Isa) -> tuple[str, ...]:
        return ()

    def server(self) -> tuple[str, ...]:
        return ()

    def commands(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        return ((sys.executable, "-P", "-E", "-m", "zipfile", "-c", output, source, INCLUDE_FOLDER),)


def find_interpreter(arch: str) -> Packing:
    """The installed Triton's interpreter. Raises BuildError when there is none."""
    return _installed(Packing, arch, "'s interpreter")


def find_triton(name: str, arch: str) -> TritonToolchain:
    """The installed Triton. Raises BuildError when there is none, or `name` is another toolchain."""
    if name not in ("auto", "triton"):
        raise BuildError(f"toolchain {name!r} does not compile Triton kernels: leave --toolchain out")
    return _installed(TritonToolchain, arch)


def _installed(made: type[_T], arch: str, part: str = "") -> _T:
    version = triton_version()
    told = f"triton {version}{part}"
    return made(name="triton", version=version, identity=told, fingerprint=told, arch=arch, suffix=SUFFIX)
