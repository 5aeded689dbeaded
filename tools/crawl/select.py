"""Stratified sampling of training and validation sets, with whole families held out for validation.

In a uniform sample a third of the problems would be too small to matter, half would be plain matrix
products and a fifth would come from one family. So each stratum (kind of layer x band of GFLOP) has a
share. Within a stratum the families take turns, each with a layer that was not chosen before.
"""

from __future__ import annotations

import bisect
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.operations.grouped_conv.slices import has_odd_channels, is_depthwise, is_gemm_like
from tile_oracle.problem.fields import ELEMENT_BYTES
from tools.crawl.synthetic import synthetic_problems
from tools.crawl.trace import Trace

BAND_EDGES_GFLOP = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)

PINNED_TO_TRAINING = frozenset({"resnet", "efficientnet", "vision_transformer"})
"""Families that many other architectures build on, and that hold a large part of all problems."""

KIND_SHARES: Mapping[str, Mapping[str, float]] = {
    "forward": {
        **{"1x1": 17, "3x3": 17, "depthwise": 14, "grouped": 13, "strided": 9, "dilated": 6, "3D": 7},
        **{"large filter": 4, "few inputs": 4, "odd channels": 7, "other": 2},
    },
    "bwd_data": {
        **{"1x1": 15, "3x3": 16, "depthwise": 14, "grouped": 15, "strided": 13, "dilated": 6, "3D": 7},
        **{"large filter": 4, "few inputs": 1, "odd channels": 7, "other": 2},
    },
    "bwd_weight": {
        **{"1x1": 16, "3x3": 18, "depthwise": 12, "grouped": 14, "strided": 10, "dilated": 6, "3D": 7},
        **{"large filter": 4, "few inputs": 5, "odd channels": 6, "other": 2},
    },
}
"""Direction -> kind -> relative share of a set."""

_SYNTHETIC = "synthetic:"
_SYNTHETIC_TURNS = {"forward": 1, "bwd_data": 2, "bwd_weight": 2}
"""Direction -> problems taken from a synthetic recipe per turn. A family of architectures gives one."""

T = TypeVar("T", bound=Hashable)
_Side = dict[tuple[GroupedConvProblem, int], "Candidate"]


@dataclass(frozen=True)
class Limits:
    """Upper limits of a set's problems, and the share of each band of BAND_EDGES_GFLOP."""

    max_gflop: float
    max_bytes: int
    band_shares: tuple[float, ...]


TRAINING_LIMITS = Limits(400.0, 10**9, (0.03, 0.09, 0.22, 0.30, 0.25, 0.09, 0.02))
VALIDATION_LIMITS = Limits(120.0, 3 * 10**8, (0.03, 0.10, 0.24, 0.32, 0.23, 0.066, 0.014))


@dataclass(frozen=True)
class SelectionOptions:
    """The sets to make. seed: decides the held-out families and every choice."""

    direction: str
    dtype: str = "bf16"
    training_count: int = 1500
    validation_count: int = 300
    seed: int = 1
    batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    synthetic: bool = True


@dataclass(frozen=True)
class Candidate:
    """A problem that may be chosen: a layer (batch 1, forward, bf16) and a batch size N.

    source: its architecture or synthetic recipe. family: the unit that takes turns.
    """

    layer: GroupedConvProblem
    N: int
    source: str
    family: str

    @property
    def flops(self) -> int:
        return self.layer.flops * self.N

    def bytes(self, dtype: str) -> int:
        """Bytes of the three tensors."""
        weights = math.prod(self.layer.weight_shape)
        images = math.prod(self.layer.input_shape) + math.prod(self.layer.output_shape)
        return ELEMENT_BYTES[dtype] * (weights + images * self.N)


@dataclass(frozen=True)
class Chosen:
    """A problem of a set, and its source."""

    problem: GroupedConvProblem
    source: str


@dataclass(frozen=True)
class Selection:
    """The two sets, each in a fixed shuffled order, so that any prefix is a fair sample.

    held_out: families of the validation set. shared_layers: number of their layers that other families
    have too, at any batch size; these are left out of the validation set.
    """

    training: tuple[Chosen, ...]
    validation: tuple[Chosen, ...]
    held_out: tuple[str, ...]
    families: int
    shared_layers: int
    options: SelectionOptions = field(repr=False)


def select(traces: Iterable[Trace], options: SelectionOptions) -> Selection:
    """Chooses both sets from the traces. A set is smaller than wanted only if there are too few problems."""
    in_order = sorted(traces, key=lambda t: (t.architecture, t.resolution))
    # a failed or empty trace must not change the side of other families
    held_out = hold_out({trace.family for trace in in_order}, options.seed)
    usable = [trace for trace in in_order if trace.layers]
    families = {trace.family for trace in usable}
    sides: tuple[_Side, _Side] = ({}, {})
    for trace in usable:
        side = sides[trace.family in held_out]
        for problem in trace.layers:
            layer = _layer(problem)
            for batch in options.batch_sizes:
                candidate = Candidate(layer, problem.N * batch, trace.source, trace.family)
                side.setdefault((layer, candidate.N), candidate)
    if options.synthetic:
        for problem, why in synthetic_problems(options.direction, options.dtype, options.seed):
            layer = _layer(problem)
            # all batch sizes of a layer are on one side
            side = sides[_hash(options.seed, layer.id) % 5 == 0]
            source = _SYNTHETIC + why
            side.setdefault((layer, problem.N), Candidate(layer, problem.N, source, source))
    training, validation = sides
    trained = {layer for layer, _ in training}
    shared = {layer for layer, _ in validation} & trained
    apart = [candidate for (layer, _), candidate in validation.items() if layer not in shared]
    return Selection(
        training=_choose(training.values(), options.training_count, TRAINING_LIMITS, options),
        validation=_choose(apart, options.validation_count, VALIDATION_LIMITS, options),
        held_out=tuple(sorted(held_out & families)),
        families=len(families),
        shared_layers=len(shared),
        options=options,
    )


def hold_out(families: Iterable[str], seed: int) -> frozenset[str]:
    """The families of the validation set: a quarter (rounded up) of the image families and a quarter of the
    video families, first in the order of sha256("seed:family"). Families pinned to training are excluded."""
    free = sorted(set(families) - PINNED_TO_TRAINING, key=lambda family: _hash(seed, family))
    video = [family for family in free if family.startswith("video_")]
    image = [family for family in free if not family.startswith("video_")]
    # a single family is for training
    groups = [group for group in (image, video) if len(group) > 1]
    return frozenset(family for group in groups for family in group[: math.ceil(len(group) / 4)])


def kind_of(problem: GroupedConvProblem) -> str:
    """The kind of a problem's stratum. Rare kinds are tested first."""
    if problem.ndim == 3:
        return "3D"
    if max(problem.dilation) > 1:
        return "dilated"
    if is_depthwise(problem):
        return "depthwise"
    if problem.G > 1:
        return "grouped"
    if problem.C <= 4:
        return "few inputs"
    if has_odd_channels(problem):
        return "odd channels"
    if max(problem.filter) > 3:
        return "large filter"
    if max(problem.stride) > 1:
        return "strided"
    if is_gemm_like(problem):
        return "1x1"
    return "3x3" if problem.filter == (3, 3) else "other"


def band_of(flops: int) -> int:
    """The index of the problem's GFLOP band: 0 below the first of BAND_EDGES_GFLOP."""
    return bisect.bisect_right(BAND_EDGES_GFLOP, flops / 1e9)


def allocate(total: int, shares: Mapping[T, float], capacity: Mapping[T, int]) -> dict[T, int]:
    """Integers in proportion to the shares, none above its capacity; the excess goes to the others.

    If only keys without a share have room left, they get equal parts. The result adds up to the total, or
    to the sum of the capacities if that is less.
    """
    given = dict.fromkeys(capacity, 0)
    open_ = set(capacity)
    left = min(total, sum(capacity.values()))
    while left > 0:
        weight = sum(shares.get(key, 0.0) for key in open_)
        exact = {key: left * (shares.get(key, 0.0) / weight if weight else 1 / len(open_)) for key in open_}
        full = {key for key in open_ if exact[key] >= capacity[key]}
        if full:
            given |= {key: capacity[key] for key in full}
            open_ -= full
            left -= sum(capacity[key] for key in full)
            continue
        given |= {key: int(exact[key]) for key in open_}
        left -= sum(int(part) for part in exact.values())
        by_remainder = sorted(open_, key=lambda key: (int(exact[key]) - exact[key], str(key)))
        for key in by_remainder[:left]:
            given[key] += 1
        left = 0
    return given


def _choose(
    candidates: Iterable[Candidate], total: int, limits: Limits, options: SelectionOptions
) -> tuple[Chosen, ...]:
    strata: dict[str, dict[int, list[Candidate]]] = defaultdict(lambda: defaultdict(list))
    for candidate in candidates:
        if candidate.flops <= limits.max_gflop * 1e9 and candidate.bytes(options.dtype) <= limits.max_bytes:
            strata[kind_of(candidate.layer)][band_of(candidate.flops)].append(candidate)
    bands_room = {kind: {band: len(c) for band, c in bands.items()} for kind, bands in strata.items()}
    kinds_room = {kind: sum(room.values()) for kind, room in bands_room.items()}
    chosen: list[Chosen] = []
    for kind, count in allocate(total, KIND_SHARES[options.direction], kinds_room).items():
        shares = dict(enumerate(limits.band_shares))
        for band, quota in allocate(count, shares, bands_room[kind]).items():
            for c in _take_turns(strata[kind][band], options)[:quota]:
                problem = replace(c.layer, N=c.N, direction=options.direction, dtype=options.dtype)
                chosen.append(Chosen(problem, c.source))
    return tuple(sorted(chosen, key=lambda c: _hash(options.seed, c.problem.id)))


def _take_turns(candidates: Sequence[Candidate], options: SelectionOptions) -> list[Candidate]:
    """Orders the candidates so that every prefix has as many families, and layers of each, as possible."""
    by_hash = sorted(candidates, key=lambda c: _hash(options.seed, f"{options.direction} {c.layer.id} {c.N}"))
    times_given: Counter[tuple[str, tuple[Any, ...]]] = Counter()
    turns: dict[str, list[tuple[int, int, Candidate]]] = defaultdict(list)
    for position, candidate in enumerate(by_hash):
        layer = candidate.family, candidate.layer.family
        turns[candidate.family].append((times_given[layer], position, candidate))
        times_given[layer] += 1
    ordered = []
    for family, given in turns.items():
        given.sort(key=lambda turn: turn[:2])
        pace = _SYNTHETIC_TURNS[options.direction] if family.startswith(_SYNTHETIC) else 1
        ordered += [(turn // pace, position, c) for turn, (_, position, c) in enumerate(given)]
    return [candidate for _, _, candidate in sorted(ordered, key=lambda turn: turn[:2])]


def _layer(problem: GroupedConvProblem) -> GroupedConvProblem:
    """The problem at batch 1, forward, bf16. The two sets must not share it."""
    if (problem.N, problem.direction, problem.dtype) == (1, "forward", "bf16"):
        return problem
    return replace(problem, N=1, direction="forward", dtype="bf16")


def _hash(seed: int, text: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}:{text}".encode()).digest()[:8], "big")
