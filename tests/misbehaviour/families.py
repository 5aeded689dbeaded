"""Families of misbehaviour: what a kernel does, in C++, and the expected status.

All families of a table are compiled into one library (`family_library.py`); a copy of it is a kernel of the
family that its file is named after. `runner.py` measures such a kernel among innocent ones.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

GROUPS = (
    "timing",
    "saving",
    "precision",
    "state",
    "messages",
    "resources",
    "signals",
    "fairness",
    "watching",
)


@dataclass(frozen=True)
class Family:
    """One way to misbehave.

    does: a sentence. statuses: those that the kernel may get; any other is a failure. launch: the body of
    `to_launch(const to_conv_args *a)`; `convolve(a)` computes the correct result, and TO_OK is returned at
    the end. declarations: C++ before it, in the family's own namespace. workspace: `to_workspace_bytes`, an
    expression. detail: text that the measurement's detail must contain. limit_s: the time limit of a kernel.
    own_session: the session runs in its own process, which may be stopped or killed; it is resumed until it
    ends. uncontained: without namespaces, in which the kernel could not see its victim. machine: the only
    machine that has it ("" for any). quick: part of the sample that the normal suite runs.
    """

    name: str
    group: str
    does: str
    statuses: frozenset[str]
    launch: str = "convolve(a);"
    declarations: str = ""
    workspace: str = "0"
    detail: str = ""
    limit_s: float = 10.0
    own_session: bool = False
    uncontained: bool = False
    machine: str = ""
    quick: bool = False

    def __post_init__(self) -> None:
        if self.group not in GROUPS:
            raise ValueError(f"{self.name}: no group {self.group}")

    @property
    def possible_here(self) -> bool:
        """Whether the family can run on this machine."""
        return self.machine in ("", platform.machine())


INNOCENT = Family("innocent", "state", "Computes the right result and does nothing else.", frozenset({"ok"}))


def one(*statuses: str) -> frozenset[str]:
    """The statuses that a family may get."""
    return frozenset(statuses)
