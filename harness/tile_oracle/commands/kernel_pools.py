"""`tile-oracle pool list`: the pools of a rule set, counted, listed, and what the architectures refuse."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.arch import load_arch
from tile_oracle.errors import RuleError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.kernel import TiledKernel, tiled
from tile_oracle.operation import Operation, operation_named
from tile_oracle.pool import PoolExplanation, Refused, RuleSet, explain_pool_of_kind
from tile_oracle.pool.ck_builder import SUFFIXES
from tile_oracle.pool.kernel_filter import KernelFilter
from tile_oracle.problem import Kind, kind_text
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


def find_pools(rule_set: RuleSet, args: argparse.Namespace, where: KernelFilter | None) -> Iterator[KindPool]:
    """The selected kinds that the rule set covers. Raises RuleError when it covers none of them."""
    operation = operation_named(args.op)
    archs = (load_arch(args.arch).name,) if args.arch else rule_set.archs(args.op)
    if not archs:
        raise RuleError(f"kernel set {rule_set.name} has no rules for {args.op} kernels")
    given = {"direction": args.direction, "ndim": args.ndim, "layout": args.layout}
    for name, value in given.items():
        if value is not None and name not in operation.kind_fields:
            raise RuleError(f"--{name} is not for --op {args.op}: leave it out")
    kinds = sorted(operation.kinds(asked_fields(args)), key=lambda kind: _place(operation, kind))
    wanted = [(arch, kind) for arch in archs for kind in kinds]
    covered = [(arch, kind) for arch, kind in wanted if rule_set.covers(kind, arch)]
    # If no kind is covered, the pool of the first one raises the error that names the missing rules.
    for arch, kind in covered or wanted[:1]:
        yield KindPool(arch, kind, explain_pool_of_kind(kind, arch, rule_set.name, where))


def _place(operation: Operation, kind: Kind) -> list[int]:
    """Rows of one data type together, then of one rank."""
    places = {name: list(operation.kind_fields[name]).index(value) for name, value in kind.fields}
    return [places.pop("dtype"), *reversed(places.values())]


def asked_fields(args: argparse.Namespace) -> dict[str, tuple[str | int]]:
    """The fields of a kind of problem that the options give."""
    given = {"direction": args.direction, "ndim": args.ndim, "layout": args.layout, "dtype": args.dtype}
    return {name: (value,) for name, value in given.items() if value is not None}


# ---- counts -------------------------------------------------------------------------------------


def count_kernels(rule_set: RuleSet, kinds: Sequence[KindPool], filtered: bool = False) -> str:
    """A table of counts: per kind; for a single kind, per tile and pipeline."""
    lines = [f"kernel set {rule_set.name}"]
    lines += [f"  {line}" for line in wrapped(rule_set.about.split(), " ", 100).splitlines()]
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


def explain_refusals(rule_set: RuleSet, kinds: Sequence[KindPool], first: int = 20) -> str:
    """How many kernels each rule and each reason refuses, with an example for each reason."""
    accepted = sum(len(kind.pool.accepted) + len(kind.pool.filtered_out) for kind in kinds)
    refused = [one for kind in kinds for one in kind.pool.refused]
    archs = ", ".join(dict.fromkeys(kind.arch for kind in kinds))
    problems = f"{len(kinds)} kind{'s' * (len(kinds) > 1)} of problem"
    lines = [
        f"kernel set {rule_set.name} on {archs}, {problems}: "
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
        lines += [f"           of {example.place}"] if example.place else []
    if len(reasons) > first:
        rest = sum(count for _, count in reasons[first:])
        lines.append(f"  {rest:>7,}  for {len(reasons) - first:,} other reasons; --first shows more")
    return "\n".join(lines)


# ---- lists --------------------------------------------------------------------------------------


def pools_document(
    rule_set: RuleSet, kinds: Sequence[KindPool], args: argparse.Namespace
) -> dict[str, object]:
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


def write_list(kinds: Sequence[KindPool], path: Path, *, traits: bool) -> str:
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


# ---- text ---------------------------------------------------------------------------------------


def _x(values: tuple[int, int, int]) -> str:
    return "x".join(map(str, values))


def wrapped(words: Iterable[str], joint: str = ", ", width: int = 100) -> str:
    """Joins words into indented lines of at most `width` characters."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(joint) + len(word) > width:
            lines[-1] += joint.rstrip()
            lines.append("")
        lines[-1] += (joint if lines[-1] else "") + word
    return "\n".join("  " + line if joint == ", " else line for line in lines if line)
