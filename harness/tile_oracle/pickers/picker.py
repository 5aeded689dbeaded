"""A picker of another maker, as it is deployed, and how what it chooses means kernels of a pool.

A package offers one by an entry point, a function without arguments that returns an `Asked`:

    [project.entry-points."tile_oracle.pickers"]
    mine = "my_package.picker:picker"

Then `pytest --model mine` judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from typing import Protocol

from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem

Value = int | float | bool | str


@dataclass(frozen=True)
class Configuration:
    """A choice that names no kernel of the pool: a configuration in the picker's own words.

    values: what the picker has decided, by the names of `configuration_of`. among: the kernels that the
    choice can mean. kernel: the full name of a kernel: it is that one where the pool has it, else what the
    values mean, if there are any. fallback: what is used because the
    picker has no answer of its own, such as the row of another shape, or a default.
    """

    values: Mapping[str, Value]
    among: Callable[[Kernel], bool] = field(default=lambda kernel: True, compare=False)
    kernel: str = ""
    fallback: bool = False

    def __str__(self) -> str:
        if self.kernel or not self.values:
            return self.kernel or "its default"
        return " ".join(f"{name}={value}" for name, value in self.values.items())


class Asked(Protocol):
    """A picker that is asked one problem at a time. name: as for --model. identity: its version, and the
    digests of its files. maps: whether the nearest kernel stands for a configuration that the pool lacks."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> str: ...

    @property
    def maps(self) -> bool: ...

    def pick(self, problem: Problem, pool: Sequence[Kernel]) -> Sequence[Kernel | Configuration]:
        """Returns the choices for a problem, best first; none where the picker has no answer. Raises
        ModelError."""


NAMES = {
    "tile_m": ("BLOCK_M", "BLOCK_SIZE_M"),
    "tile_n": ("BLOCK_N", "BLOCK_SIZE_N"),
    "tile_k": ("BLOCK_K", "BLOCK_SIZE_K"),
    "split_k": ("SPLIT_K", "NUM_KSPLIT"),
    "group_m": ("GROUP_M", "GROUP_SIZE_M"),
    "warps": ("num_warps",),
    "stages": ("num_stages", "STAGES"),
}
"""The common name of a value -> its names in configurations of Triton kernels."""
_COMMON = {name: common for common, names in NAMES.items() for name in names}
_FAMILY = ("tile_m", "tile_n", "tile_k", "pipeline", "scheduler", "epilogue")
_WAVES = ("warp_m", "warp_n", "warp_k")


def has_a_tile(kernel: Kernel) -> bool:
    """Returns whether a kernel has tile_m and tile_n."""
    return {"tile_m", "tile_n"} <= configuration_of(kernel).keys()


def configuration_of(kernel: Kernel) -> Mapping[str, Value]:
    """Returns what a kernel is configured with, by common names: tile_m, tile_n, tile_k, split_k, group_m,
    warps, stages, and further ones by their own. A Triton kernel without SPLIT_K has split_k = 1."""
    if kernel.source:
        return {"split_k": 1} | {
            _COMMON.get(name, name): value for name, value in kernel.configuration.items()
        }
    found: dict[str, Value] = {name: getattr(kernel, name) for name in _FAMILY if hasattr(kernel, name)}
    waves = [getattr(kernel, name, None) for name in _WAVES]
    if all(isinstance(one, int) for one in waves):
        found["warps"] = waves[0] * waves[1] * waves[2]  # type: ignore[operator]
    return found


NEAREST = (
    "nearest: the smallest sum of |log2(chosen / kernel's)| over tile and split-K, then over the rest that "
    "the picker chose, 1 for a word that differs; then the name that sorts first"
)
"""The one rule of mapping, in words."""
_FIRST = ("tile_m", "tile_n", "tile_k", "split_k")

Distance = tuple[float, float]
"""Over tile and split-K, and over the rest."""
EXACT: Distance = (0.0, 0.0)


def distance(chosen: Configuration, kernel: Kernel) -> Distance:
    """Returns how far a kernel is from a chosen configuration, by the rule NEAREST; EXACT if nothing differs.
    What the kernel does not have counts as 1."""
    own, first, rest = configuration_of(kernel), 0.0, 0.0
    for name, value in chosen.values.items():
        has, apart = own.get(name), 1.0
        if isinstance(value, int | float) and isinstance(has, int | float) and value > 0 and has > 0:
            apart = abs(log2(value / has))
        elif has == value:
            apart = 0.0
        first, rest = (first + apart, rest) if name in _FIRST else (first, rest + apart)
    return first, rest


def nearest(chosen: Configuration, pool: Sequence[Kernel]) -> tuple[Kernel, Distance] | None:
    """Returns the nearest kernel of a pool and its distance; None where the choice can mean none of them."""
    if chosen.kernel:
        named = next((kernel for kernel in pool if kernel.name == chosen.kernel), None)
        if named is not None or not chosen.values:
            return None if named is None else (named, EXACT)
    able = ((distance(chosen, kernel), kernel.name, kernel) for kernel in pool if chosen.among(kernel))
    best = min(able, key=lambda one: one[:2], default=None)
    return None if best is None else (best[2], best[0])
