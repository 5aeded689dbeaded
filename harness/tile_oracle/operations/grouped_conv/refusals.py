"""Why an architecture refuses a convolution kernel.

Every reason begins with the name of its rule: `warp tile: ...`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tile_oracle.arch import Arch, listed
from tile_oracle.kernel.fields import triple
from tile_oracle.operations.gemm.refusals import padding_refusals
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

_REGISTER_BYTES = 4

CONTIGUOUS_CHANNELS = {
    "forward": (("C", "k"), ("C", "k"), ("K", "n")),
    "bwd_data": (("K", "k"), ("C", "n"), ("C", "n")),
    "bwd_weight": (("K", "m"), ("C", "n"), ("C", "n")),
}
"""Direction -> for the GEMM operands A, B and C: the channels along which memory is contiguous, and the
GEMM axis that these channels lie on."""


def refusals(arch: Arch, kernel: GroupedConvKernel) -> Iterator[str]:
    """Yields all reasons against the kernel, in the order in which they are checked."""
    if kernel.dtype not in arch.warp_tiles:
        known = ", ".join(arch.dtypes(kernel.op))
        yield f"dtype: {arch.name} has kernels for {known}, not for {kernel.dtype}"
        return
    yield from _pipeline_refusals(arch, kernel)
    yield from _tile_refusals(arch, kernel)
    yield from _vector_refusals(arch, kernel)
    yield from _register_refusals(arch, kernel)
    yield from _option_refusals(arch, kernel)


def _pipeline_refusals(arch: Arch, kernel: GroupedConvKernel) -> Iterator[str]:
    yield from arch.pipeline_refusals(kernel)
    name = kernel.pipeline
    pipeline = arch.kernels.pipelines.get(name)
    if pipeline is None:
        return
    if pipeline.double_smem_buffer == "required" and not kernel.double_smem_buffer:
        yield f"double_smem_buffer: {name} on {arch.name} has two buffers and needs it on"
    if pipeline.double_smem_buffer == "refused" and kernel.double_smem_buffer:
        yield f"double_smem_buffer: {name} on {arch.name} has one buffer and needs it off"


def _tile_refusals(arch: Arch, kernel: GroupedConvKernel) -> Iterator[str]:
    threads = arch.workgroup_threads(kernel)
    if not arch.listed_only and threads > arch.most_threads:
        yield f"waves: {triple(kernel.waves)} are {threads:,} threads; {arch.name} has {arch.most_threads:,}"
    if arch.listed_only and kernel.waves not in arch.waves:
        yield f"waves: {triple(kernel.waves)} is not one of {listed(arch.waves)} on {arch.name}"
    if arch.listed_only and kernel.warp_tile not in arch.warp_tiles[kernel.dtype]:
        yield (
            f"warp tile: {triple(kernel.warp_tile)} is not one of {listed(arch.warp_tiles[kernel.dtype])} "
            f"for {kernel.dtype} on {arch.name}"
        )
    yield from arch.tile_refusals(kernel)


def _vector_refusals(arch: Arch, kernel: GroupedConvKernel) -> Iterator[str]:
    family = arch.kernels
    if family.fixed_vectors is not None:
        if kernel.vectors != family.fixed_vectors:
            yield (
                f"vectors: {triple(kernel.vectors)} on {arch.name} must be {triple(family.fixed_vectors)}: "
                f"{family.vectors_why}"
            )
        return
    element = arch.element_bytes[kernel.dtype]
    for operand, width in zip("abc", kernel.vectors, strict=True):
        if width & (width - 1):
            yield f"vectors: vector_{operand} = {width} is not a power of two"
        elif width * element > family.max_vector_bytes:
            yield (
                f"vectors: vector_{operand} = {width} of {kernel.dtype} is {width * element:.0f} bytes, "
                f"a load on {arch.name} moves at most {family.max_vector_bytes}"
            )
    if family.whole_loads and arch.listed_only:
        threads = arch.workgroup_threads(kernel)
        for operand, rows, width in (("a", "m", kernel.vector_a), ("b", "n", kernel.vector_b)):
            elements = (kernel.tile_m if rows == "m" else kernel.tile_n) * kernel.tile_k
            if elements % (threads * width):
                yield (
                    f"vectors: tile_{rows} x tile_k = {elements:,} elements are not whole loads of "
                    f"vector_{operand} = {width} for {threads} threads"
                )


def _option_refusals(arch: Arch, kernel: GroupedConvKernel) -> Iterator[str]:
    on = {
        "split_image": kernel.split_image,
        "num_groups_to_merge": kernel.num_groups_to_merge != 1,
        "explicit_gemm": kernel.explicit_gemm,
        "two_stage": kernel.two_stage,
    }
    for name, option in arch.kernels.options.items():
        if on[name] and kernel.direction not in option.directions:
            yield f"{name}: {arch.name} has no {kernel.direction} kernels with it: {option.why}"
    merged = kernel.num_groups_to_merge
    merging = arch.kernels.options["num_groups_to_merge"]
    if kernel.direction in merging.directions and merged not in merging.values:
        yield f"num_groups_to_merge: {merged} is not one of {', '.join(map(str, merging.values))}"
    if kernel.explicit_gemm and merged != 1:
        yield f"explicit_gemm: {arch.kernels.options['explicit_gemm'].why}; num_groups_to_merge must be 1"
    if kernel.specialization != "Default" and arch.name == "cpu":
        yield f"specialization: kernels on {arch.name} are for all filters, not for {kernel.specialization}"
    yield from arch.padding_refusals(kernel)


def _register_refusals(arch: Arch, kernel: GroupedConvKernel) -> Iterator[str]:
    limit = arch.register_limit
    if limit is None:
        return
    threads = arch.workgroup_threads(kernel)
    sums = kernel.tile_m * kernel.tile_n // threads
    elements = (kernel.tile_m + kernel.tile_n) * kernel.tile_k
    prefetched = int(elements * arch.element_bytes[kernel.dtype]) // _REGISTER_BYTES // threads
    prefetched *= kernel.pipeline in limit.pipelines
    most = limit.most * min(limit.a_thread, limit.a_unit // threads) // limit.a_thread
    if sums + 2 * prefetched > most:
        yield (
            f"registers: {sums} for accumulators and {prefetched} for a prefetched tile are too many for "
            f"{kernel.pipeline} on {arch.name} (accumulators + 2 x tile: at most {most}): {limit.why}"
        )


def problem_refusals(arch: Arch, kernel: GroupedConvKernel, problem: GroupedConvProblem) -> Iterator[str]:
    """Yields why a kernel that the architecture allows cannot compute this problem of its kind."""
    if problem.G % kernel.num_groups_to_merge:
        yield f"num_groups_to_merge: {kernel.num_groups_to_merge} does not divide G = {problem.G}"
    yield from _filter_refusals(kernel, problem)
    if kernel.explicit_gemm and not (
        set(problem.filter) == {1} and set(problem.stride) == {1} and set(problem.pad) == {0}
    ):
        yield "explicit_gemm: only a 1x1 filter with stride 1 and no padding is a plain GEMM"
    yield from padding_refusals(kernel, problem.gemm_shape)
    padded = dict(zip("mnk", kernel.paddings, strict=True))
    channels = {"C": problem.C // problem.G, "K": problem.K // problem.G}
    for operand, (letter, axis) in zip("abc", CONTIGUOUS_CHANNELS[kernel.direction], strict=True):
        width = getattr(kernel, f"vector_{operand}")
        if not padded[axis] and channels[letter] % width:
            yield (
                f"vectors: pad_{axis} is off and {letter}/G = {channels[letter]} is not a multiple of "
                f"vector_{operand} = {width}"
            )


def _filter_refusals(kernel: GroupedConvKernel, problem: GroupedConvProblem) -> Iterator[str]:
    """Yields a specialization's requirements of the problem, as checked by Composable Kernel."""
    special = kernel.specialization
    if special == "Filter3x3":
        if set(problem.filter) != {3} or problem.C != problem.G:
            yield f"specialization: {special} is for filters of extent 3 and one input channel per group"
    elif special != "Default":
        stride_1 = special == "Filter1x1Stride1Pad0"
        strides = set(problem.stride) if not stride_1 else {1}
        if set(problem.filter) != {1} or set(problem.pad) != {0} or set(problem.stride) != strides:
            stride = ", stride 1" if stride_1 else ""
            yield f"specialization: {special} is for filters of extent 1{stride} and no padding"
