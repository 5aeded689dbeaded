"""Lists of an operation's kernels that programs of Composable Kernel read and write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tile_oracle.operation.descriptor import RuleBlock

if TYPE_CHECKING:
    from tile_oracle.json_tree import JsonTree
    from tile_oracle.pool.ck_builder_line import BuilderLine

INSTANCES, TRAITS = "instances", "trait_config"
"""The keys by which the two kinds of list are told apart, and from a rule set."""


@dataclass(frozen=True)
class KernelList:
    """blocks: as of a rule set. left_out: (place, reason) of instances that are no kernel here.
    names_instances: the list names its kernels one by one.
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
    """A module with these functions is one."""

    def read_kernel_list(self, tree: JsonTree, standard: Callable[[], Sequence[RuleBlock]]) -> KernelList:
        """Reads either list. standard: the blocks that traits narrow. Raises RuleError."""

    def instances_json(self, kernels: Any) -> str:
        """The instance list of kernels of one kind. Raises KernelError for what a list cannot say."""

    def traits_json(self, kernels: Any, standard: Any) -> str:
        """The trait list of kernels of one kind. standard: the set `default` of that kind. Raises KernelError
        where the traits stand for other kernels than these."""

    def builder_block(self, line: BuilderLine, archs: tuple[str, ...]) -> RuleBlock:
        """The block of one line of a config file of CK Builder, for some architectures."""
