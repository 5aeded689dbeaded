"""Features of a kernel's binary: registers, LDS, spills and occupancy.

All are 0 if the binary is unknown; `code_known` distinguishes that from a true 0. The waves per SIMD follow
from the architecture's register file (kernels/arch_specs.json), which is allocated in whole granules, and are
limited by the wave slots. If a record has the number of workgroups per compute unit, that value is used:
`tile_oracle.arch.occupancy` computes it with more exact formulas.
"""

from __future__ import annotations

from tile_oracle.features.code_table import CODE_COLUMNS, PREFIX
from tile_oracle.features.formulas import formulas

_HELD = PREFIX + "workgroups_per_cu"
CODE_INPUTS: tuple[str, ...] = tuple(dict.fromkeys((*(PREFIX + name for name in CODE_COLUMNS), _HELD)))
"""The input columns; rows may lack them."""

CODE_FEATURES = formulas("""
code_known = code_vgprs > 0  # the registers of the binary are known
code_vgprs  # vector registers of a work-item
code_agprs  # accumulator registers of a work-item
code_sgprs  # scalar registers of a wave
code_lds_kib = code_lds_bytes / 1024  # LDS that the binary asks for, KiB
code_scratch_bytes  # private memory of a work-item, bytes
code_spills  # spilled registers
log2_binary_bytes = log2_of(code_binary_bytes)  # log2 of the binary's bytes
waves_per_simd = code_known * minimum(
    floor(hw_registers_per_lane / (
        ceil(maximum(code_vgprs, 1.0) / maximum(hw_register_granule, 1.0)) * maximum(hw_register_granule, 1.0)
    )),
    ratio(hw_max_waves_per_cu, hw_simds_per_cu),
)  # waves that a SIMD's registers hold
workgroups_by_registers = floor(waves_per_simd * hw_simds_per_cu / waves)
    # workgroups that a compute unit's registers hold
workgroups_by_lds = where(
    code_lds_bytes > 0, floor(ratio(hw_lds_bytes, code_lds_bytes)), workgroups_by_registers
)  # workgroups that a compute unit's LDS holds
workgroups_at_once = where(
    code_workgroups_per_cu > 0, code_workgroups_per_cu, minimum(workgroups_by_registers, workgroups_by_lds)
)  # workgroups on a compute unit at once
occupancy = minimum(ratio(workgroups_at_once * waves, hw_max_waves_per_cu), 1.0)
    # share of a compute unit's wave slots in use
log2_rounds_at_once = log2_of(ceil(cu_loads / maximum(workgroups_at_once, 1.0)))
    # log2 of the rounds of as many workgroups as fit at once
""")
"""The last columns of the second version of our own schemas, whose `waves` and `cu_loads` they read."""
