"""Kernel lists in the formats that programs of Composable Kernel read and write."""

from __future__ import annotations

from dataclasses import dataclass

from tile_oracle.operation.descriptor import RuleBlock

INSTANCES = "instances"
"""The key that distinguishes such a list from a rule set."""


@dataclass(frozen=True)
class KernelList:
    """blocks: the blocks of a rule set. left_out: (place, reason) of instances that have no kernel here."""

    about: str
    blocks: tuple[RuleBlock, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.left_out:
            return ()
        total = len(self.blocks) + len(self.left_out)
        shown = [f"  {place}: {reason}" for place, reason in self.left_out[:5]]
        return (f"{len(self.left_out)} of {total} instances were left out, the first:", *shown)
