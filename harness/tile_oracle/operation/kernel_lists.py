"""Kernel lists in the formats that programs of Composable Kernel read and write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tile_oracle.operation.descriptor import RuleBlock

if TYPE_CHECKING:
    from tile_oracle.files.json_tree import JsonTree
    from tile_oracle.pool.ck_builder_line import BuilderLine

INSTANCES, TRAITS = "instances", "trait_config"
"""The keys that distinguish the two kinds of list from each other and from a rule set."""


@dataclass(frozen=True)
class KernelList:
    """blocks: the blocks of a rule set. left_out: (place, reason) of instances that have no kernel here.
    names_instances: the list names each kernel.
    """

    about: str
    blocks: tuple[RuleBlock, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    names_instances: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.left_out:
            return ()
        total = len(self.blocks) + len(self.left_out)
        shown = [f"  {place}: {reason}" for place, reason in self.left_out[:5]]
        return (f"{len(self.left_out)} of {total} instances were left out, the first:", *shown)


class KernelLists(Protocol):
    """Implemented by a module with these functions."""

    def read_kernel_list(self, tree: JsonTree, standard: Callable[[], Sequence[RuleBlock]]) -> KernelList:
        """Reads a list of either kind. standard: the blocks that traits restrict. Raises RuleError."""

    def instances_json(self, kernels: Any) -> str:
        """Returns the instance list of kernels of one kind. Raises KernelError for kernels that it cannot
        express."""

    def traits_json(self, kernels: Any, standard: Any) -> str:
        """Returns the trait list of kernels of one kind. standard: the set `default` of that kind.

        Raises KernelError when the traits would select other kernels.
        """

    def builder_block(self, line: BuilderLine, archs: tuple[str, ...]) -> RuleBlock:
        """Returns the block of one line of a CK Builder config file."""
