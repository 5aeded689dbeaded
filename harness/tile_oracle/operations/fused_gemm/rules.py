"""Rule blocks of fused products: {"fused_gemm": [{"arch": ["cpu"], "columns": [1, 4]}]}."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tile_oracle.arch import Arch, known_archs
from tile_oracle.files.json_tree import JsonTree
from tile_oracle.operation import Kind
from tile_oracle.operations.fused_gemm.kernel import FusedGemmKernel


@dataclass(frozen=True)
class FusedGemmBlock:
    """See tile_oracle.operation.descriptor.RuleBlock."""

    arch: tuple[str, ...]
    columns: tuple[int, ...]

    @property
    def candidates(self) -> int:
        """Number of kernels of one kind."""
        return len(self.columns)

    def covers(self, kind: Kind, arch: str) -> bool:
        """Whether the block is for the architecture."""
        return arch in self.arch

    def kernels(self, kind: Kind, arch: Arch) -> Iterator[FusedGemmKernel]:
        """One kernel per number of columns. Raises KernelError."""
        layout, epilogue = (str(kind.words[one]) for one in ("layout", "epilogue"))
        return (FusedGemmKernel(kind.dtype, layout, epilogue, one) for one in self.columns)


def read_block(tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> FusedGemmBlock:
    """Read a block, which uses no lists of tiles. Raises RuleError."""
    part = tree.known_members(("arch", "columns"))
    return FusedGemmBlock(part["arch"].texts(known_archs()), part["columns"].integers(1))


def refusals(arch: Arch, kernel: FusedGemmKernel) -> Iterator[str]:
    """Why an architecture has no such kernel."""
    if arch.name != "cpu":
        yield (
            f"arch: fused_gemm has no kernels of the project's own family for {arch.name}, only for cpu; "
            "--kernels triton has some for sm_90 and gfx950"
        )
