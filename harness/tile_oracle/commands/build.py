"""`tile-oracle build`: compiles a pool ahead of time into a folder that another machine can use."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tile_oracle.build.binary import BuildResult
from tile_oracle.build.builder import REFUSE, Builder
from tile_oracle.build.kernel_source import NATIVE, TRITON, KernelSource
from tile_oracle.build.prebuild import PrebuiltReport, Progress, prebuild
from tile_oracle.build.source_providers import kernel_source_option, open_kernel_source
from tile_oracle.commands.arguments import BUILD_DIR, KERNELS, TOOLCHAIN, argument, flag, take_kernel_list
from tile_oracle.commands.kernel_verify import verified_lines, verified_status, verify_kernels
from tile_oracle.errors import BuildError, KernelError
from tile_oracle.kernel import Kernel
from tile_oracle.operation import operation_named, operation_names
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, DTYPES
from tile_oracle.pool import list_of_kernels, load_rule_set, pool_of_kind, rules_of
from tile_oracle.pool.kernel_filter import KernelFilter
from tile_oracle.problem import Kind, kind_text
from tile_oracle.problem_set import load_problem_sets
from tile_oracle.process.cores import usable_cores
from tile_oracle.terminal.progress_line import ProgressLine, clock

EXAMPLES = """\
examples:
  tile-oracle build -o kernels-v3 --isa x86-64-v3                   the default pool: forward, bf16, 2D
  tile-oracle build -o kernels-v3 --isa x86-64-v3 --problem-set forward_smoke,bwd_data_smoke
                                                                    what these problem sets need
  tile-oracle build -o gemms --op gemm --layout rcr,rrr --dtype bf16 --isa x86-64-v3
  pytest --problem-set forward_smoke --build-dir kernels-v3         on the other machine: no compiler needed
  tile-oracle build -o ck --arch gfx950 --ck-tile composable_kernel --kernel-set profiler
                                                                    CK Tile's own kernels
  tile-oracle build -o mine --arch sm_90 --kernels my_kernels.py    kernels written in Triton
  tile-oracle build -o few --arch sm_90 --kernels few.json          the list of `tile-oracle pool portfolio`

instruction sets:
  native (this machine's), x86-64, x86-64-v2, x86-64-v3, x86-64-v4, armv8-a, armv8.2-a, armv8.4-a,
  armv8.6-a; with extensions as in x86-64-v4+avx512bf16 or armv8.2-a+bf16+fp16
"""

_LOGS_SHOWN = 10
_LOG_LINES_SHOWN = 8


ABOUT = (
    "Compiles all kernels of a pool into a folder with a manifest. Kernels that do not compile are\n"
    "listed with the end of the compiler's log, and make the exit status 1."
)
ARGUMENTS = (
    argument("-o --output", "DIR", "the folder to fill", type=Path, required=True),
    argument("--kernel-set", "NAME", "rule set", default="default"),
    argument("--kernel-filter", "EXPRESSION", "only kernels for which this holds"),
    argument("--problem-set", "NAMES", "build for the kinds of problems in these sets"),
    argument("--op", None, f"operation (default: {operation_names()[0]})", choices=operation_names()),
    argument("--direction", "WORDS", f"of {', '.join(DIRECTIONS)} (default: forward)"),
    argument("--layout", "WORDS", f"GEMM: of {', '.join(GEMM_LAYOUTS)} (default: rcr)"),
    argument("--dtype", "WORDS", f"of {', '.join(DTYPES)}, of GEMM also fp8 (default: bf16)"),
    argument("--ndim", "NUMBERS", "of 2, 3 (default: 2)"),
    argument("--arch", None, "cpu, gfx950, gfx942, gfx90a or sm_90", default="cpu"),
    argument("--isa", "NAME", "instruction set", default="native"),
    TOOLCHAIN,
    argument(
        "--ck-tile",
        "DIR",
        "build CK Tile's own kernels, from a checkout of Composable Kernel or a ROCm install",
        type=Path,
    ),
    argument("--kernel-source", "NAME[=ARGUMENT]", "build the kernels of an installed kernel source"),
    KERNELS,
    flag(
        "--verify",
        "AMD's GPUs: refuse kernels whose machine code lacks a wait or barrier, and count those for "
        "which this is not proven; with any of these the exit status is 3",
    ),
    argument("-j --jobs", "N", "compilers at once (default: one per core)", type=int),
    BUILD_DIR,
    argument("--compile-timeout", "S", "time limit for one kernel, seconds", type=float, default=300.0),
)


def run(args: argparse.Namespace) -> int:
    """Builds, reports, and returns 1 when a kernel did not compile, or what `verified_status` says.
    Raises HarnessError."""
    take_kernel_list(args)
    option = kernel_source_option(args.kernel_source, args.ck_tile, args.kernels)
    source = open_kernel_source(args.arch, option)
    kernels = _pool(args, source)
    with Builder(
        arch=args.arch,
        toolchain=args.toolchain,
        build_dir=args.build_dir,
        jobs=usable_cores() if args.jobs is None else args.jobs,
        isa=args.isa,
        timeout_s=args.compile_timeout,
        runs_here=False,
        source=source,
        verify=REFUSE if args.verify else "",
    ) as builder:
        native = source.implementation == NATIVE
        kernels, left_out = (kernels, []) if native else _in_source(source, kernels)
        with ProgressLine(sys.stderr) as line:
            report = prebuild(builder, kernels, args.output, lambda p: line.show(describe_progress(p)))
        source.describe_in(args.output)
        left_out = [*source.notes, *left_out]
        if native and (more := list_of_kernels(args.kernel_set).triton):
            left_out = [
                *left_out,
                f"{len(more)} of {args.kernel_set} are in Triton and need a folder of their own: tile-oracle "
                f"build -o DIR --arch {args.arch} --kernels triton --kernel-set {args.kernel_set}",
            ]
        verified = verify_kernels(builder, (one.kernel for one in report.built), args.verify)
        said = verified_lines(verified) if verified else []
        print("\n".join([*left_out, *said, describe_report(report, builder)]))
    return 1 if report.failed else verified_status(verified)


def _pool(args: argparse.Namespace, source: KernelSource) -> list[Kernel]:
    where = None if args.kernel_filter is None else KernelFilter(args.kernel_filter)
    kernels: list[Kernel] = []
    if source.kinds is not None:
        return own_kernels(source, args, where)
    rules = rules_of(args.kernel_set, args.ck_tile)
    for kind in _kinds(args, load_rule_set(rules).kinds):
        kernels += pool_of_kind(kind, args.arch, rules, where)
    return kernels


def own_kernels(source: KernelSource, args: argparse.Namespace, where: KernelFilter | None) -> list[Kernel]:
    """The kernels of a source that has its own: all, or those for the asked kinds of problems.

    Raises BuildError when there are none.
    """
    listed, known_kinds = list_of_kernels(args.kernel_set), source.kinds or ()
    problem_set = getattr(args, "problem_set", None)
    if problem_set is not None:
        kinds = _kinds(args)
        source.expect(load_problem_sets(problem_set).problems)
    else:
        asked = {name: getattr(args, name) for name in ("direction", "layout", "dtype", "ndim")}
        kinds = [kind for kind in known_kinds if _is_asked(kind, asked)]
    if listed.triton:
        of_list = {kernel.kind for kernel in listed.triton}
        kinds = [kind for kind in kinds if kind in of_list]
    kernels = [
        kernel
        for kind in kinds
        for kernel in listed.narrowed(source.pool(kind))
        if where is None or where.matches(kernel)
    ]
    if not kernels and listed.triton:
        raise BuildError(
            f"--kernels {args.kernels} has none of the kernels in Triton that {args.kernel_set} lists"
        )
    if not kernels:
        known = ", ".join(map(kind_text, known_kinds))
        raise BuildError(f"there is no such kernel in {args.kernels}: it has kernels for {known}")
    return kernels


def _is_asked(kind: Kind, asked: Mapping[str, object]) -> bool:
    """Whether a kind has one of the words that are given for each of its fields."""
    given = {name: str(words).split(",") for name, words in asked.items() if words is not None}
    return all(str(kind.words.get(name)) in words for name, words in given.items())


def _in_source(source: KernelSource, kernels: Iterable[Kernel]) -> tuple[list[Kernel], list[str]]:
    """The kernels that a source has, and lines that say why it lacks the others.

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
    lines = [f"{count} kernels unsupported: {reason}" for reason, count in reasons.most_common()]
    if not there:
        raise BuildError(lines[0] if lines else "there is no kernel to build")
    return there, lines


def _kinds(args: argparse.Namespace, listed: Sequence[Kind] = ()) -> list[Kind]:
    """The kinds of problem whose kernels to build, sorted. listed: what is built if no option says it."""
    words = (args.op, args.direction, args.layout, args.dtype, args.ndim)
    if args.problem_set is not None:
        if any(word is not None for word in words):
            raise BuildError(
                "--problem-set says the operation and the kinds of its problems: give it or them, not both"
            )
        problems = load_problem_sets(args.problem_set).problems
        return sorted({problem.kind for problem in problems}, key=kind_text)
    if listed and all(word is None for word in words):
        return sorted(listed, key=kind_text)
    operation = operation_named(args.op or operation_names()[0])
    given = {"direction": args.direction, "layout": args.layout, "ndim": args.ndim, "dtype": args.dtype}
    for name, word in given.items():
        if word is not None and name not in operation.kind_fields:
            raise BuildError(f"--{name} is not for --op {operation.name}: leave it out")
    only = {}
    for name, values in operation.kind_fields.items():
        known = {str(value): value for value in values}
        default = operation.defaults.get(name, str(values[0]))
        only[name] = [known[word] for word in _some_of(f"--{name}", given.get(name) or default, known)]
    return sorted(operation.kinds(only), key=kind_text)


def _some_of(option: str, text: str, known: Iterable[str]) -> list[str]:
    words = list(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        if word not in known:
            raise BuildError(
                f"{option} {word!r} is not one of {', '.join(known)} (several: joined by commas)"
            )
    return words


def describe_progress(progress: Progress) -> str:
    """One line: counts, rate, time left."""
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
    """The report: what was built, what failed and why, and where the folder is."""
    lines: list[str] = []
    for number, result in enumerate(report.failed):
        lines += _describe_failure(result) if number < _LOGS_SHOWN else [f"{result.kernel.name}: build_error"]
    stats = builder.stats()
    made_by = builder.toolchain.identity if builder.toolchain else ""
    lines.append(
        f"{len(report.built)} kernels built ({stats.compiled} compiled, {stats.cached} from the cache), "
        f"{len(report.failed)} failed, {report.elapsed_s:.1f} s; {made_by}, {builder.isa.name}"
    )
    if report.replaced:
        lines.append(
            f"{report.replaced} kernels of an earlier, different build in {report.folder} were dropped"
        )
    # A folder of kernels in Triton stands for their source; other kernels' folder is a cache of binaries.
    use = "--kernels" if builder.source.implementation == TRITON else "--build-dir"
    lines.append(f"{report.folder}: {report.kernels_in_folder} kernels; use it with {use}")
    return "\n".join(lines)


def _describe_failure(result: BuildResult) -> list[str]:
    shown = result.log.splitlines()[-_LOG_LINES_SHOWN:]
    return [f"{result.kernel.name}: build_error", *(f"    {line}" for line in shown), ""]
