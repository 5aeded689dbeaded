"""Rule sets that name each kernel: what `tile-oracle pool portfolio -o` writes.

{"about": "...", "arch": ["sm_90"], "kernels": ["grouped_conv_forward_bf16_2d_64x64x64_compv3", ...]}

The names may be those of kernels in Triton. A library's algorithms are refused: which of them there are
depends on the problem.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from tile_oracle.arch import known_archs
from tile_oracle.errors import KernelError
from tile_oracle.files.json_tree import JsonTree
from tile_oracle.kernel import FAMILY, Kernel, parse_kernel_name
from tile_oracle.operation import Kind
from tile_oracle.operation.descriptor import RuleBlock
from tile_oracle.pool.rule_parts import NamedKernels, RuleSet

KERNELS = "kernels"
"""The key that distinguishes a list of names from other rule sets."""
_TRITON = "triton"


def may_be_listed(kernel: Kernel) -> bool:
    """Returns whether a list may name a kernel: no library's algorithm."""
    return kernel.source in (FAMILY, _TRITON)


def read_named_kernels(tree: JsonTree, name: str) -> RuleSet:
    """Returns the set of a list. Raises RuleError, which names the place."""
    top = tree.known_members(("arch", KERNELS), ("about",))
    archs = top["arch"].texts(known_archs())
    by_kind: dict[Kind, list[Kernel]] = {}
    triton: dict[Kernel, None] = {}
    for item in top[KERNELS].items():
        try:
            kernel = parse_kernel_name(item.text())
        except KernelError as error:
            raise item.error(f"{item}: {error}") from None
        if not may_be_listed(kernel):
            raise item.error(
                f"{item} is a library's algorithm: a list names kernels of tile-oracle and in Triton"
            )
        if kernel.source:
            triton[kernel] = None
        else:
            by_kind.setdefault(kernel.kind, []).append(kernel)
    if not (by_kind or triton) or not archs:
        raise tree.error("a list of kernels needs at least one kernel and one architecture")
    blocks: dict[str, tuple[RuleBlock, ...]] = {}
    for kind, kernels in by_kind.items():
        block = NamedKernels(str(top[KERNELS]), archs, kind, tuple(kernels))
        blocks[kind.op] = (*blocks.get(kind.op, ()), block)
    return RuleSet(name, top["about"].text() if "about" in top else "", blocks, triton=tuple(triton))


def named_kernels_json(names: Iterable[str], archs: Sequence[str], about: str) -> str:
    """Returns a list that `read_named_kernels` reads; the names are sorted."""
    return json.dumps({"about": about, "arch": list(archs), KERNELS: sorted(set(names))}, indent=1) + "\n"
