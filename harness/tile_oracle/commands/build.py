"""`tile-oracle build`: compiles a pool ahead of time into a folder that another machine can use.

The folder has a manifest. Kernels that do not compile are listed with the end of the compiler's log, and
make the exit status 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tile_oracle.commands.arguments import BUILD_DIR, CK_TILE, KERNELS, TOOLCHAIN, take_source
from tile_oracle.commands.kernel_verify import verified_lines, verified_status, verify_kernel
from tile_oracle.commands.kinds import KINDS, kinds_to_build, own_kernels
from tile_oracle.compiling.binary import BuildResult
from tile_oracle.compiling.builder import REFUSE, Builder
from tile_oracle.compiling.kernel_source import NATIVE, TRITON, KernelSource
from tile_oracle.compiling.prebuild import PrebuiltReport, Progress, build_all, prebuild
from tile_oracle.compiling.source_providers import open_kernel_source
from tile_oracle.errors import BuildError, KernelError
from tile_oracle.kernel import Kernel
from tile_oracle.operation import operation_names
from tile_oracle.pool import list_of_kernels, load_rule_set, pool_of_kind, rules_of
from tile_oracle.pool.kernel_filter import KernelFilter
from tile_oracle.process.cores import usable_cores
from tile_oracle.terminal.argument_table import argument_table
from tile_oracle.terminal.counts import count
from tile_oracle.terminal.progress_line import ProgressLine, clock

EXAMPLES = """\
examples:
  tile-oracle build -o kernels-v3 --isa x86-64-v3 --problem-set forward_smoke,bwd_data_smoke
                                                                    what these problem sets need
  tile-oracle build -o gemms --op gemm --layout rcr,rrr --dtype bf16 --isa x86-64-v3
  pytest --problem-set forward_smoke --build-dir kernels-v3         on the other machine: no compiler needed
  tile-oracle build -o mine --arch sm_90 --kernels my_kernels.py    kernels written in Triton
  tile-oracle build -o few --arch sm_90 --kernels few.json          the list of `tile-oracle pool portfolio`

instruction sets:
  native (this machine's), x86-64, x86-64-v2, x86-64-v3, x86-64-v4, armv8-a
"""

_LOGS_SHOWN = 10
_LARGE, _LEAST_LOOKED_AT = 500, 8
"""Kernels from which on a build says its time in advance, and least number of those that it looks at."""
_KNOWN_TO = 1.3
"""A factor to which some kernels tell the time of all."""
_LOG_LINES_SHOWN = 8


GOES_ON = "what is compiled is in the cache, and the same command goes on from there"
ARGUMENTS = argument_table(
    f"""
-o --output DIR!  the folder to fill
--kernel-set NAME=default  rule set
--kernel-filter EXPRESSION  only kernels for which this holds
--problem-set NAMES  build what the problems of these sets need (recommended)
{KINDS}
--arch ARCH=cpu  cpu, gfx950, gfx942, gfx90a or sm_90
--isa NAME=native  instruction set
{TOOLCHAIN}
{CK_TILE}
{KERNELS}
--verify  AMD's GPUs: refuse kernels whose machine code lacks a wait or barrier, and count those for which
    this is not proven; with any of these the exit status is 3
-j --jobs N  compilers at once (default: one per core)
{BUILD_DIR}
--compile-timeout S=300  time limit for one kernel, seconds
""",
    op=operation_names(),
)


def run(args: argparse.Namespace) -> int:
    """Builds, reports, and returns 1 when a kernel did not compile, or what `verified_status` says.
    Raises HarnessError."""
    source = open_kernel_source(args.arch, take_source(args, args.ck_tile))
    kernels, jobs = _pool(args, source), usable_cores() if args.jobs is None else args.jobs
    with Builder(
        arch=args.arch,
        toolchain=args.toolchain,
        build_dir=args.build_dir,
        jobs=jobs,
        isa=args.isa,
        timeout_s=args.compile_timeout,
        runs_here=False,
        source=source,
        verify=REFUSE if args.verify else "",
    ) as builder:
        native = source.implementation == NATIVE
        kernels, left_out = (kernels, []) if native else _in_source(source, kernels)
        for told in _long_build(builder, kernels, jobs, asks_all=args.problem_set is None):
            print(told, file=sys.stderr, flush=True)
        with ProgressLine(sys.stderr) as line:
            report = prebuild(builder, kernels, args.output, lambda p: line.show(describe_progress(p)))
        source.describe_in(args.output)
        left_out = [*source.notes_on({kernel.kind.op for kernel in kernels}), *left_out]
        if native and (more := list_of_kernels(args.kernel_set).triton):
            left_out = [
                *left_out,
                f"{len(more)} of {args.kernel_set} are in Triton and need a folder of their own: tile-oracle "
                f"build -o DIR --arch {args.arch} --kernels triton --kernel-set {args.kernel_set}",
            ]
        verified = [verify_kernel(builder, one.kernel) for one in report.built if args.verify]
        said = verified_lines(verified) if verified else []
        print("\n".join([*left_out, *said, describe_report(report, builder)]))
    return 1 if report.failed else verified_status(verified)


def _long_build(builder: Builder, kernels: Sequence[Kernel], jobs: int, *, asks_all: bool) -> Iterator[str]:
    """Yields how long a large build will take, by some of its kernels, which are compiled first; and what is
    shorter. asks_all: for no problem set. Raises BuildError."""
    missing = [kernel for kernel in kernels if builder.needs_compiler(kernel)]
    if len(missing) <= _LARGE:
        return
    looking = max(_LEAST_LOOKED_AT, 2 * jobs)
    yield f"{len(missing):,} kernels to compile: {looking} of them first, to see how long they take"
    began = time.monotonic()
    build_all(builder, missing[:: len(missing) // looking][:looking])
    expected_s = (time.monotonic() - began) / looking * (len(missing) - looking)
    fewer = "; --problem-set SETS builds what the problems in hand need" if asks_all else ""
    yield (
        f"this will take about {clock(expected_s / _KNOWN_TO)} to {clock(expected_s * _KNOWN_TO)} with "
        f"{jobs} compiler{'s' * (jobs > 1)} at once{fewer}"
    )


def _pool(args: argparse.Namespace, source: KernelSource) -> list[Kernel]:
    where = None if args.kernel_filter is None else KernelFilter(args.kernel_filter)
    kernels: list[Kernel] = []
    if source.kinds is not None:
        return own_kernels(source, args, where)
    rules = rules_of(args.kernel_set, args.ck_tile)
    for kind in kinds_to_build(args, load_rule_set(rules).kinds):
        kernels += pool_of_kind(kind, args.arch, rules, where)
    return kernels


def _in_source(source: KernelSource, kernels: Iterable[Kernel]) -> tuple[list[Kernel], list[str]]:
    """Returns the kernels that a source has, and lines that say why it lacks the others.

    Raises BuildError when it has none.
    """
    there: list[Kernel] = []
    reasons: Counter[str] = Counter()
    for kernel in kernels:
        try:
            source.unit(kernel)
            there.append(kernel)
        except KernelError as error:
            reasons[str(error)] += 1
    lines = [f"{count(number, 'kernel')} unsupported: {reason}" for reason, number in reasons.most_common()]
    if not there:
        raise BuildError(lines[0] if lines else "there is no kernel to build")
    return there, lines


def describe_progress(progress: Progress) -> str:
    """Returns one line: counts, rate, time left."""
    parts = [f"built {progress.done}/{progress.total}"]
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    if progress.cached:
        parts.append(f"{progress.cached} from the cache")
    if progress.cached < progress.done or not progress.done:
        parts.append(f"{progress.rate_per_s:.1f} kernels/s")
    if progress.left_s is not None and progress.done < progress.total:
        parts.append(f"{clock(progress.left_s)} left")
    return ", ".join(parts)


def describe_report(report: PrebuiltReport, builder: Builder) -> str:
    """Returns the report: what was built, what failed and why, and where the folder is."""
    lines: list[str] = []
    for number, result in enumerate(report.failed):
        lines += _describe_failure(result) if number < _LOGS_SHOWN else [f"{result.kernel.name}: build_error"]
    stats = builder.stats()
    made_by = builder.toolchain.identity if builder.toolchain else ""
    lines.append(
        f"{count(len(report.built), 'kernel')} built ({stats.compiled} compiled, {stats.cached} from the "
        f"cache), {len(report.failed)} failed, {report.elapsed_s:.1f} s; {made_by}, {builder.isa.name}"
    )
    if report.replaced:
        lines.append(
            f"{report.replaced} kernels of an earlier, different build in {report.folder} were dropped"
        )
    # A folder of kernels in Triton stands for their source; other kernels' folder is a cache of binaries.
    use = "--kernels" if builder.source.implementation == TRITON else "--build-dir"
    lines.append(f"{report.folder}: {count(report.kernels_in_folder, 'kernel')}; use it with {use}")
    return "\n".join(lines)


def _describe_failure(result: BuildResult) -> list[str]:
    shown = result.log.splitlines()[-_LOG_LINES_SHOWN:]
    return [f"{result.kernel.name}: build_error", *(f"    {line}" for line in shown), ""]
