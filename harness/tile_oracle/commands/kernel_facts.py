"""`tile-oracle pool list --facts`: the GPU resources of a pool's kernels, read from their binaries."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from tile_oracle.arch import Arch
from tile_oracle.commands.kernel_pools import is_tiled
from tile_oracle.compiling.binary import BuildResult
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.code_facts import CodeFacts, code_facts
from tile_oracle.compiling.compiler_message import compiler_message
from tile_oracle.compiling.prebuild import Progress, build_all
from tile_oracle.kernel import Kernel, tiled

_MOST_VGPRS = 512
_OFFENDERS_SHOWN = 20


@dataclass(frozen=True)
class KernelFacts:
    """One kernel, built or failed. Without a binary all facts are None."""

    kernel: Kernel
    binary_bytes: int
    facts: CodeFacts
    log: str

    def what_is_wrong(self, arch: Arch) -> str | None:
        """Returns why the architecture's rules should not have allowed the kernel, or None."""
        facts = self.facts
        if not self.binary_bytes:
            return f"does not compile: {compiler_message(self.log)}"
        if facts.spills:
            return f"spills {facts.spills} registers"
        if facts.scratch_bytes:
            return f"keeps {facts.scratch_bytes} bytes a work-item in scratch memory"
        if facts.lds_bytes is not None and facts.lds_bytes > arch.lds_limit_bytes:
            return f"needs {facts.lds_bytes:,} bytes of LDS, {arch.name} has {arch.lds_limit_bytes:,}"
        if facts.vgprs is not None and facts.vgprs > _MOST_VGPRS:
            return f"needs {facts.vgprs} vector registers"
        if facts.workgroups_per_cu == 0:
            return "does not fit on a compute unit"
        return None


def find_facts(
    builder: Builder,
    kernels: Iterable[Kernel],
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> list[KernelFacts]:
    """Builds the kernels, or takes them from the cache, and reads their binaries; sorted by name.

    Raises BuildError when the build folder cannot be used.
    """
    return [_facts_of(result) for result in build_all(builder, kernels, on_progress)]


def _facts_of(result: BuildResult) -> KernelFacts:
    binary = result.binary
    if binary is None:
        return KernelFacts(result.kernel, 0, CodeFacts(), result.log)
    return KernelFacts(result.kernel, binary.bytes, code_facts(binary.path, binary.arch), result.log)


# ---- a table ------------------------------------------------------------------------------------


TILING = ("tile", "waves", "warp tile", "pipeline")
"""Headings of the columns with text."""
_HEADINGS = (
    *(*TILING, "kernels", "VGPRs", "of these AGPRs", "SGPRs", "LDS bytes", "spills", "workgroups/CU"),
    *("waves/SIMD", "matrix instr. in loop", "binary KiB", "kernel"),
)


def fact_rows(found: Sequence[KernelFacts], arch: Arch, *, each: bool = False) -> list[tuple[str, ...]]:
    """Headings, then a row for each tile and pipeline with the minimum and maximum over its kernels.

    each: a row for each kernel, as always for kernels without tiles. Columns without any value are left out.
    """

    def key(one: KernelFacts) -> tuple[str | tuple[int, int, int], ...]:
        if not is_tiled(one.kernel):
            return (one.kernel.name,)
        kernel = tiled(one.kernel)
        family = (kernel.tile, kernel.waves, kernel.warp_tile, kernel.pipeline)
        return (*family, kernel.name) if each else family

    rows = [_row(list(group), arch, each) for _, group in itertools.groupby(sorted(found, key=key), key=key)]
    filled = [i for i in range(len(_HEADINGS)) if any(row[i] != "-" for row in rows)]
    return [tuple(row[i] for i in filled) for row in (_HEADINGS, *rows)]


def _row(group: Sequence[KernelFacts], arch: Arch, each: bool) -> tuple[str, ...]:
    kernel, simds = group[0].kernel, arch.hardware.simds_per_cu
    facts = [one.facts for one in group]
    tiling, count, name = ("-",) * len(TILING), "-", kernel.name
    if is_tiled(kernel):
        made = tiled(kernel)
        tiling = (
            *("x".join(map(str, one)) for one in (made.tile, made.waves, made.warp_tile)),
            made.pipeline,
        )
        count, name = str(len(group)), kernel.name if each else "-"
    fields = ("vgprs", "agprs", "sgprs", "lds_bytes", "spills", "workgroups_per_cu")
    return (
        *(*tiling, count),
        *(_range([getattr(one, name) for one in facts]) for name in fields),
        _range([None if one.waves_per_cu is None else one.waves_per_cu / simds for one in facts]),
        _range([one.loop_matrix_instructions for one in facts]),
        _range([round(one.binary_bytes / 1024) for one in group if one.binary_bytes]),
        name,
    )


def _range(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high = min(known), max(known)
    return f"{low:g}" if low == high else f"{low:g}-{high:g}"


def facts_document(found: Sequence[KernelFacts], arch: Arch) -> list[dict[str, object]]:
    """Returns all facts of each kernel, for --json."""
    return [
        {
            "kernel": one.kernel.name,
            "binary_bytes": one.binary_bytes or None,
            **asdict(one.facts),
            "wrong": one.what_is_wrong(arch),
        }
        for one in found
    ]


# ---- a verdict ----------------------------------------------------------------------------------


def find_offenders(found: Sequence[KernelFacts], arch: Arch) -> list[tuple[KernelFacts, str]]:
    """Returns the kernels that the rules should have refused, and why."""
    judged = ((one, one.what_is_wrong(arch)) for one in found)
    return [(one, wrong) for one, wrong in judged if wrong is not None]


def verdict_lines(found: Sequence[KernelFacts], arch: Arch, builder: Builder) -> list[str]:
    """Offenders, and a line with the number of kernels and the compiler."""
    offenders = find_offenders(found, arch)
    lines = [f"{one.kernel.name} {wrong}" for one, wrong in offenders[:_OFFENDERS_SHOWN]]
    if len(offenders) > _OFFENDERS_SHOWN:
        lines.append(f"and {len(offenders) - _OFFENDERS_SHOWN:,} more")
    stats = builder.stats()
    spills_known = all(one.facts.spills is not None for one in found if one.binary_bytes)
    what = "spill, use scratch memory, need too much LDS or do not compile"
    if not spills_known:
        what = "do not compile (whether they spill is not known: there is no assembler; see --toolchain)"
    made_by = builder.toolchain.identity if builder.toolchain else "prebuilt"
    kernels = f"{len(found):,} kernel{'s' * (len(found) != 1)}"
    lines.append(
        f"{kernels} for {arch.name}, {len(offenders):,} of which {what}; "
        f"{stats.compiled:,} compiled, {stats.cached:,} from the cache; {made_by}"
    )
    return lines
