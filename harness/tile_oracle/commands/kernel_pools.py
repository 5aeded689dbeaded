"""`tile-oracle pool list`: the pools of a rule set, counted, listed, and what the architectures refuse."""

from __future__ import annotations

import argparse
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.arch import load_arch
from tile_oracle.commands.arguments import take_source, write_text
from tile_oracle.commands.kinds import kinds_of, own_kernels
from tile_oracle.compiling.kernel_source import NATIVE, KernelSource
from tile_oracle.compiling.source_providers import open_kernel_source
from tile_oracle.errors import BuildError, RuleError
from tile_oracle.kernel import Kernel, TiledKernel, tiled
from tile_oracle.operation import operation_named
from tile_oracle.pool import PoolExplanation, Refused, RuleSet, explain_pool_of_kind, load_rule_set, rules_of
from tile_oracle.pool.ck_builder import SUFFIXES
from tile_oracle.pool.kernel_filter import KernelFilter
from tile_oracle.problem import Kind, kind_text
from tile_oracle.terminal.counts import count
from tile_oracle.terminal.progress_line import steps
from tile_oracle.terminal.text_table import text_table


@dataclass(frozen=True)
class KindPool:
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


@dataclass(frozen=True)
class Pools:
    """The pools of a rule set or, with `source`, of a kernel source that has kernels of its own."""

    rules: RuleSet
    kinds: tuple[KindPool, ...]
    source: KernelSource | None = None

    @property
    def accepted(self) -> list[Kernel]:
        """The kernels of all pools."""
        return [kernel for kind in self.kinds for kernel in kind.pool.accepted]


def find_pools(args: argparse.Namespace) -> Pools:
    """Returns the pools of the asked kinds. Raises RuleError or BuildError when there are none."""
    where = KernelFilter(args.kernel_filter) if args.kernel_filter is not None else None
    source = take_source(args)
    if source != NATIVE:
        return _own_pools(source, args, where)
    rules = load_rule_set(rules_of(args.kernel_set, args.ck_tile))
    kinds = kinds_of(args, defaults=False)
    archs = (load_arch(args.arch).name,) if args.arch else rules.archs(kinds[0].op)
    if not archs:
        raise RuleError(f"kernel set {rules.name} has no rules for {kinds[0].op} kernels")
    wanted = [(arch, kind) for arch in archs for kind in kinds]
    covered = [(arch, kind) for arch, kind in wanted if rules.covers(kind, arch)]
    # If no kind is covered, the pool of the first one raises the error that names the missing rules.
    pools = (
        KindPool(arch, kind, explain_pool_of_kind(kind, arch, rules.name, where))
        for arch, kind in steps(f"kernels of {rules.name}", covered or wanted[:1])
    )
    return Pools(rules, tuple(pools))


def _own_pools(named: str, args: argparse.Namespace, where: KernelFilter | None) -> Pools:
    if args.arch is None:
        raise RuleError("--kernels compiles for one architecture: give --arch gfx950 or sm_90")
    arch = load_arch(args.arch).name
    source = open_kernel_source(arch, named)
    if source.kinds is None:
        raise BuildError(f"--kernels {args.kernels} has no kernels of its own")
    kernels = own_kernels(source, args, where)
    kinds = tuple(
        KindPool(arch, kind, PoolExplanation(tuple(one for one in kernels if one.kind == kind), (), ()))
        for kind in dict.fromkeys(kernel.kind for kernel in kernels)
    )
    return Pools(
        RuleSet(args.kernels, "", {}, source.notes_on({one.kind.op for one in kinds})), kinds, source
    )


# ---- counts -------------------------------------------------------------------------------------


def count_kernels(pools: Pools, filtered: bool = False) -> list[str]:
    """Returns a table of counts: per kind; for a single kind, per tile and pipeline."""
    rules, kinds = pools.rules, pools.kinds
    lines = [f"kernel set {rules.name}"]
    lines += [f"  {line}" for line in textwrap.wrap(rules.about, 100)]
    lines += ["", *(_kind_table(kinds, filtered) if len(kinds) > 1 else _tile_table(kinds[0], filtered))]
    refused = sum(len(kind.pool.refused) for kind in kinds)
    if refused:
        lines += ["", f"{refused:,} more are proposed by the rules and refused: --refused says why"]
        if rules.name.endswith(SUFFIXES):
            lines += ["this is tile-oracle's own family; --ck-tile DIR allows what a checkout can build"]
    if pools.source is not None:
        lines += ["", f"{count(len(pools.accepted), 'kernel')} for {kinds[0].arch}"]
    return [*lines, *rules.notes]


def _kind_table(kinds: Sequence[KindPool], filtered: bool) -> list[str]:
    columns = list(dict.fromkeys(k.column for k in kinds))
    cells = {(k.arch, k.dtype, k.row, k.column): _size(k.pool, filtered) for k in kinds}
    rows = [("arch", "dtype", "op" if kinds[0].row == kinds[0].kind.op else "rank", *columns)]
    for arch, dtype, row in dict.fromkeys((k.arch, k.dtype, k.row) for k in kinds):
        rows.append((arch, dtype, row, *(cells.get((arch, dtype, row, name), "-") for name in columns)))
    return text_table(rows, right_aligned=range(3, 3 + len(columns)))


def _tile_table(kind: KindPool, filtered: bool) -> list[str]:
    accepted = kind.pool.accepted
    title = f"{kind.arch}, {kind_text(kind.kind)}: {_size(kind.pool, filtered)} kernels"
    if not all("pipeline" in kernel.__dataclass_fields__ for kernel in accepted):
        functions = Counter(kernel.function for kernel in accepted)
        if functions.keys() == {""}:
            return [title, "", *(kernel.name for kernel in accepted)]
        return [title, "", *text_table([(name, f"{n:,}") for name, n in functions.items()], (1,))]
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


def explain_refusals(pools: Pools, first: int = 20) -> list[str]:
    """Returns how many kernels each rule and each reason refuses, with an example for each reason."""
    rule_set, kinds = pools.rules, pools.kinds
    accepted = sum(len(kind.pool.accepted) + len(kind.pool.filtered_out) for kind in kinds)
    refused = [one for kind in kinds for one in kind.pool.refused]
    archs = ", ".join(dict.fromkeys(kind.arch for kind in kinds))
    lines = [
        f"kernel set {rule_set.name} on {archs}, {count(len(kinds), 'kind')} of problem: "
        f"{accepted + len(refused):,} proposed, {accepted:,} allowed, {len(refused):,} refused"
    ]
    if rule_set.left_out:
        lines += ["", f"lines that make no kernel ({len(rule_set.left_out):,})"]
        lines += [f"  {place}: {reason}" for place, reason in rule_set.left_out]
    if not refused:
        return lines
    by_rule = Counter(one.rule for one in refused).most_common()
    lines += ["", "refused for"]
    lines += text_table([(f"  {rule}", f"{count:,}") for rule, count in by_rule], right_aligned=(1,))
    reasons = Counter(one.reason for one in refused).most_common()
    examples = {one.reason: one for one in reversed(refused)}
    lines += ["", f"reasons; the first one found for a kernel counts ({len(reasons):,} different)"]
    for reason, number in reasons[:first]:
        example = examples[reason]
        lines += [f"  {number:>7,}  {reason}", f"           e.g. {example.kernel.name}"]
        lines += [f"           of {example.place}"] if example.place else []
    if len(reasons) > first:
        rest = sum(count for _, count in reasons[first:])
        lines.append(f"  {rest:>7,}  for {len(reasons) - first:,} other reasons; --first shows more")
    return lines


# ---- lists --------------------------------------------------------------------------------------


def pools_document(pools: Pools, args: argparse.Namespace) -> dict[str, object]:
    """Counts of each kind; with --list the kernels, with --refused the refusals."""
    rule_set = pools.rules
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
                **({"refusals": [_refusal(one) for one in kind.pool.refused]} if args.refused else {}),
            }
            for kind in pools.kinds
        ],
    }


def _refusal(one: Refused) -> dict[str, str]:
    return {"kernel": one.kernel.name, "rule": one.rule, "reason": one.reason, "place": one.place}


def write_list(pools: Pools, path: Path) -> str:
    """Writes the accepted kernels as a list; returns a message. Raises RuleError or KernelError."""
    kernels = pools.accepted
    if not kernels:
        raise RuleError("there is no kernel to write: --refused says why")
    if path.suffix == ".txt":
        text = "".join(f"{kernel.name}\n" for kernel in dict.fromkeys(kernels))
    else:
        first, *others = pools.kinds
        lists = operation_named(first.kind.op).kernel_lists
        if others or lists is None:
            raise RuleError(
                f"{path.name} holds one kind of convolution: give --arch, --direction, --dtype and --ndim"
            )
        text = lists().instances_json(kernels)
    write_text(path, text)
    return f"{path}: {count(len(kernels), 'kernel')}"


def _x(values: tuple[int, int, int]) -> str:
    return "x".join(map(str, values))
