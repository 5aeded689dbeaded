"""Rule blocks of scaled products: {"scaled_gemm": [{"arch": ["cpu"], "columns": [1, 4]}]}."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tile_oracle.arch import Arch, known_archs
from tile_oracle.files.json_tree import JsonTree
from tile_oracle.operation import Kind
from tile_oracle.operations.scaled_gemm.kernel import ScaledGemmKernel


@dataclass(frozen=True)
class ScaledGemmBlock:
    """See tile_oracle.operation.descriptor.RuleBlock."""

    arch: tuple[str, ...]
    columns: tuple[int, ...]

    @property
    def candidates(self) -> int:
        """Number of kernels of one kind."""
        return len(self.columns)

    def covers(self, kind: Kind, arch: str) -> bool:
        """Returns whether the block is for the architecture."""
        return arch in self.arch

    def kernels(self, kind: Kind, arch: Arch) -> Iterator[ScaledGemmKernel]:
        """Returns one kernel per number of columns. Raises KernelError."""
        return (ScaledGemmKernel(kind.dtype, str(kind.words["scale"]), one) for one in self.columns)


def read_block(tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> ScaledGemmBlock:
    """Read a block, which uses no lists of tiles. Raises RuleError."""
    part = tree.known_members(("arch", "columns"))
    return ScaledGemmBlock(part["arch"].texts(known_archs()), part["columns"].integers(1))


def refusals(arch: Arch, kernel: ScaledGemmKernel) -> Iterator[str]:
    """Yields why an architecture has no such kernel."""
    if arch.name != "cpu":
        yield (
            f"arch: scaled_gemm has no kernels of the project's own family for {arch.name}, only for cpu; "
            "--kernels triton has some for sm_90 and gfx950"
        )
