"""`tile-oracle pool list --facts`: the GPU resources of a pool's kernels, read from their binaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from tile_oracle.arch import Arch
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.code_facts import CodeFacts, code_facts
from tile_oracle.compiling.compiler_message import compiler_message
from tile_oracle.compiling.prebuild import Progress, build_all
from tile_oracle.kernel import Kernel

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
    return [
        KernelFacts(one.kernel, one.binary.bytes, code_facts(one.binary.path, one.binary.arch), one.log)
        if one.binary is not None
        else KernelFacts(one.kernel, 0, CodeFacts(), one.log)
        for one in build_all(builder, kernels, on_progress)
    ]


# ---- a table ------------------------------------------------------------------------------------


_FIELDS = {
    "vgprs": "VGPRs",
    "agprs": "of these AGPRs",
    "sgprs": "SGPRs",
    "lds_bytes": "LDS bytes",
    "spills": "spills",
    "workgroups_per_cu": "workgroups/CU",
    "waves_per_simd": "waves/SIMD",
    "loop_matrix_instructions": "matrix instr. in loop",
    "binary_kib": "binary KiB",
}


def fact_rows(found: Sequence[KernelFacts], arch: Arch) -> list[tuple[str, ...]]:
    """Returns headings, then a row for each kernel. Columns without any value are left out."""
    table = pd.DataFrame([asdict(one.facts) for one in found])
    table["waves_per_simd"] = table["waves_per_cu"] / arch.hardware.simds_per_cu
    table["binary_kib"] = [round(one.binary_bytes / 1024) if one.binary_bytes else None for one in found]
    table = table[list(_FIELDS)].astype(float).dropna(axis=1, how="all")
    cells = [[f"{value:g}" if value == value else "-" for value in row] for row in table.to_numpy()]
    rows = [(*row, one.kernel.name) for row, one in zip(cells, found, strict=True)]
    return [(*(_FIELDS[name] for name in table), "kernel"), *rows]


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
