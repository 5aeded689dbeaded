"""The entries of the architecture table: one dataclass for each part of an entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Triple = tuple[int, int, int]

OPTIONS = ("split_image", "num_groups_to_merge", "explicit_gemm", "two_stage")
"""Kernel fields that only some directions have."""


@dataclass(frozen=True)
class Hardware:
    """Hardware figures of one device of an architecture, counted as in the published feature schemas.

    0 where the device has no such unit. lds_capacity_bytes: the published figure that models were trained
    with. It can differ from the limit for kernels (`Arch.lds_limit_bytes`).
    registers_per_lane: vector registers per lane that the waves of a SIMD share (of one kind, where
    accumulators are separate). register_granule: allocation granularity of a wave's registers.
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
        """Total size of L2 (of all dies) and L3."""
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
    """Peak rates: operations per compute unit and clock by dtype, and memory bandwidth in 1e9 bytes per
    second."""

    flops_a_cu_and_clock: Mapping[str, int]
    memory_gb_s: int


@dataclass(frozen=True)
class Pipeline:
    """Requirements of one pipeline. staged: the operands ("a", "b") that it keeps in LDS."""

    ops: tuple[str, ...]
    schedulers: tuple[str, ...]
    double_smem_buffer: str
    staged: tuple[str, ...]


@dataclass(frozen=True)
class Option:
    """The directions that have an option, its values (for num_groups_to_merge), and why no others."""

    directions: tuple[str, ...]
    values: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class KernelFamily:
    """Requirements of a kernel family on every architecture.

    fixed_vectors: the only allowed vector widths, or None. max_vector_bytes: the widest global load.
    whole_loads: whether the threads of a workgroup must divide a tile into whole vectors.
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
    """A bound that predicts which kernels would spill heavily, for architectures with few registers.

    most: largest value of (accumulators + 2 x share of a prefetched tile) per thread, for kernels whose
    threads can use all `a_thread` registers. It is reduced in proportion when more threads leave fewer
    registers each.
    pipelines: the pipelines that hold tiles in registers. a_unit: registers of a compute unit.
    """

    most: int
    a_thread: int
    a_unit: int
    pipelines: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class ComputeUnit:
    """The resources of a compute unit (multiprocessor) that its workgroups share.

    waves_per_simd: wave slots. registers: vector registers of a SIMD per lane. register_step: their
    allocation granularity. lds_bytes: LDS. lds_step: its allocation granularity. lds_own_bytes: LDS that the
    system reserves for each workgroup. workgroups: workgroup slots. waves_together: whether the limit on
    waves applies to all SIMDs together, however a workgroup's waves are distributed.
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
