"""CK Tile as a kernel source: the kernels of the user's own checkout or ROCm install."""

from __future__ import annotations

from pathlib import Path

from tile_oracle.arch.table import fp8_refusal
from tile_oracle.compiling.ck_tile.api import CkTileApi, detect
from tile_oracle.compiling.ck_tile.headers import CkTileHeaders, find_headers
from tile_oracle.compiling.ck_tile.library import what_is_wrong_with_library
from tile_oracle.compiling.ck_tile.toolchain import find_ck_tile_toolchain
from tile_oracle.compiling.isa import Isa
from tile_oracle.compiling.kernel_source import CK_TILE, NOT_IN_SOURCE, KernelSource
from tile_oracle.compiling.source import Headers, read_headers
from tile_oracle.compiling.toolchain import Toolchain
from tile_oracle.errors import BuildError, KernelError
from tile_oracle.files.data_files import data_folder
from tile_oracle.kernel import Kernel
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem


class CkTileSource(KernelSource):
    """The kernels that this version of CK Tile has."""

    implementation = CK_TILE

    def __init__(self, arch: str, api: CkTileApi, *, with_races: bool = False) -> None:
        """with_races: also the kernels that are known to race."""
        self.arch, self.api, self.headers = arch, api, adapter_headers(api.headers)
        self._with_races = with_races
        self._missing: dict[Kernel, str | None] = {}

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        made_by = operation_named(kernel.op).ck_tile
        if made_by is not None and (why := made_by().problem_refusal(problem)) is not None:
            return why
        if kernel not in self._missing:  # a sweep asks for each pair
            try:
                self.unit(kernel)
                self._missing[kernel] = None
            except KernelError as error:
                self._missing[kernel] = f"{NOT_IN_SOURCE}{error}"
        return self._missing[kernel]

    def unit(self, kernel: Kernel) -> str:
        if (why := fp8_refusal(kernel.kind, self.arch)) is not None:
            raise KernelError(why)
        if not self._with_races and (why := _race_of(kernel)) is not None:
            raise KernelError(why)
        return source_for(self.api, kernel)

    def launch_identity(self, kernel: Kernel) -> str | None:
        """Returns the translation unit without the kernel's name. The host code in it computes the launch."""
        return self.unit(kernel).replace(kernel.name, "")

    def find_toolchain(self, name: str) -> Toolchain:
        return find_ck_tile_toolchain(name, self.arch, self.api.headers)

    def check_unchanged(self) -> None:
        theirs = self.api.headers
        if find_headers(theirs.folder).digest != theirs.digest:
            raise BuildError(
                f"CK Tile's headers in {theirs.include} have changed during the session: start again"
            )

    def what_is_wrong(self, binary: Path, name: str, isa: Isa) -> str | None:
        return what_is_wrong_with_library(binary, self.arch)


def _race_of(kernel: Kernel) -> str | None:
    """Returns why a kernel computes wrong results on some runs, found by the verifier of waits
    (docs/ck_tile.md)."""
    if (getattr(kernel, "pipeline", ""), getattr(kernel, "epilogue", "")) != ("comp_async", "cshuffle"):
        return None
    return (
        "comp_async with the epilogue cshuffle races: copies of the last tiles may land on the results in "
        "shared memory, as no barrier is behind the wait for them; the epilogue default uses no shared memory"
    )


def open_ck_tile(arch: str, argument: str) -> CkTileSource:
    """Open CK Tile as a source of `--kernels`. The argument is its folder."""
    return CkTileSource(arch, detect(find_headers(Path(argument))))


def adapter_headers(theirs: CkTileHeaders) -> Headers:
    """Returns the adapter headers, and a note that identifies this CK Tile.

    CK Tile's own headers are compiled from the user's folder. The note puts their hash into `digest`, and so
    into every cache key.
    """
    ours = read_headers(data_folder("kernels") / "ck_tile")
    note = ("ck_tile.txt", f"{theirs.identity}\n{theirs.digest}\n".encode())
    return Headers(ours.folder, tuple(sorted((*ours.files, note))))


def source_for(api: CkTileApi, kernel: Kernel) -> str:
    """Returns the text of the kernel's translation unit.

    Raises KernelError, whose message is the reason, for a kernel that this CK Tile does not have.
    """
    made_by = operation_named(kernel.op).ck_tile
    if made_by is None:
        raise KernelError(f"{kernel.op} is not adapted from CK Tile: its descriptor needs ck_tile")
    return made_by().unit(api, kernel)
