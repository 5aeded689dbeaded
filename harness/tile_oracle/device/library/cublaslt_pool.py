"""The algorithms that cuBLASLt offers for a product: its own ranking, and an enumeration."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tile_oracle.device.library.calls import word_of
from tile_oracle.device.library.cublaslt import (
    CONFIGURATION,
    REDUCTION_IN_COMPUTE_TYPE,
    Algorithm,
    AlgorithmLimits,
    CublasLt,
    CublasProduct,
)
from tile_oracle.libraries.offers import WORKSPACE_BYTES, Offer, ProblemOffers

_MOST_RANKED = 64
"""Algorithms asked for in the library's own ranking. It names far fewer."""
_SPLITS = (2, 3, 4, 6, 8, 16)
_CLUSTERS = (0, *range(2, 16))
"""Cluster shapes: the library's choice, and those of up to 16 workgroups."""
_MOST_CUSTOM = 8
_MOST_CHECKS = 10_000
"""Configurations of one group that the library is asked about for a problem."""


def offers_for(library: CublasLt, product: CublasProduct, most: int) -> ProblemOffers:
    """At most `most` offers: the library's own ranking, then others, evenly from the enumeration.

    Raises LibraryFailure.
    """
    return _Enumeration(library, product).offers(most)


@dataclass(frozen=True)
class _Accepted:
    """An algorithm that the library accepts for the product, and its workspace."""

    algorithm: Algorithm
    limits: AlgorithmLimits
    workspace_bytes: int


_Proposed = Iterator[tuple[Algorithm, AlgorithmLimits]]


class _Enumeration:
    """The algorithms of one product in three groups: neighbours of the ranking; plain ones, which have one
    part of the depth and no further options; varied ones, which have them."""

    def __init__(self, library: CublasLt, product: CublasProduct) -> None:
        self._library, self._product = library, product

    def offers(self, most: int) -> ProblemOffers:
        results = self._product.ranking(_MOST_RANKED, WORKSPACE_BYTES["cublaslt"])
        offers: dict[str, Offer] = {}
        for result in results:
            offer = self._offer(result.algorithm, int(result.workspace_bytes), len(offers))
            offers.setdefault(offer.algorithm, offer)
        near = self._accepted(self._neighbours(result.algorithm) for result in results)
        plain = self._accepted(map(self._of_id, self._library.ids(self._product.types)))
        varied = self._accepted(map(self._variations_of, plain))
        groups = [_small_enough(group) for group in (near, plain, varied)]
        room = max(0, most - len(offers))
        for group, count in zip(groups, _shares(room, [len(group) for group in groups]), strict=True):
            for one in _evenly(group, count):
                offer = self._offer(one.algorithm, one.workspace_bytes, None)
                offers.setdefault(offer.algorithm, offer)
        accepted = len(results) + len(near) + len(plain) + len(varied)
        too_large = len(near) + len(plain) + len(varied) - sum(map(len, groups))
        return ProblemOffers.of([*offers.values()][:most], accepted, too_large)

    def _neighbours(self, ranked: Algorithm) -> _Proposed:
        """Returns what differs from an algorithm of the ranking in one attribute."""
        values = self._library.configuration(ranked)
        default = self._library.initialized(values["id"], self._product.types)
        if default is None:
            return
        limits = self._library.limits(default)
        others: dict[str, Sequence[int]] = {
            "cluster": _CLUSTERS,
            "custom": range(min(limits.custom, _MOST_CUSTOM) + 1),
            "swizzle": range(min(limits.swizzle, 1) + 1),
            "split_k": (1, *_SPLITS) if limits.splits else (),
            "stages": limits.stages,
            "tile": limits.tiles,
        }
        for word, several in others.items():
            for value in several:
                if value == values[word]:
                    continue
                more = {} if word != "split_k" else {"reduction": REDUCTION_IN_COMPUTE_TYPE * (value > 1)}
                made = self._library.configured(ranked, **{word: value}, **more)
                if made is not None:
                    yield made, limits

    def _of_id(self, number: int) -> _Proposed:
        """Returns the plain algorithms of an id."""
        algorithm = self._library.initialized(number, self._product.types)
        if algorithm is None:
            return
        limits = self._library.limits(algorithm)
        if not limits.aligned:
            return
        for tile, stages in itertools.product(limits.tiles, limits.stages):
            made = self._library.configured(algorithm, tile=tile, stages=stages)
            if made is not None:
                yield made, limits

    def _variations_of(self, plain: _Accepted) -> _Proposed:
        """Returns the varied algorithms of a plain one."""
        for values in _variations(plain.limits):
            made = self._library.configured(plain.algorithm, **values)
            if made is not None:
                yield made, plain.limits

    def _accepted(self, proposed: Iterable[_Proposed]) -> list[_Accepted]:
        """Returns what the library accepts. One of each group after the other, so that the bound cuts all
        alike."""
        found = []
        in_turn = itertools.chain.from_iterable(itertools.zip_longest(*proposed))
        for algorithm, limits in itertools.islice(filter(None, in_turn), _MOST_CHECKS):
            code, result = self._product.check(algorithm)
            if not code:
                found.append(_Accepted(algorithm, limits, int(result.workspace_bytes)))
        return found

    def _offer(self, algorithm: Algorithm, workspace_bytes: int, rank: int | None) -> Offer:
        name = name_of(self._library, algorithm, self._product.types)
        return Offer(name, algorithm.hex(), workspace_bytes, rank)


def _small_enough(accepted: Sequence[_Accepted]) -> list[_Accepted]:
    return [one for one in accepted if one.workspace_bytes <= WORKSPACE_BYTES["cublaslt"]]


def name_of(library: CublasLt, algorithm: Algorithm, types: tuple[int, ...]) -> str:
    """Returns the algorithm's name: its id, then what differs from the defaults, as in a66.stages=36.tile=20.

    Where the configuration alone does not give the same algorithm again, a hash of all of its bytes is part
    of the name (bits=x38c218d1).
    """
    values = library.configuration(algorithm)
    number = values.pop("id")
    words = {word: word_of(value) for word, value in values.items() if value != CONFIGURATION[word][2]}
    default = library.initialized(number, types)
    again = None
    if default is not None:
        usual = library.configuration(default)
        again = library.configured(default, **{one: v for one, v in values.items() if v != usual[one]})
    if again is None or bytes(again) != bytes(algorithm):
        words["bits"] = f"x{zlib.crc32(bytes(algorithm)):08x}"
    return ".".join((f"a{number}", *(f"{word}={words[word]}" for word in sorted(words))))


def _variations(limits: AlgorithmLimits) -> Iterator[dict[str, int]]:
    """Yields what differs from an algorithm's plain configuration."""
    customs, swizzles = range(min(limits.custom, _MOST_CUSTOM) + 1), range(min(limits.swizzle, 1) + 1)
    may_split = limits.splits and limits.reductions & REDUCTION_IN_COMPUTE_TYPE
    for custom, swizzle in itertools.product(customs, swizzles):
        options = {"custom": custom, "swizzle": swizzle}
        if custom or swizzle:
            yield options
        for parts in _SPLITS if may_split else ():
            yield {"split_k": parts, "reduction": REDUCTION_IN_COMPUTE_TYPE, **options}


def _shares(room: int, sizes: Sequence[int]) -> list[int]:
    """Returns how many of each group: half of the room for the first, a quarter for the others, and what a
    group does not need for the next."""
    shares, left = [], room
    for place, size in enumerate(sizes):
        after = sum(sizes[place + 1 :])
        share = min(size, max(-(-left // 2), left - after) if place + 1 < len(sizes) else left)
        shares.append(share)
        left -= share
    return shares


def _evenly(several: Sequence[_Accepted], count: int) -> Sequence[_Accepted]:
    """`count` of them at even distances, or all."""
    if count >= len(several):
        return several
    return [several[place * len(several) // count] for place in range(count)]
