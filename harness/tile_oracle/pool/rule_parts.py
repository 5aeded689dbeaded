"""The common parts of rule blocks: tiles, pipelines, paddings, lists, blocks of tiled kernels."""

from __future__ import annotations

import itertools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tile_oracle.arch import Arch, Triple, known_archs
from tile_oracle.errors import KernelError, RuleError
from tile_oracle.files.json_tree import JsonTree
from tile_oracle.kernel import EPILOGUES, PIPELINE_NAME, SCHEDULERS, Kernel
from tile_oracle.kernel.sized import SizedKernel
from tile_oracle.operation import Kind, operation_named
from tile_oracle.operation.descriptor import RuleBlock

INSTANCES = "instances"
"""The key that distinguishes such a list from a rule set."""


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
        """Returns whether the list has kernels of this kind for the architecture."""
        return arch in self.arch and kind == self.kind

    def kernels(self, kind: Kind, arch: Arch) -> Iterator[Kernel]:
        """Returns the listed kernels."""
        return iter(self.listed)


@dataclass(frozen=True, eq=False)
class RuleSet:
    """A named rule set. blocks: operation -> its blocks. notes: messages for the user about the set.

    left_out: (place, reason) of listed kernels without a block. of_library: the kernels belong to a library,
    so the lists of tile-oracle's family do not apply (`Arch.unlisted`). triton: the kernels in Triton that
    a list of names has besides the blocks.
    """

    name: str
    about: str
    blocks: Mapping[str, tuple[RuleBlock, ...]]
    notes: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    of_library: bool = False
    triton: tuple[Kernel, ...] = ()

    def narrowed(self, pool: Iterable[Kernel]) -> tuple[Kernel, ...]:
        """Of a pool of kernels in Triton those that the set names; all if it names no such kernels."""
        if not self.triton:
            return tuple(pool)
        named = frozenset(self.triton)
        return tuple(kernel for kernel in pool if kernel in named)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that the set has kernels of, if it names each kernel; none for a set of rules."""
        named = (one for blocks in self.blocks.values() for one in blocks if isinstance(one, NamedKernels))
        return tuple(dict.fromkeys(one.kind for one in named))

    def archs(self, op: str) -> tuple[str, ...]:
        """Returns the architectures that the set has kernels of an operation for."""
        return tuple(dict.fromkeys(arch for block in self.blocks.get(op, ()) for arch in block.arch))

    def covering(self, kind: Kind, arch: str) -> tuple[RuleBlock, ...]:
        """Returns the blocks that apply to this kind of problem."""
        return tuple(block for block in self.blocks.get(kind.op, ()) if block.covers(kind, arch))

    def covers(self, kind: Kind, arch: str) -> bool:
        """Returns whether any block applies to this kind of problem."""
        return bool(self.covering(kind, arch))


_T = TypeVar("_T")
Reader = Callable[[JsonTree], tuple[Any, ...]]
"""Reads a list of a block."""


@dataclass(frozen=True)
class TileRule:
    """A tile with the waves and warp tiles to try. A third number of None is filled in by `tilings`."""

    tile: tuple[int, int, int | None]
    waves: tuple[Triple, ...]
    warp_tiles: tuple[tuple[int, int, int | None], ...]


def filled(tree: JsonTree, values: tuple[_T, ...]) -> tuple[_T, ...]:
    """Returns the values of a list. Raises RuleError when it is empty."""
    if not values:
        raise tree.error("an empty list makes no kernels: leave the key out, or name a value")
    return values


def read_tile(tree: JsonTree, tile_k: tuple[int, ...]) -> TileRule:
    """Reads an object with tile, waves and warp_tile. Raises RuleError."""
    part = tree.known_members(("tile", "waves", "warp_tile"))
    tile = _sizes(part["tile"], may_lack_k=True)
    if tile[2] is None and not tile_k:
        raise part["tile"].error(f"{part['tile']} needs a third number, or a list 'tile_k' in its block")
    waves = []
    for item in _one_or_more(part["waves"]):
        m, n, k = _sizes(item, may_lack_k=False)
        assert k is not None
        waves.append((m, n, k))
    warp_tiles = tuple(_sizes(item, may_lack_k=True) for item in _one_or_more(part["warp_tile"]))
    return TileRule(tile, tuple(waves), warp_tiles)


def _one_or_more(tree: JsonTree) -> tuple[JsonTree, ...]:
    return (tree,) if isinstance(tree.value, str) else filled(tree, tuple(tree.items()))


def _sizes(tree: JsonTree, may_lack_k: bool) -> tuple[int, int, int | None]:
    match = SIZES.fullmatch(tree.text())
    if match is None or (match[3] is None and not may_lack_k):
        raise tree.error(f"{tree} is not of the form 64x64x64" + (" or 64x64" if may_lack_k else ""))
    return (int(match[1]), int(match[2]), None if match[3] is None else int(match[3]))


def read_pipeline(tree: JsonTree) -> str:
    """Reads a pipeline's name. Raises RuleError."""
    text = tree.text()
    if PIPELINE_NAME.fullmatch(text) is None:
        raise tree.error(f"{tree} is not a pipeline; one is compv3, mem, basic_v1, comp_async")
    return text


def read_padding(tree: JsonTree) -> tuple[bool, bool, bool]:
    """Reads pad_m, pad_n and pad_k from three digits. Raises RuleError."""
    text = tree.text()
    if re.fullmatch("[01]{3}", text) is None:
        raise tree.error(f"{tree} is not three digits 0 or 1, one each for pad_m, pad_n, pad_k")
    return (text[0] == "1", text[1] == "1", text[2] == "1")


SIZES = re.compile(r"([1-9][0-9]{0,6})x([1-9][0-9]{0,6})(?:x([1-9][0-9]{0,6}))?")


def tilings(
    rule: TileRule, tile_ks: Sequence[int], listed: Sequence[Triple]
) -> Iterator[tuple[Triple, Triple, Triple]]:
    """Tile, waves and warp tile of each tiling that a tile rule gives."""
    tile_m, tile_n, fixed_k = rule.tile
    for tile_k in tile_ks if fixed_k is None else (fixed_k,):
        for waves in rule.waves:
            for warp_m, warp_n, warp_k in rule.warp_tiles:
                if warp_k is None:
                    warp_k = _deepest(listed, warp_m, warp_n, tile_k, waves[2])
                yield (tile_m, tile_n, tile_k), waves, (warp_m, warp_n, warp_k)


def _deepest(listed: Sequence[Triple], warp_m: int, warp_n: int, tile_k: int, wave_k: int) -> int:
    """Returns the K of a warp tile with given m and n: the largest listed K that divides the tile.

    A matrix instruction does a fixed number of multiplications, so its depth follows from m x n and the data
    type. The list has the native depth and multiples that chain instructions; the deepest one needs the
    fewest address computations. If none fits, the smallest listed depth (or the tile's depth, if none is
    listed) is used, and the architecture refuses the kernel.
    """
    depths = sorted(k for m, n, k in listed if (m, n) == (warp_m, warp_n))
    fitting = [k for k in depths if tile_k % (wave_k * k) == 0]
    return fitting[-1] if fitting else depths[0] if depths else tile_k


def words(*known: str) -> Reader:
    """Returns a reader of known words."""
    return lambda tree: tree.texts(known)


def each(read: Callable[[JsonTree], Any]) -> Reader:
    """Returns a reader of a list, by that of an item."""
    return lambda tree: tuple(read(item) for item in tree.items())


@dataclass(frozen=True)
class TiledBlock(ABC):
    """A cross product of tiled kernels."""

    place: str
    """Its place in the file, for messages."""
    arch: tuple[str, ...]
    kinds: Mapping[str, tuple[Any, ...]]
    """Values of the fields that kernels share with their problems."""
    tiles: tuple[TileRule, ...]
    tile_k: tuple[int, ...]
    """Depths of tiles without a third number."""
    choices: Mapping[str, tuple[Any, ...]]
    """Values of the other fields; `padding` is that of all three axes."""

    @property
    def candidates(self) -> int:
        """Number of kernels proposed for one kind of problem, before any is refused."""
        tiles = sum(
            (len(self.tile_k) if rule.tile[2] is None else 1) * len(rule.waves) * len(rule.warp_tiles)
            for rule in self.tiles
        )
        return tiles * math.prod(map(len, self.choices.values()))

    def covers(self, kind: Kind, arch: str) -> bool:
        """Returns whether the block applies to this kind of problem."""
        return arch in self.arch and all(value in self.kinds[name] for name, value in kind.fields)

    def kernels(self, kind: Kind, arch: Arch) -> Iterator[Kernel]:
        """Yields every combination of the lists. Raises RuleError."""
        try:
            yield from self.combined(kind, arch)
        except KernelError as error:
            raise RuleError(f"{self.place}: {error}") from None

    @abstractmethod
    def combined(self, kind: Kind, arch: Arch) -> Iterator[Kernel]:
        """Returns every combination of the lists. Raises KernelError."""

    def others(self, *without: str) -> Iterator[dict[str, Any]]:
        """Combinations of `choices` as fields of a kernel."""
        names = [name for name in self.choices if name not in without]
        for values in itertools.product(*(self.choices[name] for name in names)):
            fields = dict(zip(names, values, strict=True))
            yield fields | dict(zip(("pad_m", "pad_n", "pad_k"), fields.pop("padding"), strict=True))

    def tilings(self, listed: Sequence[Triple]) -> Iterator[tuple[Triple, Triple, Triple]]:
        """Tile, waves and warp tile of each tiling. listed: the architecture's warp tiles."""
        for rule in self.tiles:
            yield from tilings(rule, self.tile_k, listed)


_Block = TypeVar("_Block", bound=TiledBlock)
_REQUIRED = ("arch", "tiles", "pipeline")
_TILED: Mapping[str, tuple[Reader, tuple[Any, ...]]] = {
    "pipeline": (each(read_pipeline), ()),
    "scheduler": (words(*SCHEDULERS), ("intrawave",)),
    "epilogue": (words(*EPILOGUES), ("cshuffle",)),
    "padding": (each(read_padding), ((True, True, True),)),
}
"""List -> its reader, and its values where a block has no such list."""


def read_tiled_block(
    made: type[_Block],
    tree: JsonTree,
    tile_lists: Mapping[str, JsonTree],
    kinds: Mapping[str, tuple[Reader, tuple[Any, ...]]],
    choices: Mapping[str, tuple[Reader, tuple[Any, ...]]],
) -> _Block:
    """Read a block. kinds, choices: its own lists, as in `_TILED`. Raises RuleError, with the place."""
    choices = {**_TILED, **choices}
    optional = [name for name in (*kinds, *choices) if name not in _REQUIRED]
    part = tree.known_members(_REQUIRED, ("about", "tile_k", *optional))

    def values(key: str, read: Reader, otherwise: tuple[Any, ...]) -> tuple[Any, ...]:
        return filled(part[key], read(part[key])) if key in part else otherwise

    tile_k = values("tile_k", lambda one: one.integers(1), ())
    tiles = part["tiles"]
    if isinstance(tiles.value, str):
        tiles = tile_lists[tiles.text(tile_lists)]
    if "about" in part:
        part["about"].text()
    return made(
        place=f"{tree.file}: {tree.path}",
        arch=values("arch", words(*known_archs()), ()),
        kinds={name: values(name, *lists) for name, lists in kinds.items()},
        tiles=filled(tiles, tuple(read_tile(item, tile_k) for item in tiles.items())),
        tile_k=tile_k,
        choices={name: values(name, *lists) for name, lists in choices.items()},
    )


@dataclass(frozen=True)
class SizedBlock:
    """See tile_oracle.operation.descriptor.RuleBlock. sizes: the values of each of the kernel's."""

    made: type[SizedKernel]
    arch: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...]

    @property
    def candidates(self) -> int:
        """Number of kernels of one kind."""
        return math.prod(map(len, self.sizes))

    def covers(self, kind: Kind, arch: str) -> bool:
        """Whether the block is for the architecture."""
        return arch in self.arch

    def kernels(self, kind: Kind, arch: Arch) -> Iterator[SizedKernel]:
        """One kernel per combination of sizes. Raises KernelError."""
        for sizes in itertools.product(*self.sizes):
            yield self.made.from_row({**kind.words, **dict(zip(self.made.sizes, sizes, strict=True))})


def read_block(made: type[SizedKernel], tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> SizedBlock:
    """Read a block, which uses no lists of tiles. Raises RuleError."""
    part = tree.known_members(("arch", *made.sizes))
    return SizedBlock(
        made, part["arch"].texts(known_archs()), tuple(part[name].integers(1) for name in made.sizes)
    )


def refusals(arch: Arch, kernel: SizedKernel) -> Iterator[str]:
    """Why an architecture has no such kernel."""
    if arch.name != "cpu":
        others = "" if operation_named(kernel.op).triton_view is None else "; --kernels triton may have some"
        yield (
            f"arch: {kernel.op} has no kernels of the project's own family for {arch.name}, only for cpu"
            f"{others}"
        )
