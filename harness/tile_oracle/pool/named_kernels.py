"""Rule sets that name each kernel: what `tile-oracle portfolio -o` writes.

{"about": "...", "arch": ["sm_90"], "kernels": ["grouped_conv_forward_bf16_2d_64x64x64_compv3", ...]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tile_oracle.arch import Arch, known_archs
from tile_oracle.errors import KernelError
from tile_oracle.json_tree import JsonTree
from tile_oracle.kernel import Kernel, NamedKernel, parse_kernel_name
from tile_oracle.operation import Kind
from tile_oracle.operation.descriptor import RuleBlock

KERNELS = "kernels"
"""The key that distinguishes a list of names from other rule sets."""


@dataclass(frozen=True)
class NamedKernels:
    """The listed kernels of one kind, as a block of a rule set. place: its place in the file."""

    place: str
    arch: tuple[str, ...]
    kind: Kind
    listed: tuple[Kernel, ...]

    @property
    def candidates(self) -> int:
        """Number of kernels."""
        return len(self.listed)

    def covers(self, kind: Kind, arch: str) -> bool:
        """Whether the list has kernels of this kind for the architecture."""
        return arch in self.arch and kind == self.kind

    def kernels(self, kind: Kind, arch: Arch) -> Iterator[Kernel]:
        """The listed kernels."""
        return iter(self.listed)


def read_named_kernels(tree: JsonTree) -> tuple[str, dict[str, tuple[RuleBlock, ...]]]:
    """The list's `about`, and its blocks by operation. Raises RuleError, which names the place."""
    top = tree.known_members(("arch", KERNELS), ("about",))
    archs = top["arch"].texts(known_archs())
    by_kind: dict[Kind, list[Kernel]] = {}
    for item in top[KERNELS].items():
        try:
            kernel = parse_kernel_name(item.text())
        except KernelError as error:
            raise item.error(f"{item}: {error}") from None
        if isinstance(kernel, NamedKernel):
            raise item.error(f"{item} is not a kernel of tile-oracle's families, which a list may name")
        by_kind.setdefault(kernel.kind, []).append(kernel)
    if not by_kind or not archs:
        raise tree.error("a list of kernels needs at least one kernel and one architecture")
    blocks: dict[str, tuple[RuleBlock, ...]] = {}
    for kind, kernels in by_kind.items():
        block = NamedKernels(str(top[KERNELS]), archs, kind, tuple(kernels))
        blocks[kind.op] = (*blocks.get(kind.op, ()), block)
    return (top["about"].text() if "about" in top else ""), blocks


def named_kernels_json(names: Iterable[str], archs: Sequence[str], about: str) -> str:
    """A list that `read_named_kernels` reads; the names are sorted."""
    return json.dumps({"about": about, "arch": list(archs), KERNELS: sorted(set(names))}, indent=1) + "\n"


def listed_kinds(blocks: Iterable[RuleBlock]) -> tuple[Kind, ...]:
    """The kinds of a list's kernels, in its order; none for blocks of rules."""
    return tuple(dict.fromkeys(block.kind for block in blocks if isinstance(block, NamedKernels)))
