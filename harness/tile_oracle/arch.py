"""What an architecture allows a kernel to be, and in one sentence why it refuses one.

The facts are data, kernels/arch_specs.json; this is the one module that reads it. An architecture
belongs to a kernel family (`ck_tile`, `cpu`), which says what its pipelines, epilogues and options
demand everywhere; the architecture itself adds waves, warp tiles, local memory and hardware figures.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path

from tile_oracle.data_files import data_folder
from tile_oracle.errors import RuleError
from tile_oracle.json_tree import JsonTree, shown
from tile_oracle.kernel import EPILOGUES, SCHEDULERS, Kernel, TiledKernel
from tile_oracle.kernel.fields import triple
from tile_oracle.operation import operation_named, operation_names
from tile_oracle.operation.grouped_conv.problem import DIRECTIONS, DTYPES
from tile_oracle.problem import Problem, kind_text

Triple = tuple[int, int, int]

OPTIONS = ("split_image", "num_groups_to_merge", "explicit_gemm", "two_stage")
"""Kernel fields that some directions have and others do not."""

_BUFFERING = ("optional", "required", "refused")
_LISTED = 8


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


@dataclass(frozen=True, eq=False)
class Arch:
    """One architecture. `refusals(kernel)` and `problem_refusal(kernel, problem)` are its judgement."""

    name: str
    family: str
    hardware: Hardware
    kernels: KernelFamily
    element_bytes: Mapping[str, float]
    waves: tuple[Triple, ...]
    warp_tiles: Mapping[str, tuple[Triple, ...]]
    lds_limit_bytes: int
    lds_element_bytes: int | None
    lds_why: str
    pipelines_refused: Mapping[str, str]
    register_limit: RegisterLimit | None = None
    peak: Peak | None = None
    preshuffle_warp_tiles: Mapping[str, tuple[Triple, ...]] = field(default_factory=dict)
    most_threads: int = 1024
    listed_only: bool = True
    """Whether convolutions are of our own family: waves and warp tiles of the lists, and whole loads."""

    @cached_property
    def unlisted(self) -> Arch:
        """The same for kernels of a library, which says itself what waves, warp tiles and loads it has."""
        return replace(self, listed_only=False)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The data types (of convolutions) that the architecture multiplies, in the order of DTYPES."""
        return tuple(dtype for dtype in DTYPES if dtype in self.warp_tiles)

    @property
    def pipelines(self) -> tuple[str, ...]:
        """The pipelines of convolutions that the architecture can run."""
        return tuple(
            name
            for name, pipeline in self.kernels.pipelines.items()
            if "grouped_conv" in pipeline.ops and name not in self.pipelines_refused
        )

    def double_smem_buffer_required(self, pipeline: str) -> bool:
        """Whether the pipeline exists with two buffers only (False for a pipeline that is not known)."""
        demands = self.kernels.pipelines.get(pipeline)
        return demands is not None and demands.double_smem_buffer == "required"

    def workgroup_threads(self, kernel: TiledKernel) -> int:
        """Threads of a workgroup: waves x wavefront size."""
        return math.prod(kernel.waves) * self.hardware.wavefront_size

    def lds_bytes(self, kernel: TiledKernel) -> int:
        """Local memory of a workgroup in bytes: (tile_m + tile_n)·tile_k elements, twice if double buffered.

        Counts the operands that the pipeline stages. (The published feature lds_usage_estimate is another
        formula, and a feature only.) On cpu: the packed panels.
        """
        pipeline = self.kernels.pipelines.get(kernel.pipeline)
        staged = pipeline.staged if pipeline is not None else ("a", "b")
        tile_m, tile_n, tile_k = kernel.tile
        rows = tile_m * ("a" in staged) + tile_n * ("b" in staged)
        element = self.lds_element_bytes or self.element_bytes[kernel.dtype]
        return int(rows * tile_k * element) * (1 + self.double_buffered(kernel))

    def double_buffered(self, kernel: TiledKernel) -> bool:
        """Whether tiles have two buffers in local memory: as the kernel says, else as its pipeline does."""
        said = kernel.double_smem_buffer
        return self.double_smem_buffer_required(kernel.pipeline) if said is None else said

    def widest_vectors(self, dtype: str, tile: Triple, waves: Triple) -> Triple:
        """The widest vector widths (elements of A, B, C) that a tile of these waves can be moved with."""
        family = self.kernels
        if family.fixed_vectors is not None:
            return family.fixed_vectors
        widest = int(family.max_vector_bytes / self.element_bytes[dtype])
        threads = waves[0] * waves[1] * waves[2] * self.hardware.wavefront_size

        def whole(elements: int) -> int:
            width = widest
            while family.whole_loads and width > 1 and elements % (threads * width):
                width //= 2
            return width

        return (whole(tile[0] * tile[2]), whole(tile[1] * tile[2]), widest)

    # ---- kernels ----------------------------------------------------------------------------

    def refusal(self, kernel: Kernel) -> str | None:
        """Why the architecture does not allow the kernel (the first reason), or None when it does."""
        return next(operation_named(kernel.op).refusals(self, kernel), None)

    def refusals(self, kernel: Kernel) -> tuple[str, ...]:
        """All reasons against the kernel; empty when it is allowed."""
        return tuple(operation_named(kernel.op).refusals(self, kernel))

    def pipeline_refusals(self, kernel: TiledKernel, offered: Iterable[str]) -> Iterator[str]:
        """What stands against pipeline and scheduler of any operation; `offered`: its pipelines."""
        name = kernel.pipeline
        pipeline = self.kernels.pipelines.get(name)
        if pipeline is None:
            yield f"pipeline: {self.name} has no {name}, only {', '.join(offered)}"
            return
        if kernel.op not in pipeline.ops:
            yield f"pipeline: {name} is for {' and '.join(pipeline.ops)}, not for {kernel.op}"
        if name in self.pipelines_refused:
            yield f"pipeline: {name} on {self.name}: {self.pipelines_refused[name]}"
        if kernel.scheduler not in pipeline.schedulers:
            allowed = " or ".join(pipeline.schedulers)
            yield f"scheduler: {name} on {self.name} is {allowed}, not {kernel.scheduler}"

    # ---- problems ---------------------------------------------------------------------------

    def problem_refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        """Why a kernel that the architecture allows cannot compute this problem, or None when it can."""
        if not kernel.matches(problem):
            return (
                f"kind: the kernel is for {kind_text(kernel.kind)}, the problem is {kind_text(problem.kind)}"
            )
        return next(operation_named(kernel.op).problem_refusals(self, kernel, problem), None)

    def able(self, kernels: Iterable[Kernel], problem: Problem) -> list[Kernel]:
        """Those of the kernels that can compute this problem, in their order."""
        return [kernel for kernel in kernels if self.problem_refusal(kernel, problem) is None]


# ---- reading ------------------------------------------------------------------------------------


def known_archs() -> tuple[str, ...]:
    """The names of the architectures in kernels/arch_specs.json, in its order."""
    return tuple(_shipped())


def load_arch(name: str) -> Arch:
    """The architecture of this name. Raises RuleError for one that is not known."""
    archs = _shipped()
    arch = archs.get(name)
    if arch is None:
        close = difflib.get_close_matches(name[:100], archs, 1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(archs)}"
        raise RuleError(f"architecture {shown(name)} is not in kernels/arch_specs.json; {hint}")
    return arch


@lru_cache(maxsize=1)
def _shipped() -> Mapping[str, Arch]:
    return read_archs(data_folder("kernels") / "arch_specs.json")


def read_archs(path: Path) -> Mapping[str, Arch]:
    """All architectures of a file like kernels/arch_specs.json. Raises RuleError, naming the place."""
    top = JsonTree.read(path).known_members(
        ("element_bytes", "accumulate", "kernel_families", "archs"), ("about", "preshuffle_warp_tiles")
    )
    element_bytes = {dtype: size.number() for dtype, size in top["element_bytes"].members().items()}
    for dtype in DTYPES:
        if dtype not in element_bytes:
            raise top["element_bytes"].error(f"the size of {dtype} is missing")
    for types, accumulator in top["accumulate"].members().items():
        accumulator.text(element_bytes)
        if types not in element_bytes and any(t not in element_bytes for t in types.split("_")):
            raise top["accumulate"].error(f"{shown(types)} names a type that element_bytes lacks")
    families = {name: _read_family(name, tree) for name, tree in top["kernel_families"].members().items()}
    combinations = tuple(top["accumulate"].members())
    archs = {
        name: _read_arch(name, tree, families, element_bytes, combinations)
        for name, tree in top["archs"].members().items()
    }
    if "preshuffle_warp_tiles" in top:
        for name, tiles in top["preshuffle_warp_tiles"].known_members((), tuple(archs)).items():
            listed = _warp_tiles(tiles, combinations)
            archs[name] = replace(archs[name], preshuffle_warp_tiles=listed)
    return archs


def _warp_tiles(tree: JsonTree, combinations: tuple[str, ...]) -> dict[str, tuple[Triple, ...]]:
    return {
        types: tuple(item.triple() for item in tiles.items())
        for types, tiles in tree.known_members((), combinations).items()
    }


def _read_family(name: str, tree: JsonTree) -> KernelFamily:
    keys = ("pipelines", "epilogues", "vectors", "paddings", "options")
    members = tree.known_members(keys, ("about",))
    pipelines = {}
    for pipeline, demands in members["pipelines"].members().items():
        demand = demands.known_members(("ops", "schedulers", "double_smem_buffer", "staged"))
        pipelines[pipeline] = Pipeline(
            ops=demand["ops"].texts(operation_names()),
            schedulers=demand["schedulers"].texts(SCHEDULERS),
            double_smem_buffer=demand["double_smem_buffer"].text(_BUFFERING),
            staged=demand["staged"].texts(("a", "b")),
        )
    options = {}
    for option, tree_ in members["options"].known_members(OPTIONS).items():
        part = tree_.known_members(("directions", "why"), ("values",))
        options[option] = Option(
            directions=part["directions"].texts(DIRECTIONS),
            values=part["values"].integers(1) if "values" in part else (),
            why=part["why"].text(),
        )
    if not options["num_groups_to_merge"].values:
        raise members["options"].error("num_groups_to_merge must list its values")
    vectors = members["vectors"].known_members(("why",), ("fixed", "max_bytes", "whole_loads"))
    if ("fixed" in vectors) == ("max_bytes" in vectors):
        raise members["vectors"].error("needs either 'fixed' or 'max_bytes'")
    return KernelFamily(
        name=name,
        pipelines=pipelines,
        epilogues=members["epilogues"].texts(EPILOGUES),
        options=options,
        fixed_vectors=vectors["fixed"].triple() if "fixed" in vectors else None,
        max_vector_bytes=vectors["max_bytes"].integer(1) if "max_bytes" in vectors else 0,
        whole_loads=vectors["whole_loads"].flag() if "whole_loads" in vectors else False,
        vectors_why=vectors["why"].text(),
        paddings_may_be_off=members["paddings"].known_members(("may_be_off",))["may_be_off"].flag(),
    )


def _read_arch(
    name: str,
    tree: JsonTree,
    families: Mapping[str, KernelFamily],
    element_bytes: Mapping[str, float],
    combinations: tuple[str, ...],
) -> Arch:
    keys = ("family", "kernels", "hardware", "lds", "max_workgroup_threads", "waves", "warp_tiles")
    members = tree.known_members(keys, ("about", "peak", "pipelines_refused", "registers"))
    kernels = families[members["kernels"].text(families)]
    figures = members["hardware"].known_members(tuple(field.name for field in fields(Hardware)))
    hardware = Hardware(
        product=figures.pop("product").text(), **{key: value.integer() for key, value in figures.items()}
    )
    waves = tuple(item.triple() for item in members["waves"].items())
    most_threads = members["max_workgroup_threads"].integer(1)
    for m, n, k in waves:
        if m * n * k * hardware.wavefront_size > most_threads:
            raise members["waves"].error(f"{triple((m, n, k))} is more than {most_threads:,} threads")
    lds = members["lds"].known_members(("limit_bytes", "why"), ("element_bytes",))
    refused = members["pipelines_refused"].members() if "pipelines_refused" in members else {}
    for pipeline in refused:
        if pipeline not in kernels.pipelines:
            raise members["pipelines_refused"].error(f"{kernels.name} has no pipeline {shown(pipeline)}")
    return Arch(
        name=name,
        family=members["family"].text(),
        hardware=hardware,
        kernels=kernels,
        element_bytes=element_bytes,
        waves=waves,
        most_threads=most_threads,
        warp_tiles=_warp_tiles(members["warp_tiles"], combinations),
        lds_limit_bytes=lds["limit_bytes"].integer(),
        lds_element_bytes=lds["element_bytes"].integer(1) if "element_bytes" in lds else None,
        lds_why=lds["why"].text(),
        pipelines_refused={pipeline: why.text() for pipeline, why in refused.items()},
        register_limit=_read_registers(members["registers"], kernels) if "registers" in members else None,
        peak=_read_peak(members["peak"], tuple(element_bytes)) if "peak" in members else None,
    )


def _read_peak(tree: JsonTree, dtypes: tuple[str, ...]) -> Peak:
    members = tree.known_members(("flops_a_cu_and_clock", "memory_gb_s", "why"))
    flops = members["flops_a_cu_and_clock"].known_members((), dtypes)
    return Peak(
        {dtype: value.integer(1) for dtype, value in flops.items()}, members["memory_gb_s"].integer(1)
    )


def _read_registers(tree: JsonTree, kernels: KernelFamily) -> RegisterLimit:
    members = tree.known_members(("most", "a_thread", "a_unit", "pipelines", "why"))
    return RegisterLimit(
        most=members["most"].integer(1),
        a_thread=members["a_thread"].integer(1),
        a_unit=members["a_unit"].integer(1),
        pipelines=members["pipelines"].texts(tuple(kernels.pipelines)),
        why=members["why"].text(),
    )


def listed(triples: tuple[Triple, ...]) -> str:
    """The first few of a list, and how many more there are."""
    more = f" and {len(triples) - _LISTED} more" if len(triples) > _LISTED else ""
    return ", ".join(map(triple, triples[:_LISTED])) + more
