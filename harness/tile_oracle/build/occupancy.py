"""How many workgroups of a kernel a compute unit holds at once, by what each of them takes.

By formula, since no driver has to be there: gfx950 as LLVM computes it for its remark "Occupancy" (User Guide
for AMDGPU Backend; AMD's CDNA 3 ISA document, "Wave State"; LDS is handed out in blocks of 1,280 bytes since
gfx950), sm_90 as NVIDIA's cuda_occupancy.h (compute capability 9.0). Where the driver assembles a kernel, its
own answer is recorded instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class ComputeUnit:
    """What a compute unit (multiprocessor) has to share out.

    waves_per_simd: slots. registers: vector registers of a SIMD, in lanes of one wave. register_step: they
    are handed out in multiples of this. lds_bytes: LDS; lds_step: its multiples; lds_own_bytes: what the
    system takes of it for each workgroup. workgroups: slots.
    """

    lanes: int
    simds: int
    waves_per_simd: int
    registers: int
    register_step: int
    lds_bytes: int
    lds_step: int
    lds_own_bytes: int
    workgroups: int


COMPUTE_UNITS: Mapping[str, ComputeUnit] = MappingProxyType(
    {
        "gfx950": ComputeUnit(64, 4, 8, 512, 8, 163_840, 1_280, 0, 16),
        "sm_90": ComputeUnit(32, 4, 16, 512, 8, 233_472, 128, 1_024, 32),
    }
)

_WAVES_BY_SGPRS = ((80, 10), (88, 9), (100, 8))
_LEAST_BY_SGPRS = 7


@dataclass(frozen=True)
class Occupancy:
    """Workgroups on one compute unit at a time, and their waves."""

    workgroups_per_cu: int
    waves_per_cu: int


def occupancy(arch: str, threads: int, vgprs: int, lds_bytes: int, sgprs: int | None = None) -> Occupancy:
    """Of a workgroup's threads, its work-items' vector registers and its LDS in bytes.

    Waves are dealt to SIMDs in turn, so a workgroup of few waves leaves slots of some SIMDs to others. Raises
    KeyError for an architecture that COMPUTE_UNITS does not know.
    """
    unit = COMPUTE_UNITS[arch]
    waves = -(-threads // unit.lanes)
    per_simd = min(unit.waves_per_simd, unit.registers // _rounded(max(1, vgprs), unit.register_step))
    if sgprs is not None:
        per_simd = min(per_simd, next((n for most, n in _WAVES_BY_SGPRS if sgprs <= most), _LEAST_BY_SGPRS))
    lds = _rounded(lds_bytes + unit.lds_own_bytes, unit.lds_step)
    # NVIDIA's own formula counts the warps of all schedulers together, however they divide.
    by_turns = waves < unit.simds or arch.startswith("sm_")
    workgroups = min(
        unit.workgroups,
        per_simd * unit.simds // waves if by_turns else per_simd // -(-waves // unit.simds),
        unit.lds_bytes // lds if lds else unit.workgroups,
    )
    return Occupancy(workgroups, workgroups * waves)


def _rounded(value: int, step: int) -> int:
    return -(-value // step) * step
