"""Occupancy: the active workgroups and waves of a compute unit, from a kernel's resource use.

The formulas need no driver. gfx950 follows LLVM's remark "Occupancy" (User Guide for AMDGPU Backend; AMD's
CDNA 3 ISA document, "Wave State"; gfx950 allocates LDS in blocks of 1,280 bytes). sm_90 follows NVIDIA's
cuda_occupancy.h (compute capability 9.0). When the driver assembles a kernel, the driver's own answer is
recorded instead. The resources are in the architecture table.

Model features use a coarser formula for records without occupancy
(`tile_oracle.features.schemas.code_columns`). It does not round LDS up, does not limit workgroups, and does
not distribute the waves of a workgroup evenly over the SIMDs. Models were trained with its values, so they
keep it. Everything else uses this module; tests/arch/test_occupancy.py compares it with the vendors' figures.
"""

from __future__ import annotations

from dataclasses import dataclass

from tile_oracle.arch.specs import Workgroups
from tile_oracle.arch.table import known_archs, load_arch
from tile_oracle.errors import RuleError

_WAVES_BY_SGPRS = ((80, 10), (88, 9), (100, 8))
_LEAST_BY_SGPRS = 7


@dataclass(frozen=True)
class Occupancy:
    """Active workgroups of one compute unit, and their waves."""

    workgroups_per_cu: int
    waves_per_cu: int


def archs_with_occupancy() -> tuple[str, ...]:
    """Returns the architectures whose compute unit is in the table."""
    return tuple(name for name in known_archs() if load_arch(name).workgroups is not None)


def workgroups_of(arch: str) -> Workgroups:
    """Returns what limits the workgroups of the architecture's compute unit. Raises RuleError when the table
    does not say."""
    held = load_arch(arch).workgroups
    if held is None:
        raise RuleError(
            f"kernels/arch_specs.json does not describe the compute unit of {arch}, "
            f"only those of {', '.join(archs_with_occupancy())}"
        )
    return held


def occupancy(arch: str, threads: int, vgprs: int, lds_bytes: int, sgprs: int | None = None) -> Occupancy:
    """Occupancy of a kernel. threads: of a workgroup. vgprs: of a work-item. lds_bytes: of a workgroup.

    Waves are assigned to SIMDs in turn, so workgroups with few waves can share SIMDs. Raises RuleError for an
    architecture whose compute unit is not in the table.
    """
    held, found = workgroups_of(arch), load_arch(arch)
    hardware, simds = found.hardware, found.hardware.simds_per_cu
    waves = -(-threads // hardware.wavefront_size)
    registers = _rounded(max(1, vgprs), hardware.register_granule)
    per_simd = min(hardware.max_waves_per_cu // simds, hardware.registers_per_lane // registers)
    if sgprs is not None:
        per_simd = min(per_simd, next((n for most, n in _WAVES_BY_SGPRS if sgprs <= most), _LEAST_BY_SGPRS))
    lds = _rounded(lds_bytes + held.lds_own_bytes, held.lds_step_bytes)
    by_turns = waves < simds or held.waves_together
    workgroups = min(
        held.slots,
        per_simd * simds // waves if by_turns else per_simd // -(-waves // simds),
        max(found.lds_limit_bytes, hardware.lds_capacity_bytes) // lds if lds else held.slots,
    )
    return Occupancy(workgroups, workgroups * waves)


def _rounded(value: int, step: int) -> int:
    return -(-value // step) * step
