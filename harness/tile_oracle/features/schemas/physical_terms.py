"""Terms of a kernel's time, which a physical model adds up with coefficients >= 0.

The terms follow a workgroup: it starts, makes `tiles_k` steps and writes its tile. A compute unit runs
`rounds` of them, several at a time if its registers and LDS allow it (then time grows only with every second,
third or fourth round). Tiles that share an operand load it again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tile_oracle.features.feature_table import Array, Feature, FeatureSchema, FeatureTable, flag
from tile_oracle.features.schemas.grouped_conv_own import GROUPED_CONV_OWN as OWN


def _further_rounds(at_once: int) -> Callable[[FeatureTable], Array]:
    return lambda t: (np.ceil(t.cu_loads / at_once) - 1) * t.tiles_k


_TERMS = (
    Feature("start", lambda t: np.ones(t.length), "launch, first loads, last store"),
    Feature("first_steps", lambda t: t.tiles_k, "K steps of one tile"),
    Feature("further_rounds", lambda t: t.rounds - 1, "starts of further rounds"),
    Feature("further_steps", _further_rounds(1), "K steps of further rounds, one workgroup at a time"),
    Feature("further_steps_2", _further_rounds(2), "the same, two workgroups at a time"),
    Feature("further_steps_3", _further_rounds(3), "the same, three"),
    Feature("further_steps_4", _further_rounds(4), "the same, four"),
    Feature(
        "crowd_steps", lambda t: np.maximum(t.cu_loads - 1, 0) * t.tiles_k, "steps beyond one tile per unit"
    ),
    Feature("shared_steps", lambda t: t.cu_loads * t.tiles_k, "steps that share caches and memory"),
    Feature("written_mb", lambda t: t.bytes_written / 1e6, "result, MB"),
    Feature(
        "reload_gb",
        lambda t: t.G * t.tiles_m * t.Ng * t.Kg * t.element_bytes / 1e9,
        "second operand over all tiles",
    ),
    Feature(
        "partial_step",
        lambda t: flag(np.mod(t.Kg, t.tile_k) > 0) * t.rounds,
        "last K steps that are not full",
    ),
)

GROUPED_CONV_TERMS = FeatureSchema(
    "grouped_conv_terms_1",
    OWN.op,
    _TERMS,
    (*OWN.intermediates, *OWN.features),
    OWN.words,
    OWN.categorical,
)
"""Terms of a grouped convolution's time."""


def is_step_term(name: str) -> bool:
    """Returns whether a term counts K steps. The time of one step depends on the tile's volume."""
    return name.endswith("steps") or "_steps_" in name
