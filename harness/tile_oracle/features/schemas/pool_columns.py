"""Columns that our schemas of pools of several sources share: configurations from names, and rounds over
the compute units.

A tile whose size is unknown, as of some algorithms of libraries, counts as one of 128 x 128 x 64.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tile_oracle.features.feature_table import Feature, FeatureSchema, Formula
from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas.code_columns import CODE_INPUTS
from tile_oracle.features.schemas.configuration import CONFIGURATION, configuration


def _configured(column: str) -> Formula:
    return lambda t: t.number_of("kernel", lambda name: configuration(name)[column])


CONFIGURED: tuple[Feature, ...] = tuple(
    Feature(f"kernel_{name}", _configured(name), meaning) for name, meaning in CONFIGURATION.items()
)
"""The configuration itself."""


TILES = formulas("""
tile_m = where(kernel_tile_m > 0, kernel_tile_m, 128)  # rows of a tile
tile_n = where(kernel_tile_n > 0, kernel_tile_n, 128)  # columns of a tile
tile_k = where(kernel_tile_k > 0, kernel_tile_k, 64)  # depth of a step
parts = maximum(kernel_parts, 1.0)  # parts of the depth
cus = maximum(hw_num_cus, 1.0)  # compute units, at least 1
""")
"""Intermediates for formulas with tiles."""

ROUNDS: tuple[Feature, ...] = formulas("""
log2_tiles = log2_of(tiles)  # log2 of the workgroups' tiles
log2_cu_loads = log2(tiles / cus)  # log2 of the tiles per compute unit
log2_rounds = log2_of(ceil_div(tiles, cus))  # log2 of the rounds of tiles
tail = tiles / cus / ceil_div(tiles, cus)  # utilization of the rounds, 0 to 1
""")
"""The distribution of `tiles` over the compute units."""


def tiles_of_product(n: str, k: str) -> tuple[Feature, ...]:
    """Returns intermediates: the tiles of a product with M rows. n, k: its width and depth."""
    return formulas(f"""
tiles_m = ceil_div(M, tile_m)  # tiles along M
tiles_n = ceil_div({n}, tile_n)  # tiles along {n}
tiles_k = ceil_div({k}, tile_k * parts)  # steps along {k} of one part
""")


SERIAL_STEPS: tuple[Feature, ...] = formulas("""
rounds = ceil_div(tiles, cus)  # rounds of tiles
steps = rounds * tiles_k  # serial K steps
""")
"""Intermediates: what `tiles` cost."""


def fills_of_product(n: str, k: str) -> tuple[Feature, ...]:
    """Returns the useful shares of `tiles_of_product`."""
    return formulas(f"""
fill_m = M / (tiles_m * tile_m)  # useful share of the tiles along M
fill_n = {n} / (tiles_n * tile_n)  # useful share of the tiles along {n}
fill_k = {k} / (tiles_k * tile_k * parts)  # useful share of the K steps
""")


PRODUCT_STEPS: tuple[Feature, ...] = formulas("""
log2_tiles_m = log2_of(tiles_m)  # log2 of the tiles along M
log2_tiles_n = log2_of(tiles_n)  # log2 of the tiles along N
log2_tiles_k = log2_of(tiles_k)  # log2 of the K steps of a tile
log2_steps = log2_of(steps)  # log2 of the serial K steps
""")
"""The sizes of `tiles_of_product`, and the `steps` of a compute unit."""

CU_TRAFFIC, INTENSITY = formulas("""
log2_cu_traffic = log2(steps * (tile_m + tile_n) * tile_k * element_bytes)
    # log2 of the bytes one compute unit loads
intensity = flops / bytes_total  # operations per byte
""")
"""Of the `steps` of a product, and of its problem."""

BINARY = REGISTERS, _ = formulas("""
code_registers = code_vgprs  # vector registers of a work-item, 0 if unknown
code_lds_kib = code_lds_bytes / 1024  # LDS of the binary, KiB, 0 if unknown
""")
"""Metrics of a kernel's binary."""

AT_ONCE = formulas("""
at_once = maximum(where(code_workgroups_per_cu > 0, code_workgroups_per_cu, room), 1)
    # workgroups that a compute unit runs at once
rounds_at_once = ceil_div(tiles, cus * at_once)  # rounds of as many tiles as run at once
""")
"""Intermediates: the rounds of workgroups by what their binary leaves room for, or `room`, an intermediate,
where it is unknown."""

OCCUPANCY = formulas("""
code_resident = code_workgroups_per_cu  # workgroups that a compute unit runs at once, 0 if unknown
code_spilled = code_spills  # spilled registers, 0 if unknown
code_log2_rounds = log2_of(rounds_at_once)  # log2 of the rounds of as many tiles as run at once
code_fill = tiles / (cus * at_once * rounds_at_once)  # utilization of these rounds, 0 to 1
code_log2_work = log2_of(rounds_at_once * at_once * multiplications)  # log2 of their multiplications
""")
"""What `AT_ONCE` costs. multiplications: an intermediate, those of one tile."""

SWAPPED = Feature(
    "swapped",
    lambda t: t.word_is("kernel", lambda name: "SWAPPED=True" in name),
    "1 if the transpose is computed",
)


def codes(**words: Iterable[str]) -> dict[str, dict[str, float]]:
    """Returns the numbers of text columns: each word's place among those of its column."""
    return {name: {word: float(place) for place, word in enumerate(known)} for name, known in words.items()}


def logarithms(names: Iterable[str]) -> tuple[Feature, ...]:
    """Returns the columns log2_NAME of these columns."""
    return formulas("\n".join(f"log2_{name} = log2_of({name})  # log2 of {name}" for name in names))


def pool_schema(
    name: str,
    op: str,
    features: Sequence[Feature],
    intermediates: Sequence[Feature],
    words: Mapping[str, Mapping[str, float]],
) -> FeatureSchema:
    """Returns a schema that reads configurations from names, and figures of binaries where they are known."""
    return FeatureSchema(
        name, op, tuple(features), tuple(intermediates), words, optional=CODE_INPUTS, from_names=True
    )


def product_pool(
    op: str,
    problem: Sequence[Feature],
    columns: Sequence[str],
    words: Mapping[str, Mapping[str, float]],
    *,
    logs: Sequence[str],
    tiles: str,
    element_bytes: str = "2",
    sizes: tuple[Feature, ...] = tiles_of_product("N", "K"),
    fills: tuple[Feature, ...] = fills_of_product("N", "K"),
) -> FeatureSchema:
    """Returns the schema of pools of an operation that multiplies matrices.

    problem: features of its problems, of which `columns` are columns and `logs` are so as logarithms; others
    may read the rest. tiles: their number. element_bytes: of A and B. sizes, fills: `tiles_of_product`,
    `fills_of_product`.
    """
    traffic = f"""
log2_compute = log2_of(steps * tile_m * tile_n * tile_k)  # log2 of a compute unit's multiplications
log2_cu_traffic = log2_of({element_bytes} * steps * (tile_m + tile_n) * tile_k)
    # log2 of the bytes one compute unit loads
log2_buffers = log2_of({element_bytes} * kernel_stages * (tile_m + tile_n) * tile_k)  # log2 of all buffers
log2_of_round = log2_of(K * (round_rows * tile_m + round_columns * tile_n))  # log2 of a round's elements
log2_reread = log2_of(tiles / in_round * K * (round_rows * tile_m + round_columns * tile_n))
    # log2 of the elements that all rounds read
split_share = where(parts > 1, 4 * parts * flops / K, 0) / bytes_total
    # bytes of the parts' sums over those of the matrices
"""
    return pool_schema(
        f"{op}_pool_1",
        op,
        (
            *logarithms(logs),
            *(one for one in problem if one.name in columns),
            *(*CONFIGURED, *ROUNDS, *PRODUCT_STEPS, *formulas(traffic), *fills, SWAPPED, *BINARY, *OCCUPANCY),
        ),
        (
            *(*TILES, *(one for one in problem if one.name in logs or one.name not in columns), *sizes),
            *formulas(f"tiles = {tiles}  # workgroups' tiles"),
            *SERIAL_STEPS,
            *formulas("room = 0  # workgroups at once of unknown binaries"),
            *AT_ONCE,
            *formulas("""
multiplications = tiles_k * tile_m * tile_n * tile_k  # of a tile
in_round = minimum(tiles, cus * at_once)  # tiles of a round
round_rows = minimum(minimum(maximum(kernel_group, 1), tiles_m), in_round)  # rows of tiles of a round
round_columns = ceil(in_round / round_rows)  # columns of tiles of a round
"""),
        ),
        words,
    )
