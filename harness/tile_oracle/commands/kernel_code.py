"""`tile-oracle pool list --facts` and `--verify`: compiles kernels, and reports on their code."""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter

from tile_oracle.arch import Arch, load_arch
from tile_oracle.arch.occupancy import archs_with_occupancy
from tile_oracle.commands.build import describe_progress
from tile_oracle.commands.json_output import print_json
from tile_oracle.commands.kernel_facts import (
    fact_rows,
    facts_document,
    find_facts,
    find_offenders,
    verdict_lines,
)
from tile_oracle.commands.kernel_pools import Pools
from tile_oracle.commands.kernel_verify import (
    verified_document,
    verified_lines,
    verified_status,
    verify_kernel,
)
from tile_oracle.compiling.builder import NOTE, VERIFIABLE, Builder
from tile_oracle.compiling.source import gpu_code_refusal
from tile_oracle.errors import RuleError
from tile_oracle.process.cores import usable_cores
from tile_oracle.terminal.progress_line import ProgressLine
from tile_oracle.terminal.text_table import text_table


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
        verified = [verify_kernel(builder, kernel) for kernel in to_verify]
        toolchain = builder.toolchain.identity if builder.toolchain else None
        lines = [*verdict_lines(found, arch, builder), *lines]
    if args.json:
        print_json(
            {
                "arch": arch.name,
                "toolchain": toolchain,
                "notes": pools.rules.notes,
                "facts": facts_document(found, arch) if args.facts else None,
                "verified": verified_document(verified) if args.verify else None,
                "without_code": dict(reasons),
            }
        )
    else:
        if args.facts:
            rows = fact_rows(found, arch)
            print("\n".join([*text_table(rows, range(len(rows[0]) - 1)), ""]))
        for reason, count in reasons.most_common():
            lines.append(f"{count:,} more {'have' if count > 1 else 'has'} no code: {reason}")
        print("\n".join(lines))
        if args.verify:
            print("\n".join(verified_lines(verified, details=args.list and not args.facts)))
    return 1 if find_offenders(found, arch) else verified_status(verified)


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
