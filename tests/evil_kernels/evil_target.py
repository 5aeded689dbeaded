"""A target whose kernels misbehave on demand: real code, really compiled, run by the real worker.

Used by tests in this process and by scripts that tests start.
"""

from __future__ import annotations

import re
import shutil
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from tile_oracle.compiling.builder import Builder, BuildResult
from tile_oracle.files.data_files import data_folder
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.targets.target import Compiled, Target, finished

_HEADER = Path(__file__).with_name("grouped_conv.hpp")

MODES = {
    name.lower(): int(number)
    for name, number in re.findall(r"^    ([A-Z0-9_]+) = ([0-9]+),$", _HEADER.read_text(), re.MULTILINE)
}
"""What a kernel does (good, segfault, ...) -> its tile_m, as grouped_conv.hpp numbers it."""

NOISE_ALLOWED = 1e9
"""TimingPlan.noisy_above of tests about statuses: other work on this machine makes nothing noisy."""

FLAG = "TO_EVIL_FLAG"
"""The environment variable that names the kernels' flag file."""


def evil_kernel(mode: str, variant: int = 1) -> GroupedConvKernel:
    """The kernel of a mode; variants are different kernels that do the same."""
    return GroupedConvKernel("forward", "fp32", 2, MODES[mode], variant, 1, 1, 1, 1, 1, 1, 1)


def small_problem(**changes: int) -> GroupedConvProblem:
    """A forward 2D fp32 problem that the kernels finish in some microseconds."""
    sizes = {"N": 1, "C": 4, "K": 5, "G": 1, "Hi": 7, "Wi": 7, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
    return GroupedConvProblem("forward", "fp32", 2, **(sizes | changes))


def make_include(folder: Path) -> Path:
    """A folder of headers to build from: the evil kernels, and the real abi.h."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(_HEADER, folder)
    shutil.copy(data_folder("kernels") / "cpu" / "abi.h", folder)
    return folder


class EvilTarget(Target):
    """A target over the evil kernels.

    binaries: kernels whose binary is replaced by another file, for faults that no build lets pass. builder:
    shared between targets; it stays open.
    """

    def __init__(
        self, builder: Builder, timeout_s: float = 60.0, binaries: dict[GroupedConvKernel, Path] | None = None
    ) -> None:
        super().__init__("cpu", "cpu", [Compiled(builder)])
        self.limit_s = timeout_s
        self.binaries = binaries or {}

    def refusal(self, kernel: GroupedConvKernel, problem: GroupedConvProblem) -> str | None:
        return None

    def build(self, kernel: GroupedConvKernel) -> Future[BuildResult]:
        future = super().build(kernel)
        if kernel not in self.binaries:
            return future
        built = future.result()
        assert built.binary is not None
        return finished(replace(built, binary=replace(built.binary, path=self.binaries[kernel])))

    def timeout_s(self, problem: GroupedConvProblem) -> float:
        return self.limit_s

    def close(self) -> None:
        """The builder is closed by its creator."""


def evil_builder(folder: Path) -> Builder:
    """A builder of the evil kernels with its headers and its cache below `folder`."""
    return Builder(
        "cpu", toolchain="ziglang", build_dir=folder / "cache", include=make_include(folder / "include")
    )
