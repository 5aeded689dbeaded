"""`tile-oracle pool list --facts` and `--verify`: compiles kernels, and reports on their code."""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tile_oracle.arch import Arch, load_arch
from tile_oracle.arch.occupancy import archs_with_occupancy
from tile_oracle.build.builder import NOTE, VERIFIABLE, Builder
from tile_oracle.build.kernel_source import KernelSource
from tile_oracle.build.source import gpu_code_refusal
from tile_oracle.commands.build import describe_progress
from tile_oracle.commands.json_output import print_json
from tile_oracle.commands.kernel_facts import (
    KernelFacts,
    fact_rows,
    facts_document,
    find_facts,
    find_offenders,
    markdown_table,
    verdict_lines,
)
from tile_oracle.commands.kernel_pools import KindPool
from tile_oracle.commands.kernel_verify import (
    Verified,
    verified_document,
    verified_lines,
    verified_status,
    verify_kernels,
)
from tile_oracle.errors import RuleError
from tile_oracle.kernel import Kernel
from tile_oracle.process.cores import usable_cores
from tile_oracle.terminal.progress_line import ProgressLine
from tile_oracle.terminal.text_table import text_table


@dataclass(frozen=True)
class Inspected:
    """Compiled kernels. verdict: lines for the user. toolchain: None for kernels built before.
    verified: empty without --verify."""

    arch: Arch
    found: list[KernelFacts]
    verified: list[Verified]
    verdict: list[str]
    toolchain: str | None

    @property
    def exit_status(self) -> int:
        """1 when a kernel breaks the architecture's limits or does not compile, else that of --verify."""
        return 1 if find_offenders(self.found, self.arch) else verified_status(self.verified)

    def document(self, args: argparse.Namespace) -> dict[str, object]:
        """What --facts and --verify found, for --json."""
        return {
            "facts": facts_document(self.found, self.arch) if args.facts else None,
            "verified": verified_document(self.verified) if args.verify else None,
        }

    def findings(self, args: argparse.Namespace) -> list[str]:
        """The lines of --verify."""
        return verified_lines(self.verified, details=args.list and not args.facts) if args.verify else []


def inspect_kernels(
    kernels: Sequence[Kernel], arch: Arch, args: argparse.Namespace, source: KernelSource | None = None
) -> Inspected:
    """Compiles the kernels, or the sample that --sample asks for, and reads and verifies their code.

    source: of the kernels, if not tile-oracle's families. Raises BuildError.
    """
    of_all = []
    if args.sample is not None and args.sample < len(kernels):
        of_all = [f"a sample of {args.sample:,} of {len(kernels):,} kernels (--seed {args.seed})"]
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
        verified = verify_kernels(builder, (one.kernel for one in found if one.binary_bytes), args.verify)
        toolchain = builder.toolchain.identity if builder.toolchain else None
        verdict = [*verdict_lines(found, arch, builder), *of_all]
    return Inspected(arch, found, verified, verdict, toolchain)


def show_code(pools: Sequence[KindPool], args: argparse.Namespace) -> int:
    """Prints the table of --facts and the verdict; returns the exit status. Raises HarnessError."""
    arch = _gpu_of(args)
    allowed = [kernel for one in pools for kernel in one.pool.accepted]
    refusals = {kernel: gpu_code_refusal(kernel, arch.name) for kernel in allowed}
    reasons = Counter(reason for reason in refusals.values() if reason is not None)
    kernels = [kernel for kernel, reason in refusals.items() if reason is None]
    if not kernels:
        why = f"none has code: {next(iter(reasons))}" if reasons else "--refused says why"
        raise RuleError(f"there is no kernel for {arch.name} to compile: {why}")
    code = inspect_kernels(kernels, arch, args)
    if args.json:
        about = {"arch": arch.name, "toolchain": code.toolchain}
        print_json({**about, **code.document(args), "without_code": dict(reasons)})
        return code.exit_status
    lines = code.verdict + [
        f"{count:,} more {'have' if count > 1 else 'has'} no code: {reason}"
        for reason, count in reasons.most_common()
    ]
    if args.facts:
        rows = fact_rows(code.found, arch, each=args.list)
        print("\n".join(markdown_table(rows) if args.markdown else text_table(rows, range(4, len(rows[0])))))
        lines = ["", *lines]
    print("\n".join([*lines, *code.findings(args)]), file=sys.stderr if args.markdown else sys.stdout)
    return code.exit_status


def _gpu_of(args: argparse.Namespace) -> Arch:
    """The architecture that the options name. Raises RuleError if they name none with such facts."""
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
