"""Triton kernels as a kernel source: of a user's file, of a prebuilt folder, or those that ship."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TypeVar

from tile_oracle.compiling.gpu_toolchain import ASSEMBLY
from tile_oracle.compiling.isa import GPU_TARGETS, Isa
from tile_oracle.compiling.kernel_source import TRITON, KernelSource
from tile_oracle.compiling.prebuilt_folder import is_prebuilt_folder
from tile_oracle.compiling.toolchain import INCLUDE_FOLDER, Toolchain
from tile_oracle.compiling.triton.child_process import HOW_TO_GET_TRITON, child_command, triton_version
from tile_oracle.compiling.triton.description import Description, ask_pruning, describe_file, read_description
from tile_oracle.errors import BuildError, KernelError
from tile_oracle.files.data_files import data_folder
from tile_oracle.kernel import Kernel
from tile_oracle.kernel.named import parse_named_kernel
from tile_oracle.pool import list_of_kernels
from tile_oracle.problem import Kind, Problem
from tile_oracle.triton.archive import SUFFIX, read_archive
from tile_oracle.triton.expression import ExpressionError, evaluate, names_in
from tile_oracle.triton.views import COMPUTE_UNITS, values_of


class TritonSource(KernelSource):
    """The kernels that a file declares for an architecture."""

    implementation = TRITON

    def __init__(
        self, description: Description, *, prebuilt_only: bool = False, interpreted: bool = False
    ) -> None:
        """prebuilt_only: there is only a folder of binaries. interpreted: the kernels are not compiled, but
        run in Triton's interpreter."""
        self.description, self.prebuilt_only, self._interpreted = description, prebuilt_only, interpreted
        self.arch, self.headers = description.told.arch, description.headers

    @property
    def identity(self) -> str:
        return self.description.told.identity

    @cached_property
    def _pools(self) -> dict[Kind, tuple[Kernel, ...]]:
        pools: dict[Kind, list[Kernel]] = {}
        for kernel in self.description.units:
            pools.setdefault(kernel.kind, []).append(kernel)
        return {kind: tuple(kernels) for kind, kernels in pools.items()}

    def pool(self, kind: Kind, rules: str = "") -> tuple[Kernel, ...]:
        """Returns the kernels for a kind of problem, in the order of their declarations. rules: a list that
        narrows them (.json); other kernel sets do not."""
        return list_of_kernels(rules).narrowed(self._pools.get(kind, ()))

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of problems that there are kernels for."""
        return tuple(self._pools)

    def notes_on(self, operations: Collection[str]) -> tuple[str, ...]:
        """Returns what the file declares for operations and this architecture has no kernel for."""
        counts = Counter[tuple[str, str]]()
        for op, function, why, count in self.description.told.left_out:
            if op in operations:
                counts[function, why] += count
        return tuple(
            f"{count} configuration{'s' * (count != 1)} of {function} left out: {why}"
            for (function, why), count in counts.most_common()
        )

    def expect(self, problems: Sequence[Problem]) -> None:
        """Asks the file's pruning functions about these problems. Raises BuildError with one line."""
        told = self.description.told
        if not told.pruned or self.prebuilt_only:
            return
        known = {one for of_problem in told.kept.values() for one in of_problem}
        new = [one for one in problems if one.kind in self._pools and one.id not in known]
        if new:
            ask_pruning(self.description, new)

    def describe_in(self, folder: Path) -> None:
        """Describes the kernels in a prebuilt folder, for machines without Triton. Raises BuildError."""
        self.description.write(folder)

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        if kernel not in self.description.units:
            return f"{kernel.name} is not declared in {self.description.told.name}"
        if kernel.kind != problem.kind:
            return None
        unit = self.description.units[kernel]
        places = self.description.told.kept.get(str(unit["declaration"]), {}).get(problem.id)
        if places is not None and unit["config"] not in places:
            return f"constraint: the pruning function of {kernel.function} drops it for this problem"
        values = values_of(problem, 0)
        for condition, text in self.description.constraints[kernel]:
            if COMPUTE_UNITS in names_in(condition):
                return f"constraint: {text} depends on the device, which is not known before it runs"
            try:
                if not evaluate(condition, values):
                    return f"constraint: {text}"
            except ExpressionError as error:
                return f"constraint: {text}: {error}"
        return None

    def unit(self, kernel: Kernel) -> str:
        if kernel not in self.description.units:
            raise KernelError(f"{kernel.name} is not declared in {self.description.told.name}")
        return self.description.unit(kernel)

    def find_toolchain(self, name: str) -> TritonToolchain:
        if self._interpreted:
            return find_interpreter(self.arch)
        if self.prebuilt_only:
            raise BuildError(f"only the kernels of the folder are there: {HOW_TO_GET_TRITON}")
        return find_triton(name, self.arch)

    def what_is_wrong(self, binary: Path, name: str, isa: Isa) -> str | None:
        if self._interpreted:
            return None
        try:
            archive = read_archive(binary)
        except (ValueError, OSError) as error:
            return str(error)
        parse_named_kernel(name)
        return None if archive.arch == self.arch else f"it was compiled for {archive.arch}"


def open_triton(arch: str, argument: str) -> TritonSource:
    """Open kernels in Triton as a source of `--kernels`.

    The argument is a Python file, a folder of `tile-oracle build --kernels`, or "" for the kernels that ship.
    """
    if not argument and arch not in GPU_TARGETS:
        raise BuildError(
            f"the kernels that ship are for {', '.join(GPU_TARGETS)}, not for {arch}: name a file"
        )
    path = Path(argument).expanduser().absolute() if argument else shipped_file()
    if path.is_dir() and is_prebuilt_folder(path):
        return TritonSource(read_description(path, arch), prebuilt_only=True)
    if path.suffix != ".py" or not path.is_file():
        raise BuildError(
            f"--kernels {argument}: there is no such Python file, and no folder of tile-oracle build"
        )
    stat = path.stat()
    return _of_file(path, arch, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=16)
def _of_file(path: Path, arch: str, mtime_ns: int, size_bytes: int) -> TritonSource:
    # Time and size are part of the cache's key only: an edited file is read again.
    return TritonSource(describe_file(path, arch))


def open_interpreted(arch: str, argument: str) -> TritonSource:
    """Returns the kernels of a file for an architecture, to be run in Triton's interpreter. Raises
    BuildError."""
    source = open_triton(arch, argument)
    if source.prebuilt_only:
        raise BuildError(f"{argument} has no source code to interpret: name the Python file of kernels")
    return TritonSource(source.description, interpreted=True)


def shipped_file() -> Path:
    """Returns the file of the kernels that ship."""
    return data_folder("kernels") / "triton" / "shipped.py"


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
    return made("triton", version, told, told, arch=arch, suffix=SUFFIX)
