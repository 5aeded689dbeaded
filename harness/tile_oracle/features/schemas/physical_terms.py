"""Terms of a kernel's time, which a physical model adds up with coefficients >= 0.

The terms follow a workgroup: it starts, makes `tiles_k` steps and writes its tile. A compute unit runs
`rounds` of them, several at a time if its registers and LDS allow it (then time grows only with every second,
third or fourth round). Tiles that share an operand load it again.
"""

from __future__ import annotations

from tile_oracle.features.feature_table import FeatureSchema
from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas.grouped_conv_own import GROUPED_CONV_OWN as OWN

_TERMS = formulas("""
start = 1  # launch, first loads, last store
first_steps = tiles_k  # K steps of one tile
further_rounds = rounds - 1  # starts of further rounds
further_steps = (ceil(cu_loads / 1) - 1) * tiles_k  # K steps of further rounds, one workgroup at a time
further_steps_2 = (ceil(cu_loads / 2) - 1) * tiles_k  # the same, two workgroups at a time
further_steps_3 = (ceil(cu_loads / 3) - 1) * tiles_k  # the same, three
further_steps_4 = (ceil(cu_loads / 4) - 1) * tiles_k  # the same, four
crowd_steps = maximum(cu_loads - 1, 0) * tiles_k  # steps beyond one tile per unit
shared_steps = cu_loads * tiles_k  # steps that share caches and memory
written_mb = bytes_written / 1e6  # result, MB
reload_gb = G * tiles_m * Ng * Kg * element_bytes / 1e9  # second operand over all tiles
partial_step = (mod(Kg, tile_k) > 0) * rounds  # last K steps that are not full
""")

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
