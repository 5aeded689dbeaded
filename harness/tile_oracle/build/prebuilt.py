"""Prebuilt kernels as a kernel source: a folder of `tile-oracle build` in front of another source."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from tile_oracle.build.binary import Binary
from tile_oracle.build.cache import content_key
from tile_oracle.build.isa import Isa, this_cpu
from tile_oracle.build.kernel_source import KernelSource, StatesLaunch
from tile_oracle.build.prebuilt_folder import PrebuiltFolder
from tile_oracle.build.source import ABI_VERSION, Headers
from tile_oracle.build.toolchain import Toolchain
from tile_oracle.errors import BuildError
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem


class PrebuiltKernels:
    """The kernels of a folder; other kernels come from the source `of`."""

    def __init__(self, folder: Path, of: KernelSource) -> None:
        """Raises BuildError for a folder that cannot be used for `of`'s architecture on this machine."""
        self._kernels = PrebuiltFolder(folder)
        self._of = of
        if self._kernels.facts.arch != of.arch:
            raise BuildError(f"{folder} holds kernels for {self._kernels.facts.arch}, not {of.arch}")
        self._kernels.check_runs_on(this_cpu())
        self.folder = self._kernels.folder

    @property
    def implementation(self) -> str:
        return self._of.implementation

    @property
    def arch(self) -> str:
        return self._of.arch

    @property
    def headers(self) -> Headers:
        return self._of.headers

    @property
    def identity(self) -> str:
        """Hash of the folder's facts, which include toolchain and flags."""
        return content_key(asdict(self._kernels.facts))

    def why_stale(self, isa: Isa) -> str | None:
        """Why the folder's kernels differ from what would be built now, or None."""
        facts = self._kernels.facts
        if (facts.headers, facts.abi) != (self._of.identity, ABI_VERSION):
            return "was built from different kernel sources"
        if isa.name not in ("native", facts.isa):
            return f"was built for {facts.isa}, not {isa.name}"
        return None

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        return self._of.refusal(kernel, problem)

    def unit(self, kernel: Kernel) -> str:
        return self._of.unit(kernel)

    def launch_identity(self, kernel: Kernel) -> str | None:
        return self._of.launch_identity(kernel) if isinstance(self._of, StatesLaunch) else None

    def prebuilt(self, name: str, unit: str) -> Binary | None:
        return self._kernels.find(name, unit)

    def find_toolchain(self, name: str) -> Toolchain:
        return self._of.find_toolchain(name)

    def check_unchanged(self) -> None:
        self._of.check_unchanged()

    def what_is_wrong(self, binary: Path, name: str, isa: Isa) -> str | None:
        return self._of.what_is_wrong(binary, name, isa)
