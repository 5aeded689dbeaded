"""What the table of architectures says: one record for each part of an entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Triple = tuple[int, int, int]

OPTIONS = ("split_image", "num_groups_to_merge", "explicit_gemm", "two_stage")
"""Kernel fields that some directions have and others do not."""


@dataclass(frozen=True)
class Hardware:
    """Figures of one device of an architecture, as the published feature schemas count them.

    0 where the device has no such thing. lds_capacity_bytes is the published figure that models were
    trained with, which need not be the limit that kernels are held to (`Arch.lds_limit_bytes`).
    registers_per_lane: vector registers that the waves of a SIMD share, for each lane (where accumulators
    are apart, of one kind); register_granule: how many are given to a wave at once.
    """

    product: str
    num_cus: int
    simds_per_cu: int
    shader_engines: int
    max_clock_mhz: int
    max_waves_per_cu: int
    wavefront_size: int
    lds_capacity_bytes: int
    l1_cache_kb: int
    l2_cache_kb: int
    l3_cache_kb: int
    num_xcd: int
    registers_per_lane: int
    register_granule: int

    @property
    def total_simds(self) -> int:
        return self.num_cus * self.simds_per_cu

    @property
    def cache_bytes(self) -> int:
        """L2 of all dies and L3 together."""
        return (self.l2_cache_kb * max(1, self.num_xcd) + self.l3_cache_kb) << 10

    def features(self) -> dict[str, int]:
        """The twelve hw_ columns of the published feature schemas, in their order."""
        return {
            "hw_num_cus": self.num_cus,
            "hw_simds_per_cu": self.simds_per_cu,
            "hw_total_simds": self.total_simds,
            "hw_shader_engines": self.shader_engines,
            "hw_max_clock_mhz": self.max_clock_mhz,
            "hw_max_waves_per_cu": self.max_waves_per_cu,
            "hw_wavefront_size": self.wavefront_size,
            "hw_lds_capacity": self.lds_capacity_bytes,
            "hw_l1_cache_kb": self.l1_cache_kb,
            "hw_l2_cache_kb": self.l2_cache_kb,
            "hw_l3_cache_kb": self.l3_cache_kb,
            "hw_num_xcd": self.num_xcd,
        }


@dataclass(frozen=True)
class Peak:
    """What no kernel exceeds: operations of a compute unit in a clock, by dtype, and 1e9 bytes of memory
    a second.
    """

    flops_a_cu_and_clock: Mapping[str, int]
    memory_gb_s: int


@dataclass(frozen=True)
class Pipeline:
    """What one pipeline demands. `staged`: the operands ("a", "b") that it keeps in local memory."""

    ops: tuple[str, ...]
    schedulers: tuple[str, ...]
    double_smem_buffer: str
    staged: tuple[str, ...]


@dataclass(frozen=True)
class Option:
    """Which directions have an option, with which values (of num_groups_to_merge), and why no others."""

    directions: tuple[str, ...]
    values: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class KernelFamily:
    """What a family of kernels demands on every architecture.

    fixed_vectors: the only vector widths, or None; max_vector_bytes: the widest global load;
    whole_loads: whether the threads of a workgroup must share a tile in whole vectors.
    """

    name: str
    pipelines: Mapping[str, Pipeline]
    epilogues: tuple[str, ...]
    options: Mapping[str, Option]
    fixed_vectors: Triple | None
    max_vector_bytes: int
    whole_loads: bool
    vectors_why: str
    paddings_may_be_off: bool


@dataclass(frozen=True)
class RegisterLimit:
    """A bound by which kernels that would spill much are known beforehand, where registers are few.

    most: of a thread, (sums + 2 x its share of a tile in flight), for kernels whose threads may have all of
    `a_thread` registers; in proportion where more threads leave them fewer. pipelines: those that hold tiles
    in registers. a_unit: registers of a compute unit.
    """

    most: int
    a_thread: int
    a_unit: int
    pipelines: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class ComputeUnit:
    """What a compute unit (multiprocessor) has to share out to workgroups.

    waves_per_simd: slots. registers: vector registers of a SIMD, in lanes of one wave. register_step: they
    are handed out in multiples of this. lds_bytes: LDS; lds_step: its multiples; lds_own_bytes: what the
    system takes of it for each workgroup. workgroups: slots. waves_together: whether the waves of a workgroup
    are counted for all SIMDs together, however they divide.
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
    waves_together: bool
