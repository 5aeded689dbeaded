"""The twelve hardware columns at the end of every published schema."""

from __future__ import annotations

from tile_oracle.features.feature_table import Feature, given

HARDWARE_FEATURES: tuple[Feature, ...] = (
    given("hw_num_cus", "compute units"),
    given("hw_simds_per_cu", "SIMDs in a compute unit"),
    given("hw_total_simds", "SIMDs in all compute units"),
    given("hw_shader_engines", "shader engines"),
    given("hw_max_clock_mhz", "highest clock, MHz"),
    given("hw_max_waves_per_cu", "waves that a compute unit holds"),
    given("hw_wavefront_size", "lanes of a wave"),
    given("hw_lds_capacity", "LDS by the published count, bytes"),
    given("hw_l1_cache_kb", "vector L1 cache of a compute unit, KiB"),
    given("hw_l2_cache_kb", "L2 cache of a die, KiB"),
    given("hw_l3_cache_kb", "last-level cache, KiB"),
    given("hw_num_xcd", "compute dies"),
)
