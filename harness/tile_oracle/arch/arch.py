"""An architecture's limits for kernels, and its reasons for refusing one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Literal

from msgspec import Meta

from tile_oracle.arch.specs import (
    Count,
    Hardware,
    KernelFamily,
    Peak,
    Positive,
    RegisterLimit,
    Triple,
    Workgroups,
)
from tile_oracle.kernel import FAMILY, Kernel, TiledKernel
from tile_oracle.kernel.fields import triple
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem, kind_text

_LISTED = 8


@dataclass(frozen=True, eq=False)
class Arch:
    """One architecture. `refusals(kernel)` and `problem_refusal(kernel, problem)` return what it refuses."""

    name: str
    family: str
    hardware: Hardware
    kernels: KernelFamily
    element_bytes: Mapping[str, Annotated[float, Meta(gt=0)]]
    waves: tuple[Triple, ...]
    warp_tiles: Mapping[str, tuple[Triple, ...]]
    lds_limit_bytes: Count
    lds_why: str
    lds_element_bytes: Positive | None = None
    pipelines_refused: Mapping[str, str] = field(default_factory=dict)
    register_limit: RegisterLimit | None = None
    peak: Peak | None = None
    workgroups: Workgroups | None = None
    preshuffle_warp_tiles: Mapping[str, tuple[Triple, ...]] = field(default_factory=dict)
    fp8_format: Literal["", "ocp", "fnuz"] = ""
    """The encoding of e4m3 that the matrix unit reads: ocp or fnuz; "" if the table does not state it."""
    fp8_sum_bits: Positive = 24
    """Bits of the significand in which instructions for fp8 add up products."""
    mx_formats: bool = False
    """Whether its matrix unit multiplies MX formats, with an e8m0 for each 32 elements."""
    most_threads: Positive = 1024
    listed_only: bool = True
    """Whether convolutions are limited to tile-oracle's family: listed waves and warp tiles, whole loads."""

    @cached_property
    def unlisted(self) -> Arch:
        """The architecture for kernels of a library, which itself limits waves, warp tiles and loads."""
        return replace(self, listed_only=False)

    def dtypes(self, op: str) -> tuple[str, ...]:
        """Returns the data types that the architecture multiplies, in the operation's order."""
        known = operation_named(op).kind_fields["dtype"]
        return tuple(str(dtype) for dtype in known if dtype in self.warp_tiles)

    def pipelines(self, op: str) -> tuple[str, ...]:
        """Returns the pipelines of an operation that the architecture can run."""
        return tuple(
            name
            for name, pipeline in self.kernels.pipelines.items()
            if op in pipeline.ops and name not in self.pipelines_refused
        )

    def double_smem_buffer_required(self, pipeline: str) -> bool:
        """Returns whether the pipeline requires two LDS buffers (False for an unknown pipeline)."""
        demands = self.kernels.pipelines.get(pipeline)
        return demands is not None and demands.double_smem_buffer == "required"

    def workgroup_threads(self, kernel: TiledKernel) -> int:
        """Threads of a workgroup: waves x wavefront size."""
        return math.prod(kernel.waves) * self.hardware.wavefront_size

    def lds_bytes(self, kernel: TiledKernel) -> int:
        """LDS of a workgroup in bytes: (tile_m + tile_n)·tile_k elements, twice if double-buffered.

        Counts the operands that the pipeline stages; on cpu the packed panels. The published feature
        lds_usage_estimate has a different formula and is used only as a feature.
        """
        pipeline = self.kernels.pipelines.get(kernel.pipeline)
        staged = pipeline.staged if pipeline is not None else ("a", "b")
        tile_m, tile_n, tile_k = kernel.tile
        rows = tile_m * ("a" in staged) + tile_n * ("b" in staged)
        element = self.lds_element_bytes or self.element_bytes[kernel.dtype]
        return int(rows * tile_k * element) * (1 + self.double_buffered(kernel))

    def double_buffered(self, kernel: TiledKernel) -> bool:
        """Returns whether tiles are double-buffered in LDS, by the kernel's field or else by its pipeline."""
        said = kernel.double_smem_buffer
        return self.double_smem_buffer_required(kernel.pipeline) if said is None else said

    def widest_vectors(self, dtype: str, tile: Triple, waves: Triple) -> Triple:
        """Returns the widest vectors (elements of A, B, C) that can move a tile with these waves."""
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
        """Returns why the architecture does not allow the kernel (the first reason), or None when it does.
        The limits of a NamedKernel are its source's."""
        return next(self._refusals(kernel), None)

    def refusals(self, kernel: Kernel) -> tuple[str, ...]:
        """Returns all reasons against the kernel; empty when it is allowed."""
        return tuple(self._refusals(kernel))

    def _refusals(self, kernel: Kernel) -> Iterator[str]:
        return operation_named(kernel.op).refusals(self, kernel) if kernel.source == FAMILY else iter(())

    def pipeline_refusals(self, kernel: TiledKernel) -> Iterator[str]:
        """Reasons against pipeline, scheduler, epilogue, number of waves and paddings, for any operation."""
        name = kernel.pipeline
        pipeline = self.kernels.pipelines.get(name)
        if pipeline is None:
            yield f"pipeline: {self.name} has no {name}, only {', '.join(self.pipelines(kernel.op))}"
            return
        if kernel.op not in pipeline.ops:
            yield f"pipeline: {name} is for {' and '.join(pipeline.ops)}, not for {kernel.op}"
        if name in self.pipelines_refused:
            yield f"pipeline: {name} on {self.name}: {self.pipelines_refused[name]}"
        if kernel.scheduler not in pipeline.schedulers:
            allowed = " or ".join(pipeline.schedulers)
            yield f"scheduler: {name} on {self.name} is {allowed}, not {kernel.scheduler}"
        if kernel.epilogue not in self.kernels.epilogues:
            allowed = " or ".join(self.kernels.epilogues)
            yield f"epilogue: kernels on {self.name} end in {allowed}, not {kernel.epilogue}"
        waves = math.prod(kernel.waves)
        if waves < pipeline.least_waves or 0 < pipeline.most_waves < waves:
            allowed = " to ".join(map(str, sorted({pipeline.least_waves or 1, pipeline.most_waves})))
            yield f"waves: {name} on {self.name} has {allowed} waves, not {waves}"
        if pipeline.paddings and set(kernel.paddings) != {pipeline.paddings == "on"}:
            yield f"padding: {name} on {self.name}: pad_m, pad_n, pad_k must be {pipeline.paddings}"

    def tile_refusals(self, kernel: TiledKernel) -> Iterator[str]:
        """Reasons against a tile that its waves do not divide or that LDS cannot hold, for any operation."""
        for axis, tile, waves, warp in zip("mnk", kernel.tile, kernel.waves, kernel.warp_tile, strict=True):
            if tile % (waves * warp):
                yield f"tile: tile_{axis} = {tile} is not a multiple of waves x warp tile = {waves} x {warp}"
        lds_bytes = self.lds_bytes(kernel)
        if lds_bytes > self.lds_limit_bytes:
            buffers = "in two buffers " if self.double_buffered(kernel) else ""
            yield (
                f"LDS: {triple(kernel.tile)} {kernel.dtype} {buffers}needs {lds_bytes:,} bytes, "
                f"{kernel.pipeline} on {self.name} has {self.lds_limit_bytes:,}"
            )

    def padding_refusals(self, kernel: TiledKernel) -> Iterator[str]:
        """Reasons against paddings that are off, for any operation."""
        if not all(kernel.paddings) and not self.kernels.paddings_may_be_off:
            yield f"padding: {self.name} kernels always handle partial tiles: pad_m, pad_n, pad_k must be on"

    # ---- problems ---------------------------------------------------------------------------

    def problem_refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        """Returns why a kernel that the architecture allows cannot compute this problem, or None when it
        can."""
        if not kernel.matches(problem):
            return (
                f"kind: the kernel is for {kind_text(kernel.kind)}, the problem is {kind_text(problem.kind)}"
            )
        if kernel.source != FAMILY:
            return None
        return next(operation_named(kernel.op).problem_refusals(self, kernel, problem), None)

    def able(self, kernels: Iterable[Kernel], problem: Problem) -> list[Kernel]:
        """Returns those of the kernels that can compute this problem, in their order."""
        return [kernel for kernel in kernels if self.problem_refusal(kernel, problem) is None]


def listed(triples: tuple[Triple, ...]) -> str:
    """Returns the first few entries of a list, and the number of the others."""
    more = f" and {len(triples) - _LISTED} more" if len(triples) > _LISTED else ""
    return ", ".join(map(triple, triples[:_LISTED])) + more
