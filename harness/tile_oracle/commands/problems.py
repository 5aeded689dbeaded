"""`tile-oracle problems`: a table of the shipped problem sets, or some sets or files in detail.

A file is a CSV table, a list of MIOpenDriver command lines, or a log of rocBLAS and hipBLASLt.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from tile_oracle.commands.arguments import ONLY_JSON, print_json, write_text
from tile_oracle.errors import ProblemSetError
from tile_oracle.judge.slices import slice_names, slices_of
from tile_oracle.problem import Problem, kind_text
from tile_oracle.problem_set import (
    ProblemSet,
    format_problem_set,
    list_problem_sets,
    load_problem_set,
    reading_notes,
)
from tile_oracle.terminal.argument_table import argument_table
from tile_oracle.terminal.counts import count
from tile_oracle.terminal.plain_text import as_text
from tile_oracle.terminal.text_table import text_table

EXAMPLES = """\
examples:
  tile-oracle problems                              all shipped sets, one line each
  tile-oracle problems forward_smoke                what is in one set, and where it comes from
  tile-oracle problems layers.txt -o layers.csv     MIOpenDriver command lines as a problem set

a file of your own:
  # my model, batch 1
  N,C,K,Hi,Wi,Y,X,pad_h,pad_w
  1,64,64,56,56,3,3,1,1

GEMMs (dtype bf16, layout rcr and split_k 1 where the columns are left out):
  layout,M,N,K
  rcr,1,4096,4096
"""

_ALWAYS_SHOWN = ("M", "N", "C", "K", "G", "Hi", "Wi", "Y", "X")


ARGUMENTS = argument_table(f"""
sets [NAME...]  name of a shipped set, or path of a file of problems
-o --out FILE.csv  with NAME: write the problems as one problem set
--dtype DTYPE  with --out: write them in this data type
--ids  print only the ids of the problems, one per line; without --out
--json  print the sets, with all problems of those that are named, {ONLY_JSON}; without --out
    or --ids
--first N=10  problems to show of a set
""")


def run(args: argparse.Namespace) -> int:
    """Prints what was asked for, or writes it. Raises ProblemSetError, ProblemError."""
    sets = [load_problem_set(name) for name in (args.sets or list_problem_sets())]
    if args.json:
        print_json([_document(one, with_problems=bool(args.sets)) for one in sets])
    elif args.out:
        print(_write(sets, args.out, args.dtype))
    elif args.ids:
        print("\n".join(dict.fromkeys(problem.id for one in sets for problem in one.problems)))
    elif args.sets:
        print("\n\n".join(describe_problem_set(one, first=args.first) for one in sets))
    else:
        print(describe_problem_sets(sets))
    return 0


def _document(one: ProblemSet, *, with_problems: bool) -> dict[str, object]:
    """Returns a set as JSON: what the table of sets says and, if asked for, its problems."""
    gflops = _sorted_gflops(one.problems)
    found: dict[str, object] = {
        "set": one.name,
        "file": one.path,
        "sha256": one.sha256,
        "problems": len(one.problems),
        "kinds": sorted({kind_text(problem.kind) for problem in one.problems}),
        "gflop": {"min": gflops[0], "median": _quantile(gflops, 0.5), "max": gflops[-1]},
        "provenance": one.provenance,
        "repeated_rows": one.repeated_rows,
        "notes": one.notes,
    }
    if with_problems:
        found["slices"] = dict(Counter(name for problem in one.problems for name in slices_of(problem)))
        found["listed"] = [
            {
                "problem": p.id,
                "op": p.op,
                **p.as_row(),
                "gflop": p.flops / 1e9,
                "bytes": p.bytes,
                "source": source,
            }
            for p, source in zip(one.problems, one.sources, strict=True)
        ]
    return found


def _in_dtype(sets: Sequence[ProblemSet], dtype: str | None) -> dict[Problem, str]:
    """Returns the distinct problems of all sets, with their sources; converted to `dtype` if one is given."""
    found: dict[Problem, str] = {}
    for one in sets:
        for problem, source in zip(one.problems, one.sources, strict=True):
            found.setdefault(replace(cast("Any", problem), dtype=dtype) if dtype else problem, source)
    return found


def _write(sets: Sequence[ProblemSet], out: Path, dtype: str | None) -> str:
    """Writes the sets as one CSV file; returns a message."""
    if any(one.path is not None and one.path.resolve() == out.resolve() for one in sets):
        raise ProblemSetError(f"{out} is also an input: write to another file")
    problems = _in_dtype(sets, dtype)
    provenance = []
    for one in sets:
        origin = one.name if one.path is None else one.path.name
        provenance += [*one.provenance.splitlines(), f"from {origin}, sha256 {one.sha256}"]
    text = format_problem_set(problems, problems.values(), "\n".join(map(as_text, provenance)))
    write_text(out, text)
    notes = [f"  {note}" for one in sets for note in reading_notes(one)]
    return "\n".join([f"{count(len(problems), 'problem')} in {out}", *notes])


def describe_problem_sets(sets: Iterable[ProblemSet]) -> str:
    """Returns a table with one line per set: size, kinds, share of grouped problems, GFLOP, hash."""
    head = ("set", "problems", "kind", "dtype", "rank", "GFLOP min", "median", "max", "sha256")
    rows: list[tuple[str, ...]] = [head]
    for one in sets:
        gflops = _sorted_gflops(one.problems)
        rows.append(
            (
                one.name,
                f"{len(one.problems):,}",
                _words(str(problem.kind.words.get("direction", problem.op)) for problem in one.problems),
                _words(problem.dtype for problem in one.problems),
                # The last field of a kind: the rank of a convolution, the layout of a GEMM.
                _words(kind_text(problem.kind).split()[-1] for problem in one.problems),
                *(_number(_quantile(gflops, q)) for q in (0.0, 0.5, 1.0)),
                one.sha256[:12],
            )
        )
    return "\n".join(text_table(rows, right_aligned=(1, 5, 6, 7)))


def describe_problem_set(problem_set: ProblemSet, first: int = 10) -> str:
    """Returns one set in detail: provenance, slices, ranges of dimensions, GFLOP and bytes, first
    problems."""
    problems = problem_set.problems
    lines = [f"{problem_set.name}: {count(len(problems), 'problem')}"]
    if problem_set.path is not None:
        lines.append(f"  file    {problem_set.path}")
    lines.append(f"  sha256  {problem_set.sha256}")
    if problem_set.repeated_rows:
        lines.append(f"  left out: {count(problem_set.repeated_rows, 'repeat')} of earlier problems")
    lines += [f"  note    {note}" for note in problem_set.notes]
    if problem_set.provenance:
        lines += ["", *(f"  {line}".rstrip() for line in problem_set.provenance.splitlines())]

    counts = Counter(name for problem in problems for name in slices_of(problem))
    lines += ["", "slices (a problem can be in several)"]
    names = slice_names(problems)
    slices = [(f"  {name}", f"{counts[name]:,}", f"{counts[name] / len(problems):.0%}") for name in names]
    lines += text_table(slices, right_aligned=(1, 2))

    lines += ["", "dimensions and work"]
    ranges: list[tuple[str, ...]] = [("  ", "min", "median", "max", "distinct")]
    # For sets of several operations, these are the dimensions of the first one.
    described = [problem for problem in problems if problem.op == problems[0].op]
    for field in described[0].as_row():
        values = sorted(getattr(problem, field) for problem in described)
        if isinstance(values[0], str):
            ranges.append((f"  {field}", *(_words(values), "", ""), f"{len(set(values)):,}"))
        elif values[0] != values[-1] or field in _ALWAYS_SHOWN:
            middle = values[len(values) // 2]
            row = (values[0], middle, values[-1], len(set(values)))
            ranges.append((f"  {field}", *(str(value) for value in row)))
    megabytes = sorted(problem.bytes / 1e6 for problem in problems)
    for name, work in (("  GFLOP", _sorted_gflops(problems)), ("  MB", megabytes)):
        ranges.append((name, *(_number(_quantile(work, q)) for q in (0.0, 0.5, 1.0)), ""))
    lines += text_table(ranges, right_aligned=(1, 2, 3, 4))

    if first > 0:
        shown = min(first, len(problems))
        lines += ["", f"first {shown} of {len(problems):,}" if shown < len(problems) else "problems"]
        pairs = zip(problems[:shown], problem_set.sources[:shown], strict=True)
        listed = [(f"  {p.id}", _number(p.flops / 1e9) + " GFLOP", source) for p, source in pairs]
        lines += text_table(listed, right_aligned=(1,))
    return "\n".join(lines)


def _sorted_gflops(problems: Iterable[Problem]) -> list[float]:
    return sorted(problem.flops / 1e9 for problem in problems)


def _quantile(ascending: Sequence[float], q: float) -> float:
    """Returns the nearest value that occurs in the set, so that the table names existing problems."""
    return ascending[round(q * (len(ascending) - 1))]


def _number(value: float) -> str:
    """Returns three significant digits, never an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 else f"{value:.6f}"


def _words(words: Iterable[str]) -> str:
    return " ".join(sorted(set(words)))
