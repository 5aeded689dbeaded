"""Rule blocks of operations on rows: {"softmax": [{"arch": ["cpu"], "lanes": [1, 4]}]}."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tile_oracle.arch import Arch, known_archs
from tile_oracle.files.json_tree import JsonTree
from tile_oracle.operation import Kind
from tile_oracle.operations.rowwise.kernel import RowKernel


@dataclass(frozen=True)
class RowBlock:
    """See tile_oracle.operation.descriptor.RuleBlock."""

    made: type[RowKernel]
    arch: tuple[str, ...]
    lanes: tuple[int, ...]

    @property
    def candidates(self) -> int:
        """Number of kernels for one data type."""
        return len(self.lanes)

    def covers(self, kind: Kind, arch: str) -> bool:
        """Returns whether the block is for the architecture."""
        return arch in self.arch

    def kernels(self, kind: Kind, arch: Arch) -> Iterator[RowKernel]:
        """Returns one kernel per number of lanes. Raises KernelError."""
        return (self.made(kind.dtype, lanes) for lanes in self.lanes)


def read_block(made: type[RowKernel], tree: JsonTree) -> RowBlock:
    """Reads a block for kernels of a class. Raises RuleError."""
    part = tree.known_members(("arch", "lanes"))
    return RowBlock(made, part["arch"].texts(known_archs()), part["lanes"].integers(1))


def refusals(arch: Arch, kernel: RowKernel) -> Iterator[str]:
    """Yields why an architecture has no such kernel."""
    if arch.name != "cpu":
        yield f"arch: {kernel.op} has no kernels of the project's own family for {arch.name}, only for cpu"
