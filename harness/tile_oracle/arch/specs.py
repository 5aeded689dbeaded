"""The entries of the architecture table: one type for each part of an entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Triple = tuple[Positive, Positive, Positive]


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the table, whose keys are its fields."""


class Hardware(Entry, frozen=True):
    """Hardware figures of one device of an architecture, counted as in the published feature schemas.

    0 where the device has no such unit. lds_capacity_bytes: the published figure that models were trained
    with. It can differ from the limit for kernels (`Arch.lds_limit_bytes`).
    registers_per_lane: vector registers per lane that the waves of a SIMD share (of one kind, where
    accumulators are separate). register_granule: allocation granularity of a wave's registers.
    """

    product: str
    num_cus: Count
    simds_per_cu: Count
    shader_engines: Count
    max_clock_mhz: Count
    max_waves_per_cu: Count
    wavefront_size: Count
    lds_capacity_bytes: Count
    l1_cache_kb: Count
    l2_cache_kb: Count
    l3_cache_kb: Count
    num_xcd: Count
    registers_per_lane: Count
    register_granule: Count

    @property
    def total_simds(self) -> int:
        return self.num_cus * self.simds_per_cu

    @property
    def cache_bytes(self) -> int:
        """Total size of L2 (of all dies) and L3."""
        return (self.l2_cache_kb * max(1, self.num_xcd) + self.l3_cache_kb) << 10

    def features(self) -> dict[str, int]:
        """Returns the twelve hw_ columns of the published feature schemas, in their order."""
        return {f"hw_{name.removesuffix('_bytes')}": getattr(self, name) for name in _FEATURES}


_FEATURES = (
    *("num_cus", "simds_per_cu", "total_simds", "shader_engines", "max_clock_mhz", "max_waves_per_cu"),
    *("wavefront_size", "lds_capacity_bytes", "l1_cache_kb", "l2_cache_kb", "l3_cache_kb", "num_xcd"),
)


class Peak(Entry, frozen=True):
    """Peak rates: operations per compute unit and clock by dtype, and memory bandwidth in 1e9 bytes per
    second."""

    flops_a_cu_and_clock: Mapping[str, Positive]
    memory_gb_s: Positive
    why: str = ""


class Pipeline(Entry, frozen=True):
    """Requirements of one pipeline. staged: the operands ("a", "b") that it keeps in LDS. paddings: whether
    all three must be on, or off. least_waves, most_waves: of a workgroup; 0 is no limit."""

    ops: tuple[str, ...]
    schedulers: tuple[str, ...]
    double_smem_buffer: Literal["optional", "required", "refused"]
    staged: tuple[Literal["a", "b"], ...]
    paddings: Literal["", "on", "off"] = ""
    least_waves: Count = 0
    most_waves: Count = 0


class Option(Entry, frozen=True):
    """The directions that have an option, its values (for num_groups_to_merge), and why no others."""

    directions: tuple[str, ...]
    why: str
    values: tuple[Positive, ...] = ()


class KernelFamily(Entry, frozen=True):
    """Requirements of a kernel family on every architecture.

    fixed_vectors: the only allowed vector widths, or None. max_vector_bytes: the widest global load.
    whole_loads: whether the threads of a workgroup must divide a tile into whole vectors.
    """

    name: str
    pipelines: Mapping[str, Pipeline]
    epilogues: tuple[str, ...]
    options: Mapping[str, Option]
    vectors_why: str
    paddings_may_be_off: bool
    fixed_vectors: Triple | None = None
    max_vector_bytes: Count = 0
    whole_loads: bool = False
    about: str = ""


class RegisterLimit(Entry, frozen=True):
    """A bound that predicts which kernels would spill heavily, for architectures with few registers.

    most: largest value of (accumulators + 2 x share of a prefetched tile) per thread, for kernels whose
    threads can use all `a_thread` registers. It is reduced in proportion when more threads leave fewer
    registers each.
    pipelines: the pipelines that hold tiles in registers. a_unit: registers of a compute unit.
    """

    most: Positive
    a_thread: Positive
    a_unit: Positive
    pipelines: tuple[str, ...]
    why: str


class Workgroups(Entry, frozen=True):
    """How a compute unit holds workgroups.

    slots: most at once. lds_step_bytes: LDS is allocated in multiples of it. lds_own_bytes: what each takes
    besides its own. waves_together: whether a workgroup's waves share the unit's registers. why: the source.
    """

    slots: Positive
    lds_step_bytes: Positive
    lds_own_bytes: Count
    waves_together: bool
    why: str
