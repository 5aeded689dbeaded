"""A kernel source: twelve variants of one C++ convolution, compiled for the CPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

from tile_oracle.compiling.native import CpuFamily
from tile_oracle.compiling.source import headers_for, read_headers
from tile_oracle.kernel import Kernel
from tile_oracle.kernel.named import NamedKernel
from tile_oracle.problem import Kind, Problem

KIND = Kind.of("grouped_conv", direction="forward", dtype="fp32", ndim=2)
CHANNELS, PIXELS = (4, 8, 16, 32), (1, 4, 8)
"""The configurations: output channels and pixels that are computed together."""


class BlockedConv(CpuFamily):
    """The headers in include/ behind kernels/cpu/abi.h."""

    kinds = (KIND,)

    def pool(self, kind: Kind, rules: str = "") -> tuple[Kernel, ...]:
        """The candidates for a kind of problem, whatever the kernel set."""
        if kind != KIND:
            return ()
        return tuple(
            NamedKernel(kind, "blocked", "conv", (("channels", channels), ("pixels", pixels)))
            for channels, pixels in product(CHANNELS, PIXELS)
        )

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        """Why a kernel cannot run a problem."""
        channels = int(kernel.configuration["channels"])
        per_group = problem.K // problem.G
        return (
            f"{per_group} output channels are not a multiple of {channels}" if per_group % channels else None
        )

    def unit(self, kernel: Kernel) -> str:
        """The translation unit of a kernel."""
        values = kernel.configuration
        return (
            f"#define CHANNELS {values['channels']}\n#define PIXELS {values['pixels']}\n"
            '#include "blocked_conv.hpp"\n'
        )


class Provider:
    """Opens the source for --kernels blocked."""

    archs = ("cpu",)

    def __call__(self, arch: str, argument: str) -> BlockedConv:
        """argument: unused."""
        own = read_headers(Path(__file__).parent / "include")
        abi = [(name, content) for name, content in headers_for(arch).files if name == "abi.h"]
        return BlockedConv(arch, replace(own, files=tuple(sorted([*own.files, *abi]))), "blocked_conv")


provider = Provider()
