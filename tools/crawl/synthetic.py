"""Synthetic problems of kinds that are rare in published architectures.

Each has a reason, which becomes its source (`synthetic:<why>`). The three directions get different problems.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from tile_oracle.errors import ProblemError
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

_Row = dict[str, Any]
_BATCHES = (1, 2, 4, 8, 16, 32)


def synthetic_problems(direction: str, dtype: str, seed: int) -> Iterator[tuple[GroupedConvProblem, str]]:
    """Yields distinct (problem, reason) pairs; deterministic for given arguments."""
    seen = set()
    for why, (count, draw) in _RECIPES.items():
        rng = random.Random(f"{seed}:{direction}:{why}")
        for _ in range(count):
            row = draw(rng)
            try:
                problem = GroupedConvProblem(direction, dtype, 3 if "Di" in row else 2, **row)
            except ProblemError:
                continue  # the filter is larger than the image
            if problem not in seen:
                seen.add(problem)
                yield problem, why


def _plane(extent: int, taps: int, stride: int = 1, dilation: int = 1, width: int | None = None) -> _Row:
    """A square filter on an image, padded so that stride 1 keeps the extents."""
    pad = (taps - 1) * dilation // 2
    return {
        **{"Hi": extent, "Wi": width or extent, "Y": taps, "X": taps},
        **{"stride_h": stride, "stride_w": stride, "pad_h": pad, "pad_w": pad},
        **{"dilation_h": dilation, "dilation_w": dilation},
    }


def _dilated_head(rng: random.Random) -> _Row:
    extent = rng.choice((28, 33, 41, 57, 65, 97))
    channels = {"C": rng.choice((256, 320, 512, 728, 1024, 2048)), "K": rng.choice((64, 128, 256, 512))}
    dilation = rng.choice((2, 4, 6, 12, 18, 24))
    return {"N": rng.choice((1, 2, 4, 8)), "G": 1, **channels, **_plane(extent, 3, dilation=dilation)}


def _dilated_context(rng: random.Random) -> _Row:
    channels = rng.choice((16, 24, 32, 48, 64, 96, 128))
    groups = rng.choice((1, 1, 1, 2, 4, channels))
    plane = _plane(
        rng.choice((32, 48, 64, 96, 128)), rng.choice((3, 3, 5)), dilation=rng.choice((2, 3, 4, 8, 16))
    )
    return {"N": rng.choice((1, 2, 4, 8)), "G": groups, "C": channels, "K": channels, **plane}


def _volume(rng: random.Random) -> _Row:
    extent = rng.choice((8, 12, 16, 20, 24, 32, 40, 48, 64))
    depth = max(4, extent // rng.choice((1, 1, 2)))
    channels = (8, 16, 30, 32, 48, 60, 64, 96, 128, 256, 320)
    stride = rng.choice((1, 1, 1, 2))
    row = {
        "N": rng.choice((1, 1, 2, 4)),
        "G": 1,
        "C": rng.choice((1, 4, *channels)),
        "K": rng.choice(channels),
    }
    taps = rng.choice((1, 3, 3, 3, 5))
    deep = {"Di": depth, "Z": taps, "stride_d": stride, "pad_d": taps // 2}
    return {**row, **_plane(extent, taps, stride), **deep}


def _clip(rng: random.Random) -> _Row:
    frames, extent = rng.choice(((4, 14), (8, 7), (8, 14), (8, 28), (16, 28), (16, 56), (32, 56), (16, 112)))
    deep_taps, taps = rng.choice(((1, 3), (3, 1), (3, 3), (1, 1), (5, 1), (3, 7), (1, 7)))
    stride = rng.choice((1, 1, 2)) if taps > 1 else 1
    channels = (16, 24, 45, 64, 80, 128, 144, 192, 256, 512)
    row = {"N": rng.choice((1, 2, 4, 8)), "G": 1, "C": rng.choice((3, *channels)), "K": rng.choice(channels)}
    deep = {"Di": frames, "Z": deep_taps, "stride_d": rng.choice((1, 1, 2)), "pad_d": deep_taps // 2}
    return {**row, **_plane(extent, taps, stride), **deep}


def _grouped_clip(rng: random.Random) -> _Row:
    groups = rng.choice((2, 4, 8, 24, 54, 108, 216))
    per_group = 1 if groups > 8 else rng.choice((8, 16, 32))
    frames, extent = rng.choice(((4, 14), (8, 14), (8, 28), (16, 28), (13, 40), (16, 56)))
    row = {"N": rng.choice((1, 2, 4, 8)), "G": groups, "C": groups * per_group, "K": groups * per_group}
    deep = {"Di": frames, "Z": 3, "stride_d": 1, "pad_d": 1}
    return {**row, **_plane(extent, 3, rng.choice((1, 1, 2))), **deep}


def _grouped(rng: random.Random) -> _Row:
    groups = rng.choice((2, 4, 8, 2, 4, 8, 3, 16, 32, 64))
    channels_in, channels_out = rng.choice((4, 8, 16, 32, 64, 128)), rng.choice((4, 8, 16, 32, 64, 128))
    plane = _plane(
        rng.choice((7, 14, 20, 28, 40, 56, 80)), rng.choice((1, 3, 3, 3, 5)), rng.choice((1, 1, 2))
    )
    return {
        "N": rng.choice(_BATCHES),
        "G": groups,
        "C": groups * channels_in,
        "K": groups * channels_out,
        **plane,
    }


def _depthwise(rng: random.Random) -> _Row:
    channels = rng.choice((24, 40, 64, 88, 128, 192, 240, 384, 480, 672, 960, 1536))
    extent = rng.choice((7, 10, 14, 19, 28, 40, 56, 80, 112))
    plane = _plane(extent, rng.choice((3, 3, 5, 7, 9, 11)), rng.choice((1, 1, 2)))
    multiplier = rng.choice((1, 1, 1, 1, 2))
    return {"N": rng.choice(_BATCHES), "G": channels, "C": channels, "K": channels * multiplier, **plane}


def _asymmetric(rng: random.Random) -> _Row:
    narrow, wide = rng.choice((8, 16, 24, 32, 64)), rng.choice((512, 768, 1024, 1536, 2048))
    channels = [narrow, wide]
    rng.shuffle(channels)
    plane = _plane(rng.choice((7, 14, 28, 56)), rng.choice((1, 1, 3)), rng.choice((1, 1, 2)))
    return {"N": rng.choice(_BATCHES), "G": 1, "C": channels[0], "K": channels[1], **plane}


def _odd(rng: random.Random) -> _Row:
    few = (1, 2, 3, 5, 6, 7, 9, 11, 13, 15, 17, 19, 21, 25, 27, 31, 33, 37, 47, 51)
    many = (63, 65, 75, 91, 100, 127, 129, 150, 171, 203, 255, 257, 300, 415, 515, 1001)
    plane = _plane(
        rng.choice((9, 14, 19, 27, 33, 56, 75, 100)), rng.choice((1, 3, 3, 5)), rng.choice((1, 1, 2))
    )
    row = {
        "N": rng.choice((1, 2, 3, 5, 8, 16)),
        "G": 1,
        "C": rng.choice(few + many),
        "K": rng.choice(few + many),
    }
    return {**row, **plane}


def _large_filter(rng: random.Random) -> _Row:
    tall, wide = rng.choice(((5, 5), (7, 7), (9, 9), (11, 11), (1, 7), (7, 1), (1, 15), (15, 1), (3, 9)))
    extent, stride = rng.choice((14, 17, 28, 35, 56, 112)), rng.choice((1, 1, 1, 2))
    channels = (16, 32, 48, 64, 96, 128, 192)
    row = {"N": rng.choice((1, 2, 4, 8)), "G": 1, "C": rng.choice(channels), "K": rng.choice(channels)}
    plane = _plane(extent, tall, stride)
    return {**row, **plane, "X": wide, "pad_w": wide // 2}


def _small_image(rng: random.Random) -> _Row:
    channels = (128, 256, 384, 512, 1024)
    row = {
        "N": rng.choice((8, 16, 32, 64, 128, 256)),
        "G": 1,
        "C": rng.choice(channels),
        "K": rng.choice(channels),
    }
    return {**row, **_plane(rng.choice((2, 3, 4, 5, 6, 7)), rng.choice((1, 3, 3)))}


def _large_image(rng: random.Random) -> _Row:
    extent = rng.choice((160, 224, 256, 320, 384, 512, 640))
    channels = (3, 8, 12, 16, 24, 32, 64)
    row = {"N": rng.choice((1, 1, 2, 4)), "G": 1, "C": rng.choice(channels), "K": rng.choice(channels[1:])}
    return {
        **row,
        **_plane(extent, rng.choice((1, 3, 3)), rng.choice((1, 2)), width=extent * rng.choice((1, 1, 2))),
    }


def _strided(rng: random.Random) -> _Row:
    channels = (32, 64, 96, 128, 160, 256, 320, 512)
    tall, wide = rng.choice(((2, 2), (2, 2), (2, 1), (1, 2), (3, 3), (4, 4)))
    row = {"N": rng.choice(_BATCHES), "G": 1, "C": rng.choice(channels), "K": rng.choice(channels)}
    plane = _plane(rng.choice((14, 28, 32, 56, 64, 112)), rng.choice((1, 2, 3, 3, 4, 5)))
    return {**row, **plane, "stride_h": tall, "stride_w": wide}


_RECIPES: dict[str, tuple[int, Callable[[random.Random], _Row]]] = {
    "dilated segmentation head": (120, _dilated_head),
    "dilated context": (120, _dilated_context),
    "3D volume": (160, _volume),
    "3D video clip": (160, _clip),
    "3D grouped": (100, _grouped_clip),
    "grouped": (200, _grouped),
    "depthwise": (120, _depthwise),
    "asymmetric channels": (120, _asymmetric),
    "odd channels": (150, _odd),
    "large filter": (100, _large_filter),
    "small image, large batch": (80, _small_image),
    "large image": (80, _large_image),
    "stride": (120, _strided),
}
"""Reason -> (number of draws, function that draws one)."""
