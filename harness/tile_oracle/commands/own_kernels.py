"""`tile-oracle pool list --kernels FILE`: the kernels of a source that has its own."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tile_oracle.arch import load_arch
from tile_oracle.build.builder import VERIFIABLE
from tile_oracle.build.kernel_source import KernelSource
from tile_oracle.build.source_providers import kernels_option, open_kernel_source
from tile_oracle.commands.build import own_kernels
from tile_oracle.commands.json_output import print_json
from tile_oracle.commands.kernel_code import inspect_kernels
from tile_oracle.commands.kernel_facts import KernelFacts, markdown_table
from tile_oracle.errors import BuildError, RuleError
from tile_oracle.kernel import Kernel, NamedKernel
from tile_oracle.pool.kernel_filter import KernelFilter
from tile_oracle.problem import kind_text
from tile_oracle.terminal.text_table import text_table

_COLUMNS = {
    "registers": "vgprs",
    "of these AGPRs": "agprs",
    "LDS bytes": "lds_bytes",
    "spills": "spills",
    "workgroups/CU": "workgroups_per_cu",
    "waves/CU": "waves_per_cu",
    "matrix instr. in loop": "loop_matrix_instructions",
}
"""Heading -> field of CodeFacts."""


def show_own_kernels(args: argparse.Namespace) -> int:
    """Prints counts, names (--list), resources (--facts) or findings in the machine code (--verify).

    Returns 1 when a kernel spills, does not compile or has findings. Raises HarnessError.
    """
    if args.arch is None:
        raise RuleError("--kernels compiles for one architecture: give --arch gfx950 or sm_90")
    if args.verify and load_arch(args.arch).name not in VERIFIABLE:
        raise RuleError(f"--verify is for {', '.join(VERIFIABLE)}: nothing reads the code of {args.arch}")
    source = open_kernel_source(load_arch(args.arch).name, kernels_option(args.kernels))
    if source.kinds is None:
        raise BuildError(f"--kernels {args.kernels} has no kernels of its own")
    where = KernelFilter(args.kernel_filter) if args.kernel_filter is not None else None
    kernels = own_kernels(source, args, where)
    if args.facts or args.verify:
        return _show_facts(source, kernels, args)
    if args.json:
        print_json(
            {
                "arch": args.arch,
                "notes": source.notes,
                "kernels": [
                    {
                        "kernel": one.name,
                        "kind": kind_text(one.kind),
                        "function": getattr(one, "function", None),
                    }
                    for one in kernels
                ],
            }
        )
        return 0
    if args.list:
        print("\n".join(kernel.name for kernel in kernels))
        return 0
    counts = Counter((kind_text(one.kind), one.function) for one in kernels if isinstance(one, NamedKernel))
    rows = [("kind", "function", "kernels"), *((kind, name, str(n)) for (kind, name), n in counts.items())]
    print(
        "\n".join([*text_table(rows, (2,)), "", f"{len(kernels):,} kernels for {args.arch}", *source.notes])
    )
    return 0


def _show_facts(source: KernelSource, kernels: list[Kernel], args: argparse.Namespace) -> int:
    code = inspect_kernels(kernels, load_arch(args.arch), args, source)
    if args.json:
        print_json({"arch": code.arch.name, "notes": source.notes, **code.document(args)})
        return code.exit_status
    lines = [*code.verdict, *code.findings(args), *source.notes]
    if args.facts:
        rows = [(*_COLUMNS, "binary KiB", "kernel"), *map(_row, code.found)]
        filled = [i for i in range(len(rows[0])) if any(row[i] != "-" for row in rows[1:])]
        table = [tuple(row[i] for i in filled) for row in rows]
        right = range(len(table[0]) - 1)
        print("\n".join(markdown_table(table) if args.markdown else text_table(table, right)))
        lines = ["", *lines]
    print("\n".join(lines), file=sys.stderr if args.markdown else sys.stdout)
    return code.exit_status


def _row(one: KernelFacts) -> tuple[str, ...]:
    values = (getattr(one.facts, name) for name in _COLUMNS.values())
    texts = ("-" if value is None else f"{value:,}" for value in values)
    size = str(round(one.binary_bytes / 1024)) if one.binary_bytes else "-"
    return (*texts, size, one.kernel.name)
