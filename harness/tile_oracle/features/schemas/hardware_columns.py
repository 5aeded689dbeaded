"""The twelve hardware columns at the end of every published schema."""

from __future__ import annotations

from tile_oracle.features.feature_table import Feature
from tile_oracle.features.formulas import formulas

HARDWARE_FEATURES: tuple[Feature, ...] = formulas("""
hw_num_cus  # compute units
hw_simds_per_cu  # SIMDs in a compute unit
hw_total_simds  # SIMDs in all compute units
hw_shader_engines  # shader engines
hw_max_clock_mhz  # highest clock, MHz
hw_max_waves_per_cu  # waves that a compute unit holds
hw_wavefront_size  # lanes of a wave
hw_lds_capacity  # LDS by the published count, bytes
hw_l1_cache_kb  # vector L1 cache of a compute unit, KiB
hw_l2_cache_kb  # L2 cache of a die, KiB
hw_l3_cache_kb  # last-level cache, KiB
hw_num_xcd  # compute dies
""")
