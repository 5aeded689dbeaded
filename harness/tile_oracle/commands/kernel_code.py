"""`tile-oracle pool list --facts` and `--verify`: compiles kernels, and reports on their code."""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from tile_oracle.arch import Arch, load_arch
from tile_oracle.arch.occupancy import archs_with_occupancy
from tile_oracle.commands import kernel_verify
from tile_oracle.commands.arguments import show
from tile_oracle.commands.build import describe_progress
from tile_oracle.commands.kernel_pools import Pools
from tile_oracle.compiling.builder import NOTE, VERIFIABLE, Builder
from tile_oracle.compiling.code_facts import CodeFacts, code_facts
from tile_oracle.compiling.compiler_message import compiler_message
from tile_oracle.compiling.prebuild import Progress, build_all
from tile_oracle.compiling.source import gpu_code_refusal
from tile_oracle.errors import RuleError
from tile_oracle.kernel import Kernel
from tile_oracle.process.cores import usable_cores
from tile_oracle.terminal.counts import count
from tile_oracle.terminal.progress_line import ProgressLine
from tile_oracle.terminal.text_table import first_few, text_table

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


# ---- a verdict ----------------------------------------------------------------------------------


def find_offenders(found: Sequence[KernelFacts], arch: Arch) -> list[tuple[KernelFacts, str]]:
    """Returns the kernels that the rules should have refused, and why."""
    judged = ((one, one.what_is_wrong(arch)) for one in found)
    return [(one, wrong) for one, wrong in judged if wrong is not None]


def _verdict_lines(found: Sequence[KernelFacts], arch: Arch, builder: Builder) -> list[str]:
    """Offenders, and a line with the number of kernels and the compiler."""
    offenders = find_offenders(found, arch)
    lines = first_few([f"{one.kernel.name} {wrong}" for one, wrong in offenders], _OFFENDERS_SHOWN)
    stats = builder.stats()
    spills_known = all(one.facts.spills is not None for one in found if one.binary_bytes)
    what = "spill, use scratch memory, need too much LDS or do not compile"
    if not spills_known:
        what = "do not compile (whether they spill is not known: there is no assembler; see --toolchain)"
    made_by = builder.toolchain.identity if builder.toolchain else "prebuilt"
    lines.append(
        f"{count(len(found), 'kernel')} for {arch.name}, {len(offenders):,} of which {what}; "
        f"{stats.compiled:,} compiled, {stats.cached:,} from the cache; {made_by}"
    )
    return lines


def show_code(pools: Pools, args: argparse.Namespace) -> int:
    """Compiles the kernels, or a sample of them; prints the table of --facts, the findings of --verify and a
    verdict. Returns 1 when a kernel breaks the architecture's limits or does not compile, else
    the exit status of --verify. Raises HarnessError."""
    arch, source = _gpu_of(args), pools.source
    refusals = {
        kernel: None if source is not None else gpu_code_refusal(kernel, arch.name)
        for kernel in pools.accepted
    }
    reasons = Counter(reason for reason in refusals.values() if reason is not None)
    kernels = [kernel for kernel, reason in refusals.items() if reason is None]
    if not kernels:
        why = f"none has code: {next(iter(reasons))}" if reasons else "--refused says why"
        raise RuleError(f"there is no kernel for {arch.name} to compile: {why}")
    lines = [*pools.rules.notes] if source is not None else []
    if args.sample is not None and args.sample < len(kernels):
        lines.append(f"a sample of {args.sample:,} of {len(kernels):,} kernels (--seed {args.seed})")
        kernels = random.Random(args.seed).sample(kernels, args.sample)
    with Builder(
        arch.name,
        args.toolchain,
        args.build_dir,
        args.jobs or usable_cores(),
        runs_here=False,
        source=source,
        verify=NOTE if args.verify else "",
    ) as builder:
        with ProgressLine(sys.stderr) as line:
            found = find_facts(builder, kernels, lambda p: line.show(describe_progress(p)))
        to_verify = [one.kernel for one in found if one.binary_bytes and args.verify]
        verified = [kernel_verify.verify_kernel(builder, kernel) for kernel in to_verify]
        toolchain = builder.toolchain.identity if builder.toolchain else None
        lines = [*_verdict_lines(found, arch, builder), *lines]
    document = {
        "arch": arch.name,
        "toolchain": toolchain,
        "notes": pools.rules.notes,
        "facts": [_document(one, arch) for one in found] if args.facts else None,
        "verified": kernel_verify.verified_document(verified) if args.verify else None,
        "without_code": dict(reasons),
    }
    if args.facts:
        rows = fact_rows(found, arch)
        lines = [*text_table(rows, range(len(rows[0]) - 1)), "", *lines]
    for reason, number in reasons.most_common():
        lines.append(f"{number:,} more {'have' if number > 1 else 'has'} no code: {reason}")
    if args.verify:
        lines += kernel_verify.verified_lines(verified, details=args.list and not args.facts)
    broken = bool(find_offenders(found, arch))
    return show(args, document, lines, 1 if broken else kernel_verify.verified_status(verified))


def _document(one: KernelFacts, arch: Arch) -> dict[str, object]:
    about = {"kernel": one.kernel.name, "binary_bytes": one.binary_bytes or None}
    return {**about, **asdict(one.facts), "wrong": one.what_is_wrong(arch)}


def _gpu_of(args: argparse.Namespace) -> Arch:
    """Returns the architecture that the options name. Raises RuleError if they name none with such facts."""
    option = "--facts" if args.facts else "--verify"
    if args.arch is None:
        archs = "gfx950" if args.verify else "gfx950 or sm_90"
        raise RuleError(f"{option} compiles for one architecture: give --arch {archs}")
    arch = load_arch(args.arch)
    if args.verify and arch.name not in VERIFIABLE:
        raise RuleError(f"--verify is for {', '.join(VERIFIABLE)}: nothing reads the code of {arch.name}")
    if arch.name not in archs_with_occupancy():
        raise RuleError(f"--facts is for GPUs: give --arch {' or '.join(archs_with_occupancy())}")
    return arch
