"""Rule blocks of kernels that differ in a few sizes: {"attention": [{"arch": ["cpu"], "keys": [8, 32]}]}."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tile_oracle.arch import Arch, known_archs
from tile_oracle.files.json_tree import JsonTree
from tile_oracle.kernel.sized import SizedKernel
from tile_oracle.operation import Kind, operation_named


@dataclass(frozen=True)
class SizedBlock:
    """See tile_oracle.operation.descriptor.RuleBlock. sizes: the values of each of the kernel's."""

    made: type[SizedKernel]
    arch: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...]

    @property
    def candidates(self) -> int:
        """Number of kernels of one kind."""
        return math.prod(map(len, self.sizes))

    def covers(self, kind: Kind, arch: str) -> bool:
        """Whether the block is for the architecture."""
        return arch in self.arch

    def kernels(self, kind: Kind, arch: Arch) -> Iterator[SizedKernel]:
        """One kernel per combination of sizes. Raises KernelError."""
        for sizes in itertools.product(*self.sizes):
            yield self.made.from_row({**kind.words, **dict(zip(self.made.sizes, sizes, strict=True))})


def read_block(made: type[SizedKernel], tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> SizedBlock:
    """Read a block, which uses no lists of tiles. Raises RuleError."""
    part = tree.known_members(("arch", *made.sizes))
    return SizedBlock(
        made, part["arch"].texts(known_archs()), tuple(part[name].integers(1) for name in made.sizes)
    )


def refusals(arch: Arch, kernel: SizedKernel) -> Iterator[str]:
    """Why an architecture has no such kernel."""
    if arch.name != "cpu":
        others = "" if operation_named(kernel.op).triton_view is None else "; --kernels triton may have some"
        yield (
            f"arch: {kernel.op} has no kernels of the project's own family for {arch.name}, only for cpu"
            f"{others}"
        )
