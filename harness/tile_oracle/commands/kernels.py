"""`tile-oracle kernels`: the kernels of a rule set, the refused ones with reasons, the meaning of a name."""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.arch import Arch, known_archs, load_arch
from tile_oracle.arch.occupancy import archs_with_occupancy
from tile_oracle.atomic_file import write_atomically
from tile_oracle.build.builder import NOTE, VERIFIABLE, Builder
from tile_oracle.build.drift import drift, read_version
from tile_oracle.build.source import gpu_code_refusal
from tile_oracle.commands.build import describe_progress
from tile_oracle.commands.json_output import add_json, print_json
from tile_oracle.commands.kernel_diff import diff_document, diff_lines
from tile_oracle.commands.kernel_facts import (
    KernelFacts,
    fact_rows,
    facts_document,
    find_facts,
    find_offenders,
    markdown_table,
    verdict_lines,
)
from tile_oracle.commands.kernel_verify import (
    Verified,
    file_lines,
    verified_document,
    verified_lines,
    verify_file,
    verify_kernels,
)
from tile_oracle.commands.options import add_build_dir, add_kernels, add_toolchain, take_kernel_list
from tile_oracle.cores import usable_cores
from tile_oracle.errors import KernelError, RuleError
from tile_oracle.kernel import Kernel, TiledKernel, kernel_of_kind, parse_kernel_name, tiled
from tile_oracle.kernel_filter import KernelFilter, filter_fields
from tile_oracle.operation import Operation, operation_named, operation_names
from tile_oracle.operations.gemm.problem import GEMM_DTYPES, GEMM_LAYOUTS
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, DTYPES
from tile_oracle.pool import (
    PoolExplanation,
    Refused,
    RuleSet,
    explain_pool_of_kind,
    list_rule_sets,
    load_rule_set,
    rules_of,
)
from tile_oracle.pool.ck_builder import SUFFIXES
from tile_oracle.problem import Kind, kind_text
from tile_oracle.progress_line import ProgressLine
from tile_oracle.text_table import text_table

_DTYPES = tuple(dict.fromkeys((*DTYPES, *GEMM_DTYPES)))

HELP = "list and count the kernels of a rule set, explain refusals and names"

_EXAMPLES = """\
examples:
  tile-oracle kernels                                      counts of the default set, each architecture
  tile-oracle kernels --kernel-set full --arch gfx950      counts of another set, one architecture
  tile-oracle kernels --arch cpu --direction forward --dtype bf16 --ndim 2
                                                           one kind of problem: a table of tile x pipeline
  tile-oracle kernels --arch gfx950 --kernel-filter "tile_n >= 128 and pipeline == 'compv5'" --list
                                                           the names that pass a filter, one per line
  tile-oracle kernels --arch gfx950 --refused              what the rules propose and gfx950 refuses
  tile-oracle kernels --op gemm --arch gfx950              GEMM kernels by data type and layout
  tile-oracle kernels --arch gfx950 --dtype bf16 --kernel-filter "tile_m==16 and pipeline=='compv4'" --facts
                                                           compile them: registers, LDS, spills, occupancy
  tile-oracle kernels --arch gfx950 --dtype bf16 --kernel-filter "tile_m==16 and pipeline=='compv4'" --verify
                                                           compile them, and verify the waits in their code
  tile-oracle kernels --arch gfx950 --kernel-set full --dtype fp16 --verify --sample 3
                                                           the same for some kernels of a large set
  tile-oracle kernels --kernels my_kernels.py --arch gfx950 --facts
                                                           kernels written in Triton: compile them, resources
  tile-oracle kernels --kernels my_kernels.py --arch gfx950 --verify --sample 20
                                                           and their waits
  tile-oracle kernels --verify kernel.s                    the same for a compiler's assembly or a code object
  tile-oracle kernels --diff kernels-old kernels-new       what changed between two folders of tile-oracle
                                                           build, build caches or lists of names
  tile-oracle kernels grouped_conv_forward_bf16_2d_64x64x64_compv4_intrawave
                                                           a name's fields, and which architectures allow it

a rule set of your own (--kernel-set mine.json; the shipped ones are kernels/rules/*.json):
  {"blocks": [{"arch": ["cpu"], "pipeline": ["mem", "compv3"],
               "tiles": [{"tile": "64x64x64", "waves": "1x1x1", "warp_tile": ["4x32x1", "8x32x1"]}]}]}

fields of a filter:
"""


@dataclass(frozen=True)
class _Kind:
    """An architecture and a kind of problem, with its pool. A table of counts has a row for (arch, dtype,
    `row`) and a column for `column`: for convolutions rank and direction; for GEMM operation and layout."""

    arch: str
    kind: Kind
    pool: PoolExplanation

    @property
    def dtype(self) -> str:
        return self.kind.dtype

    @property
    def row(self) -> str:
        ndim = self.kind.words.get("ndim")
        return self.kind.op if ndim is None else f"{ndim}D"

    @property
    def column(self) -> str:
        words = self.kind.words
        return str(words.get("direction", list(words.values())[-1]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `tile-oracle kernels`."""
    parser.description = (
        "Counts the kernels of a rule set by architecture and kind of problem; for one kind, by tile and\n"
        "pipeline. Also lists names, explains refusals, and explains a kernel's name."
    )
    of_gemm = "\nfields of GEMM kernels:\n" + _wrapped(filter_fields("gemm"), width=90)
    parser.epilog = _EXAMPLES + _wrapped(filter_fields("grouped_conv"), width=90) + of_gemm
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a kernel's full or short name: explain it; with --verify: a file to verify",
    )
    parser.add_argument(
        "--arch", metavar="ARCH", help=f"one of {', '.join(known_archs())} (default: all of the set)"
    )
    parser.add_argument(
        "--op", choices=operation_names(), default="grouped_conv", help="operation (default: %(default)s)"
    )
    parser.add_argument("--direction", choices=DIRECTIONS, help="of convolutions (default: all three)")
    parser.add_argument("--layout", choices=GEMM_LAYOUTS, help="of GEMMs (default: all four)")
    parser.add_argument("--dtype", choices=_DTYPES, help="default: all")
    parser.add_argument("--ndim", type=int, choices=(2, 3), help="rank of a convolution (default: both)")
    parser.add_argument(
        "--kernel-set", default="default", metavar="SET",
        help=f"{', '.join(list_rule_sets())}, or the path of a .json or a .conf file (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--ck-tile",
        type=Path,
        metavar="DIR",
        help="a checkout of Composable Kernel, whose CK Builder configs the sets profiler and tests are",
    )
    add_kernels(parser)
    parser.add_argument("--kernel-filter", metavar="EXPR", help="only the kernels for which this is true")
    parser.add_argument("--list", action="store_true", help="print the names, one per line")
    parser.add_argument(
        "--refused",
        action="store_true",
        help="explain which kernels the architectures refuse (with --list: one line per kernel)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE",
        help="write the kernels to a file: a dispatcher's instance list (.json), or names, one per line "
        "(.txt)",
    )  # fmt: skip
    parser.add_argument(
        "--traits", action="store_true", help="with -o FILE.json: write tile_engine's trait list instead"
    )
    parser.add_argument(
        "--facts", action="store_true",
        help="compile the kernels for the GPU --arch and show the resources that each tile and pipeline "
        "uses; exit status 1 when a kernel spills, uses scratch memory, needs too much LDS or does not "
        "compile (with --list: a row for each kernel)",
    )  # fmt: skip
    parser.add_argument(
        "--verify", action="store_true",
        help="compile the kernels for an AMD GPU and prove from their machine code that loads are waited "
        "for, LDS writes complete before barriers, and wait states are kept; exit status 1 with findings "
        "(with --list: all of them). With a path as NAME: verify that file, assembly, a code object or the "
        "archive of a kernel in Triton",
    )  # fmt: skip
    parser.add_argument(
        "--sample", type=_count, metavar="N",
        help="--facts and --verify for N of the kernels, chosen at random",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=1, metavar="S",
        help="--sample chooses others with another S (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--diff", nargs=2, type=Path, metavar=("A", "B"),
        help="compare two versions of a pool: folders of tile-oracle build, build caches (--build-dir), or "
        "text files with one kernel name per line; exit status 1 when they differ",
    )  # fmt: skip
    add_json(parser, "everything that is shown, complete,")
    parser.add_argument("--markdown", action="store_true", help="--facts as a Markdown table")
    add_toolchain(parser)
    parser.add_argument(
        "-j", "--jobs", type=_count, metavar="N", help="compilers at once (default: one per core)"
    )
    add_build_dir(parser)
    parser.add_argument(
        "--first",
        type=_count,
        default=20,
        metavar="N",
        help="reasons or names shown (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Prints what was asked for. Raises RuleError or KernelError."""
    if args.diff is not None:
        found = drift(*map(read_version, args.diff))
        if args.json:
            print_json(diff_document(found))
        else:
            print("\n".join(diff_lines(found, args.first)))
        return 1 if found else 0
    if args.sample is not None and not (args.facts or args.verify):
        raise RuleError("--sample is for --facts and --verify: give one of them, or leave --sample out")
    if args.json and (args.markdown or args.output is not None):
        raise RuleError("--json prints what is shown: leave out --markdown and -o, or --json")
    take_kernel_list(args)
    if args.kernels is not None:
        from tile_oracle.commands.own_kernels import show_own_kernels

        return show_own_kernels(args)
    if args.name is not None and args.verify:
        one = verify_file(Path(args.name))
        if args.json:
            print_json(verified_document([one]))
        else:
            print("\n".join(file_lines(one)))
        return 0 if one.is_clean else 1
    if args.name is not None:
        archs = (load_arch(args.arch).name,) if args.arch else None
        kernel, written = _kernel_named(args)
        if args.json:
            print_json(kernel_document(kernel, archs))
        else:
            print(explain_kernel(kernel, written, archs))
        return 0
    rule_set = load_rule_set(rules_of(args.kernel_set, args.ck_tile))
    where = KernelFilter(args.kernel_filter) if args.kernel_filter is not None else None
    kinds = list(_kinds(rule_set, args, where))
    if args.facts or args.verify:
        return _print_facts(kinds, args)
    if args.output is not None:
        print(_write_list(kinds, args.output, traits=args.traits))
    elif args.json:
        print_json(_pool_document(rule_set, kinds, args))
    elif args.list and args.refused:
        for refused in (refused for kind in kinds for refused in kind.pool.refused):
            print(f"{_printable(refused.place)}: {refused.kernel.name}: {refused.reason}")
        for place, reason in rule_set.left_out:
            print(f"{_printable(place)}: {reason}")
    elif args.list:
        for kind in kinds:
            for kernel in kind.pool.accepted:
                print(kernel.name)
    elif args.refused:
        print(explain_refusals(rule_set, kinds, first=args.first))
    else:
        print("\n".join([count_kernels(rule_set, kinds, filtered=where is not None), *rule_set.notes]))
    return 0


def _pool_document(rule_set: RuleSet, kinds: Sequence[_Kind], args: argparse.Namespace) -> dict[str, object]:
    """Counts of each kind; with --list the kernels, with --refused the refusals."""
    return {
        "kernel_set": rule_set.name,
        "about": rule_set.about,
        "notes": rule_set.notes,
        "left_out": [{"place": place, "reason": reason} for place, reason in rule_set.left_out],
        "kinds": [
            {
                "arch": kind.arch,
                "op": kind.kind.op,
                **dict(kind.kind.fields),
                "kernels": len(kind.pool.accepted),
                "filtered_out": len(kind.pool.filtered_out),
                "refused": len(kind.pool.refused),
                **({"names": [kernel.name for kernel in kind.pool.accepted]} if args.list else {}),
                **({"refusals": list(map(_refusal, kind.pool.refused))} if args.refused else {}),
            }
            for kind in kinds
        ],
    }


def _refusal(one: Refused) -> dict[str, str]:
    return {"kernel": one.kernel.name, "rule": one.rule, "reason": one.reason, "place": one.place}


def _write_list(kinds: Sequence[_Kind], path: Path, *, traits: bool) -> str:
    """Writes the accepted kernels as a list; returns a message. Raises RuleError or KernelError."""
    kernels = [kernel for kind in kinds for kernel in kind.pool.accepted]
    if not kernels:
        raise RuleError("there is no kernel to write: --refused says why")
    if path.suffix == ".txt" and not traits:
        text = "".join(f"{kernel.name}\n" for kernel in dict.fromkeys(kernels))
    elif path.suffix == ".json":
        first, *others = kinds
        lists = operation_named(first.kind.op).kernel_lists
        if others or lists is None:
            raise RuleError(
                f"{path.name} holds one kind of convolution: give --arch, --direction, --dtype and --ndim"
            )
        if traits:
            of_default = explain_pool_of_kind(first.kind, first.arch, "default").accepted
            text = lists().traits_json(kernels, of_default)
        else:
            text = lists().instances_json(kernels)
    else:
        raise RuleError(f"{path.name} ends neither in .json nor, without --traits, in .txt")
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise RuleError(f"{path} cannot be written: {error.strerror}") from None
    return f"{path}: {len(kernels):,} kernels"


def _print_facts(kinds: Sequence[_Kind], args: argparse.Namespace) -> int:
    """Prints the table and, unless the output is Markdown, the verdict; returns 1 when it is bad."""
    option = "--facts" if args.facts else "--verify"
    if args.arch is None:
        archs = "gfx950" if args.verify else "gfx950 or sm_90"
        raise RuleError(f"{option} compiles for one architecture: give --arch {archs}")
    arch = load_arch(args.arch)
    if args.verify and arch.name not in VERIFIABLE:
        raise RuleError(f"--verify is for {', '.join(VERIFIABLE)}: nothing reads the code of {arch.name}")
    if arch.name not in archs_with_occupancy():
        raise RuleError(f"--facts is for GPUs: give --arch {' or '.join(archs_with_occupancy())}")
    allowed = [kernel for kind in kinds for kernel in kind.pool.accepted]
    refusals = {kernel: gpu_code_refusal(kernel, arch.name) for kernel in allowed}
    reasons = Counter(reason for reason in refusals.values() if reason is not None)
    kernels = [kernel for kernel, reason in refusals.items() if reason is None]
    if not kernels:
        why = f"none has code: {next(iter(reasons))}" if reasons else "--refused says why"
        raise RuleError(f"there is no kernel for {arch.name} to compile: {why}")
    of_all = ""
    if args.sample is not None and args.sample < len(kernels):
        of_all = f"a sample of {args.sample:,} of {len(kernels):,} kernels (--seed {args.seed})"
        kernels = random.Random(args.seed).sample(kernels, args.sample)
    jobs = args.jobs or usable_cores()
    verify = NOTE if args.verify else ""
    with Builder(args.arch, args.toolchain, args.build_dir, jobs, runs_here=False, verify=verify) as builder:
        with ProgressLine(sys.stderr) as line:
            found = find_facts(builder, kernels, lambda p: line.show(describe_progress(p)))
        verified = verify_kernels(builder, (one.kernel for one in found if one.binary_bytes), args.verify)
        rows = fact_rows(found, arch, each=args.list)
        if args.json:
            print_json(
                {
                    "arch": arch.name,
                    "toolchain": builder.toolchain.identity if builder.toolchain else None,
                    "facts": facts_document(found, arch) if args.facts else None,
                    "verified": verified_document(verified) if args.verify else None,
                    "without_code": dict(reasons),
                }
            )
            return _facts_status(found, arch, verified)
        verdict = [*verdict_lines(found, arch, builder), *([of_all] if of_all else [])]
    verdict += [
        f"{count:,} more {'have' if count > 1 else 'has'} no code: {reason}"
        for reason, count in reasons.most_common()
    ]
    if args.facts:
        print("\n".join(markdown_table(rows) if args.markdown else text_table(rows, range(4, len(rows[0])))))
        verdict = ["", *verdict]
    if args.verify:
        verdict += verified_lines(verified, details=args.list and not args.facts)
    print("\n".join(verdict), file=sys.stderr if args.markdown else sys.stdout)
    return _facts_status(found, arch, verified)


def _facts_status(found: Sequence[KernelFacts], arch: Arch, verified: Sequence[Verified]) -> int:
    return 1 if find_offenders(found, arch) or not all(one.is_clean for one in verified) else 0


def _kernel_named(args: argparse.Namespace) -> tuple[Kernel, str]:
    """The kernel of a full name, or of a short one if the options name one kind, and its full name as given.
    Raises KernelError."""
    try:
        return parse_kernel_name(args.name), args.name
    except KernelError as error:
        of_kinds = {}
        for kind in operation_named(args.op).kinds(_only(args)):
            with suppress(KernelError):
                of_kinds[kind] = kernel_of_kind(kind, args.name)
        if not of_kinds:
            raise error from None
    if len(of_kinds) > 1:
        first = next(iter(of_kinds.values()))
        raise KernelError(
            f"{args.name} is the short name of kernels for {len(of_kinds)} kinds of problems: add "
            f"{' and '.join('--' + name for name, _ in next(iter(of_kinds)).fields)}, or give a full name "
            f"such as {first.name}"
        )
    (kernel,) = of_kinds.values()
    return kernel, kernel.name


def _only(args: argparse.Namespace) -> dict[str, tuple[str | int]]:
    given = {"direction": args.direction, "ndim": args.ndim, "layout": args.layout, "dtype": args.dtype}
    return {name: (value,) for name, value in given.items() if value is not None}


def _kinds(rule_set: RuleSet, args: argparse.Namespace, where: KernelFilter | None) -> Iterator[_Kind]:
    """The selected kinds that the rule set covers. Raises RuleError when it covers none of them."""
    operation = operation_named(args.op)
    archs = (load_arch(args.arch).name,) if args.arch else rule_set.archs(args.op)
    if not archs:
        raise RuleError(f"kernel set {_printable(rule_set.name)} has no rules for {args.op} kernels")
    given = {"direction": args.direction, "ndim": args.ndim, "layout": args.layout}
    for name, value in given.items():
        if value is not None and name not in operation.kind_fields:
            raise RuleError(f"--{name} is not for --op {args.op}: leave it out")
    kinds = sorted(operation.kinds(_only(args)), key=lambda kind: _place(operation, kind))
    wanted = [(arch, kind) for arch in archs for kind in kinds]
    covered = [(arch, kind) for arch, kind in wanted if rule_set.covers(kind, arch)]
    # If no kind is covered, the pool of the first one raises the error that names the missing rules.
    for arch, kind in covered or wanted[:1]:
        yield _Kind(arch, kind, explain_pool_of_kind(kind, arch, rule_set.name, where))


def _place(operation: Operation, kind: Kind) -> list[int]:
    """Rows of one data type together, then of one rank."""
    places = {name: list(operation.kind_fields[name]).index(value) for name, value in kind.fields}
    return [places.pop("dtype"), *reversed(places.values())]


# ---- counts -------------------------------------------------------------------------------------


def count_kernels(rule_set: RuleSet, kinds: Sequence[_Kind], filtered: bool = False) -> str:
    """A table of counts: per kind; for a single kind, per tile and pipeline."""
    lines = [f"kernel set {_printable(rule_set.name)}"]
    lines += [f"  {line}" for line in _wrapped(_printable(rule_set.about).split(), " ", 100).splitlines()]
    if len(kinds) == 1:
        lines += ["", *_tile_table(kinds[0], filtered)]
    else:
        lines += ["", *_kind_table(kinds, filtered)]
    refused = sum(len(kind.pool.refused) for kind in kinds)
    if refused:
        lines += ["", f"{refused:,} more are proposed by the rules and refused: --refused says why"]
        if rule_set.name.endswith(SUFFIXES):
            lines += ["this is tile-oracle's own family; --ck-tile DIR allows what a checkout can build"]
    return "\n".join(lines)


def _kind_table(kinds: Sequence[_Kind], filtered: bool) -> list[str]:
    columns = list(dict.fromkeys(k.column for k in kinds))
    cells = {(k.arch, k.dtype, k.row, k.column): _size(k.pool, filtered) for k in kinds}
    rows = [("arch", "dtype", "op" if kinds[0].row == kinds[0].kind.op else "rank", *columns)]
    for arch, dtype, row in dict.fromkeys((k.arch, k.dtype, k.row) for k in kinds):
        rows.append((arch, dtype, row, *(cells.get((arch, dtype, row, name), "-") for name in columns)))
    return text_table(rows, right_aligned=range(3, 3 + len(columns)))


def _tile_table(kind: _Kind, filtered: bool) -> list[str]:
    accepted = kind.pool.accepted
    title = f"{kind.arch}, {kind_text(kind.kind)}: {_size(kind.pool, filtered)} kernels"
    if "pipeline" not in operation_named(kind.kind.op).kernel_fields:
        return [title, "", *(kernel.name for kernel in accepted)]
    kernels = [tiled(kernel) for kernel in accepted]
    pipelines = list(dict.fromkeys(kernel.pipeline for kernel in sorted(kernels, key=lambda k: k.pipeline)))
    counts = Counter((_tiling(kernel), kernel.pipeline) for kernel in kernels)
    rows = [("tile", "waves", "warp tile", *pipelines, "all")]
    for tiling in dict.fromkeys(map(_tiling, kernels)):
        in_row = [counts[tiling, pipeline] for pipeline in pipelines]
        rows.append((*tiling, *(f"{count:,}" if count else "-" for count in in_row), f"{sum(in_row):,}"))
    in_all = Counter(kernel.pipeline for kernel in kernels)
    rows.append(("all", "", "", *(f"{in_all[pipeline]:,}" for pipeline in pipelines), f"{len(kernels):,}"))
    return [title, "", *text_table(rows, right_aligned=range(3, 4 + len(pipelines)))]


def _size(pool: PoolExplanation, filtered: bool) -> str:
    size = f"{len(pool.accepted):,}"
    return f"{size} of {len(pool.accepted) + len(pool.filtered_out):,}" if filtered else size


def _tiling(kernel: TiledKernel) -> tuple[str, str, str]:
    return (_x(kernel.tile), _x(kernel.waves), _x(kernel.warp_tile))


# ---- refusals -----------------------------------------------------------------------------------


def explain_refusals(rule_set: RuleSet, kinds: Sequence[_Kind], first: int = 20) -> str:
    """How many kernels each rule and each reason refuses, with an example for each reason."""
    accepted = sum(len(kind.pool.accepted) + len(kind.pool.filtered_out) for kind in kinds)
    refused = [one for kind in kinds for one in kind.pool.refused]
    archs = ", ".join(dict.fromkeys(kind.arch for kind in kinds))
    problems = f"{len(kinds)} kind{'s' * (len(kinds) > 1)} of problem"
    lines = [
        f"kernel set {_printable(rule_set.name)} on {archs}, {problems}: "
        f"{accepted + len(refused):,} proposed, {accepted:,} allowed, {len(refused):,} refused"
    ]
    if rule_set.left_out:
        lines += ["", f"lines that make no kernel ({len(rule_set.left_out):,})"]
        lines += [f"  {place}: {reason}" for place, reason in rule_set.left_out]
    if not refused:
        return "\n".join(lines)
    by_rule = Counter(one.rule for one in refused).most_common()
    lines += ["", "refused for"]
    lines += text_table([(f"  {rule}", f"{count:,}") for rule, count in by_rule], right_aligned=(1,))
    reasons = Counter(one.reason for one in refused).most_common()
    examples = {one.reason: one for one in reversed(refused)}
    lines += ["", f"reasons; the first one found for a kernel counts ({len(reasons):,} different)"]
    for reason, count in reasons[:first]:
        example = examples[reason]
        lines += [f"  {count:>7,}  {reason}", f"           e.g. {example.kernel.name}"]
        lines += [f"           of {_printable(example.place)}"] if example.place else []
    if len(reasons) > first:
        rest = sum(count for _, count in reasons[first:])
        lines.append(f"  {rest:>7,}  for {len(reasons) - first:,} other reasons; --first shows more")
    return "\n".join(lines)


# ---- one kernel ---------------------------------------------------------------------------------


def explain_kernel(kernel: Kernel, written: str | None = None, archs: Sequence[str] | None = None) -> str:
    """A kernel's fields, and for each architecture whether it is allowed and in which sets, or why not."""
    lines = [kernel.name]
    if written is not None and written != kernel.name:
        lines.append(f"  (written as {written}; the name above has every field)")
    lines += [""]
    lines += text_table(
        [(f"  {name}", str(getattr(kernel, name))) for name in kernel.as_row()], right_aligned=()
    )
    lines += [""]
    for name in known_archs() if archs is None else archs:
        arch = load_arch(name)
        refusals = arch.refusals(kernel)
        if refusals:
            lines.append(f"{name:<8} refused")
            lines += [f"           {reason}" for reason in refusals]
        else:
            sets = _sets_with(kernel, arch)
            takes = ""
            if "pipeline" in operation_named(kernel.op).kernel_fields:
                takes = (
                    f"{arch.workgroup_threads(tiled(kernel)):,} threads, "
                    f"{arch.lds_bytes(tiled(kernel)):,} of {arch.lds_limit_bytes:,} LDS bytes; "
                )
            lines.append(
                f"{name:<8} allowed; {takes}"
                + (f"in the sets {', '.join(sets)}" if sets else "in no shipped set")
            )
    return "\n".join(lines)


def kernel_document(kernel: Kernel, archs: Sequence[str] | None = None) -> dict[str, object]:
    """`explain_kernel` as JSON."""
    of_archs = {}
    for name in known_archs() if archs is None else archs:
        arch = load_arch(name)
        refusals = arch.refusals(kernel)
        found: dict[str, object] = {"allowed": not refusals, "refusals": refusals}
        if not refusals:
            found["sets"] = _sets_with(kernel, arch)
            if "pipeline" in operation_named(kernel.op).kernel_fields:
                found["threads"] = arch.workgroup_threads(tiled(kernel))
                found["lds_bytes"] = arch.lds_bytes(tiled(kernel))
        of_archs[name] = found
    return {"kernel": kernel.name, "op": kernel.op, "fields": kernel.as_row(), "archs": of_archs}


def _sets_with(kernel: Kernel, arch: Arch) -> list[str]:
    sets = []
    for name in list_rule_sets():
        if not load_rule_set(name).covers(kernel.kind, arch.name):
            continue
        if kernel in explain_pool_of_kind(kernel.kind, arch, name).accepted:
            sets.append(name)
    return sets


# ---- text ---------------------------------------------------------------------------------------


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0")
    return int(text)


def _x(values: tuple[int, int, int]) -> str:
    return "x".join(map(str, values))


def _printable(text: str) -> str:
    """Removes control characters, which a terminal would interpret."""
    return "".join(char if char.isprintable() else "�" for char in text)


def _wrapped(words: Iterable[str], joint: str = ", ", width: int = 100) -> str:
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(joint) + len(word) > width:
            lines[-1] += joint.rstrip()
            lines.append("")
        lines[-1] += (joint if lines[-1] else "") + word
    return "\n".join("  " + line if joint == ", " else line for line in lines if line)
