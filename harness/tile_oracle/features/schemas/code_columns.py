"""Features of a kernel's binary: registers, LDS, spills and occupancy.

All are 0 if the binary is unknown; `code_known` distinguishes that from a true 0. The waves per SIMD follow
from the architecture's register file (kernels/arch_specs.json), which is allocated in whole granules, and are
limited by the wave slots. If a record has the number of workgroups per compute unit, that value is used:
`tile_oracle.arch.occupancy` computes it with more exact formulas.
"""

from __future__ import annotations

import numpy as np

from tile_oracle.features.code_table import CODE_COLUMNS, PREFIX
from tile_oracle.features.feature_table import Array, Feature, FeatureTable, flag, given, log2_of, ratio

_HELD = PREFIX + "workgroups_per_cu"
CODE_INPUTS: tuple[str, ...] = tuple(dict.fromkeys((*(PREFIX + name for name in CODE_COLUMNS), _HELD)))
"""The input columns; rows may lack them."""


def _waves_per_simd(t: FeatureTable) -> Array:
    granule = np.maximum(t.hw_register_granule, 1.0)
    taken = np.ceil(np.maximum(t.code_vgprs, 1.0) / granule) * granule
    slots = ratio(t.hw_max_waves_per_cu, t.hw_simds_per_cu)
    waves: Array = t.code_known * np.minimum(np.floor(t.hw_registers_per_lane / taken), slots)
    return waves


def _by_lds(t: FeatureTable) -> Array:
    """Workgroups per compute unit that fit in the LDS; limited by waves only if the kernel uses no LDS."""
    fits = np.floor(ratio(t.hw_lds_bytes, t.code_lds_bytes))
    return np.where(t.code_lds_bytes > 0, fits, t.workgroups_by_registers)


CODE_FEATURES: tuple[Feature, ...] = (
    Feature("code_known", lambda t: flag(t.code_vgprs > 0), "the registers of the binary are known"),
    given("code_vgprs", "vector registers of a work-item"),
    given("code_agprs", "accumulator registers of a work-item"),
    given("code_sgprs", "scalar registers of a wave"),
    Feature("code_lds_kib", lambda t: t.code_lds_bytes / 1024, "LDS that the binary asks for, KiB"),
    given("code_scratch_bytes", "private memory of a work-item, bytes"),
    given("code_spills", "spilled registers"),
    Feature("log2_binary_bytes", lambda t: log2_of(t.code_binary_bytes), "log2 of the binary's bytes"),
    Feature("waves_per_simd", _waves_per_simd, "waves that a SIMD's registers hold"),
    Feature(
        "workgroups_by_registers",
        lambda t: np.floor(t.waves_per_simd * t.hw_simds_per_cu / t.waves),
        "workgroups that a compute unit's registers hold",
    ),
    Feature("workgroups_by_lds", _by_lds, "workgroups that a compute unit's LDS holds"),
    Feature(
        "workgroups_at_once",
        lambda t: np.where(
            t[_HELD] > 0, t[_HELD], np.minimum(t.workgroups_by_registers, t.workgroups_by_lds)
        ),
        "workgroups on a compute unit at once",
    ),
    Feature(
        "occupancy",
        lambda t: np.minimum(ratio(t.workgroups_at_once * t.waves, t.hw_max_waves_per_cu), 1.0),
        "share of a compute unit's wave slots in use",
    ),
    Feature(
        "log2_rounds_at_once",
        lambda t: log2_of(np.ceil(t.cu_loads / np.maximum(t.workgroups_at_once, 1.0))),
        "log2 of the rounds of as many workgroups as fit at once",
    ),
)
"""The last columns of the second version of our own schemas, whose `waves` and `cu_loads` they read."""
