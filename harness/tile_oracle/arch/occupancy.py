"""How many workgroups of a kernel a compute unit holds at once, by what each of them takes.

By formula, since no driver has to be there: gfx950 as LLVM computes it for its remark "Occupancy" (User Guide
for AMDGPU Backend; AMD's CDNA 3 ISA document, "Wave State"; LDS is handed out in blocks of 1,280 bytes since
gfx950), sm_90 as NVIDIA's cuda_occupancy.h (compute capability 9.0). Where the driver assembles a kernel, its
own answer is recorded instead. What the formulas share out stands in the table of architectures.

Models' features have a coarser formula for records that do not say what a compute unit holds
(`tile_oracle.features.schemas.code_columns`): it does not round LDS up, has no limit on workgroups, and does
not deal the waves of a workgroup evenly to the SIMDs. Models were trained with its figures, so it stays
theirs; everything else asks here: tests/arch/test_occupancy.py holds these formulas to the vendors' figures.
"""

from __future__ import annotations

from dataclasses import dataclass

from tile_oracle.arch.specs import ComputeUnit
from tile_oracle.arch.table import known_archs, load_arch
from tile_oracle.errors import RuleError

_WAVES_BY_SGPRS = ((80, 10), (88, 9), (100, 8))
_LEAST_BY_SGPRS = 7


@dataclass(frozen=True)
class Occupancy:
    """Workgroups on one compute unit at a time, and their waves."""

    workgroups_per_cu: int
    waves_per_cu: int


def archs_with_occupancy() -> tuple[str, ...]:
    """The architectures for which the table says what a compute unit shares out."""
    return tuple(name for name in known_archs() if load_arch(name).compute_unit is not None)


def compute_unit(arch: str) -> ComputeUnit:
    """What a compute unit of the architecture shares out. Raises RuleError where the table does not say."""
    unit = load_arch(arch).compute_unit
    if unit is None:
        raise RuleError(
            f"kernels/arch_specs.json does not say how many workgroups a compute unit of {arch} holds, "
            f"only for {', '.join(archs_with_occupancy())}"
        )
    return unit


def occupancy(arch: str, threads: int, vgprs: int, lds_bytes: int, sgprs: int | None = None) -> Occupancy:
    """Of a workgroup's threads, its work-items' vector registers and its LDS in bytes.

    Waves are dealt to SIMDs in turn, so a workgroup of few waves leaves slots of some SIMDs to others. Raises
    RuleError for an architecture whose compute unit is not known.
    """
    unit = compute_unit(arch)
    waves = -(-threads // unit.lanes)
    per_simd = min(unit.waves_per_simd, unit.registers // _rounded(max(1, vgprs), unit.register_step))
    if sgprs is not None:
        per_simd = min(per_simd, next((n for most, n in _WAVES_BY_SGPRS if sgprs <= most), _LEAST_BY_SGPRS))
    lds = _rounded(lds_bytes + unit.lds_own_bytes, unit.lds_step)
    by_turns = waves < unit.simds or unit.waves_together
    workgroups = min(
        unit.workgroups,
        per_simd * unit.simds // waves if by_turns else per_simd // -(-waves // unit.simds),
        unit.lds_bytes // lds if lds else unit.workgroups,
    )
    return Occupancy(workgroups, workgroups * waves)


def _rounded(value: int, step: int) -> int:
    return -(-value // step) * step
