"""The algorithms that cuBLASLt offers for a product: its own ranking, and an enumeration."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.library.cublaslt import (
    CONFIGURATION,
    REDUCTION_IN_COMPUTE_TYPE,
    Algorithm,
    AlgorithmLimits,
    CublasLt,
    Product,
)
from tile_oracle.problem import Problem
from tile_oracle.vendor.offers import WORKSPACE_BYTES, Offer, ProblemOffers

_MOST_RANKED = 64
"""Algorithms asked for in the library's own ranking. It names far fewer."""
_SPLITS = (2, 4, 8, 16)
_MOST_CUSTOM = 8
_MOST_CHECKS = 20_000
"""Configurations of one problem that the library is asked about, a few microseconds each."""


def offers_for(library: CublasLt, problem: Problem, most: int) -> ProblemOffers:
    """At most `most` offers: the library's own ranking, then others, evenly from the enumeration.

    Raises LibraryFailure.
    """
    try:
        product = Product(library, problem)
    except Unlaunchable as error:
        return ProblemOffers(why_none=str(error))
    try:
        return _Enumeration(library, product).offers(most)
    finally:
        product.close()


@dataclass
class _Enumeration:
    """Of one product. plain: accepted with one part of the depth and without further options. varied: those
    with splits, swizzles or custom options."""

    library: CublasLt
    product: Product
    ranked: dict[str, Offer] = field(default_factory=dict)
    plain: dict[str, Offer] = field(default_factory=dict)
    varied: dict[str, Offer] = field(default_factory=dict)
    too_large: int = 0
    checks: int = 0

    def offers(self, most: int) -> ProblemOffers:
        for result in self.product.heuristic(_MOST_RANKED, WORKSPACE_BYTES["cublaslt"]):
            rank = len(self.ranked)
            offer = self._offer(result.algorithm, int(result.workspace_bytes), rank)
            self.ranked.setdefault(offer.algorithm, offer)
        self._enumerate()
        plain, varied = (
            [offer for name, offer in found.items() if name not in self.ranked]
            for found in (self.plain, self.varied)
        )
        room = max(0, most - len(self.ranked))
        of_plain = min(len(plain), max(room - room // 2, room - len(varied)))
        chosen = (*self.ranked.values(), *_evenly(plain, of_plain), *_evenly(varied, room - of_plain))
        accepted = len(self.ranked) + len(plain) + len(varied) + self.too_large
        why_none = "" if chosen else "the library has no algorithm for it"
        return ProblemOffers(chosen[:most], why_none, accepted, self.too_large)

    def _enumerate(self) -> None:
        accepted: list[tuple[Algorithm, AlgorithmLimits]] = []
        for number in self.library.ids(self.product.types):
            algorithm = self.library.initialized(number, self.product.types)
            if algorithm is None:
                continue
            limits = self.library.limits(algorithm)
            if not limits.aligned:
                continue
            for tile, stages in itertools.product(limits.tiles, limits.stages):
                made = self.library.configured(algorithm, tile=tile, stages=stages)
                if made is not None and self._take(made, self.plain):
                    accepted.append((made, limits))
        # One variation of every algorithm after the other, so that the bound on checks cuts all alike.
        variations = [_variations(limits) for _, limits in accepted]
        for several in itertools.zip_longest(*variations):
            for (algorithm, _), values in zip(accepted, several, strict=True):
                made = None if values is None else self.library.configured(algorithm, **values)
                if made is not None:
                    self._take(made, self.varied)

    def _take(self, algorithm: Algorithm, found: dict[str, Offer]) -> bool:
        """Keeps an algorithm that the library accepts; whether it does, whatever its workspace."""
        if self.checks >= _MOST_CHECKS:
            return False
        self.checks += 1
        code, result = self.product.check(algorithm)
        if code:
            return False
        if result.workspace_bytes > WORKSPACE_BYTES["cublaslt"]:
            self.too_large += 1
        else:
            offer = self._offer(algorithm, int(result.workspace_bytes), None)
            found.setdefault(offer.algorithm, offer)
        return True

    def _offer(self, algorithm: Algorithm, workspace_bytes: int, rank: int | None) -> Offer:
        name = name_of(self.library, algorithm, self.product.types)
        return Offer(name, algorithm.hex(), workspace_bytes, rank)


def name_of(library: CublasLt, algorithm: Algorithm, types: tuple[int, ...]) -> str:
    """The algorithm's name: its id, then what differs from the defaults, as in a66.stages=36.tile=20.

    Where the configuration alone does not give the same algorithm again, a hash of all of its bytes is part
    of the name (bits=x38c218d1).
    """
    values = library.configuration(algorithm)
    number = values.pop("id")
    words = {word: _word(value) for word, value in values.items() if value != CONFIGURATION[word][2]}
    default = library.initialized(number, types)
    again = None
    if default is not None:
        usual = library.configuration(default)
        again = library.configured(default, **{one: v for one, v in values.items() if v != usual[one]})
    if again is None or bytes(again) != bytes(algorithm):
        words["bits"] = f"x{zlib.crc32(bytes(algorithm)):08x}"
    return ".".join((f"a{number}", *(f"{word}={words[word]}" for word in sorted(words))))


def _word(value: int) -> str:
    return str(value) if value >= 0 else f"minus{-value}"


def _variations(limits: AlgorithmLimits) -> Iterator[dict[str, int]]:
    """What differs from an algorithm's plain configuration."""
    for custom in range(min(limits.custom, _MOST_CUSTOM) + 1):
        for swizzle in range(min(limits.swizzle, 1) + 1):
            if custom or swizzle:
                yield {"custom": custom, "swizzle": swizzle}
            if limits.splits and limits.reductions & REDUCTION_IN_COMPUTE_TYPE:
                for parts in _SPLITS:
                    yield {
                        "split_k": parts,
                        "reduction": REDUCTION_IN_COMPUTE_TYPE,
                        "custom": custom,
                        "swizzle": swizzle,
                    }


def _evenly(offers: Sequence[Offer], count: int) -> tuple[Offer, ...]:
    """`count` of them at even distances, or all."""
    if count >= len(offers):
        return tuple(offers)
    return tuple(offers[place * len(offers) // count] for place in range(count))
