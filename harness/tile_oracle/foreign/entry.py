"""One row of another program's file, from which both a problem and a record can be made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tile_oracle.arch import known_archs
from tile_oracle.errors import HarnessError, KernelError, ProblemError, first_line
from tile_oracle.files.spreadsheet import cell_text
from tile_oracle.foreign.contract import FIELDS, MORE, REFUSED, Field, against, arch_named
from tile_oracle.foreign.dialect import batch_of
from tile_oracle.foreign.list_file import ListFile, quoted
from tile_oracle.kernel import kernel_from_row, parse_kernel_name
from tile_oracle.kernel.named import NamedKernel, value_of
from tile_oracle.operation import operation_named, operation_names, operation_of_columns
from tile_oracle.operations.gemm.problem import GEMM_DTYPES, GemmProblem
from tile_oracle.operations.scaled_gemm.problem import ScaledGemmProblem
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.problem.dtype_words import dtype_named


@dataclass(frozen=True)
class Entry:
    """A row of a file: its problem, and its kernel and times where it has them.

    problem: None if it is none of ours, for the reason `why`; damaged: the row cannot be right. kernel: its
    full name, "" if the row names none; why_no_kernel: the reason where a file of times has to name one.
    figures: columns of the record; the times give those that are not there. stated: what else the row says,
    which its format's fields judge. more: what is done besides the operation. tile: rows, columns and depth
    of the tile that the row chooses in place of a kernel; rank: its place among the choices for its problem,
    where its times do not say it. gfx: the architecture that the row is of, "" if it states none. text: the
    row as an example of a refusal.
    """

    problem: Problem | None = None
    why: str = ""
    damaged: bool = False
    kernel: str = ""
    why_no_kernel: str = "the row names no kernel"
    times_ms: Sequence[Any] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    stated: Mapping[str, str] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    tile: tuple[int, int, int] | None = None
    rank: int = 0
    gfx: str = ""
    source: str = ""
    text: str = ""


def problems_of(
    listed: ListFile, entries: Iterable[Entry], fields: Mapping[str, Field], arch: str | None = None
) -> Iterator[tuple[Problem, str]]:
    """Yields each row's problem and its source. arch: only the rows of this architecture, or of this
    operation; else those of the operation that most are of. Rows that are left out, or taken though more
    than the operation is done, are counted in the file's notes. Raises ProblemSetError."""
    archs: Counter[str] = Counter()
    ops: Counter[str] = Counter()
    found: list[tuple[Problem, str]] = []
    op, arch = (arch, None) if arch in operation_names() else (None, arch)
    of_problem = {name: one for name, one in fields.items() if one.status == REFUSED}
    for one in entries:
        gfx = arch_named(one.gfx) or one.gfx
        if gfx and (gfx not in known_archs() or gfx != (arch or gfx)):
            listed.left_out[f"they are of {quoted(gfx)}"] += 1
            continue
        if one.problem is None:
            if one.damaged:
                raise listed.error(one.why)
            listed.left_out[one.why] += 1
            continue
        denied = against(of_problem, one.stated, one.problem)
        if others := [reason for reason, what in denied if what.why != MORE]:
            listed.left_out[others[0]] += 1
            continue
        listed.taken.update([*one.more, *(reason for reason, _ in denied)])
        archs[gfx or "no stated architecture"] += 1
        ops[one.problem.op] += 1
        found.append((one.problem, cell_text(one.source)))
    op = op or max(ops, key=lambda one: ops[one], default=None)
    listed.left_out.update(
        {f"they are of {one}: FILE.csv:{one} takes those": count for one, count in ops.items() if one != op}
    )
    yield from (one for one in found if one[0].op == op)
    read = {*FIELDS, *fields}
    if unread := [name for name in listed.header if name.lower() not in read]:
        listed.further.append(f"ignored columns: {', '.join(map(quoted, unread[:12]))}")
    if len(archs) > 1:
        counts = ", ".join(f"{count:,} of {name}" for name, count in sorted(archs.items()))
        listed.further.append(f"rows of several architectures, {counts}: FILE.csv:ARCH takes those of one")


KERNEL_WORDS = ("kernel", "kernel_name")
PROBLEM_WORDS = ("problem", "problem_id")


def stated_entry(stated: Mapping[str, Any], times_ms: Sequence[Any], **figures: Any) -> Entry:
    """Returns the entry of what names and values state.

    The kernel is one of our names (`kernel`, `kernel_name`), or all of its fields. The problem is an id
    (`problem`), or its dimensions.
    """
    try:
        name = next((stated[word] for word in KERNEL_WORDS if isinstance(stated.get(word), str)), None)
        if name is not None:
            kernel = parse_kernel_name(name)
        else:
            kernel = kernel_from_row(stated, str(stated.get("op") or operation_of_columns(list(stated)).name))
        identity = next((stated[word] for word in PROBLEM_WORDS if isinstance(stated.get(word), str)), None)
        if identity is not None:
            problem = problem_from_id(identity)
        else:
            problem = operation_named(kernel.op).problem.from_row({**stated, **kernel.kind.words})
    except (HarnessError, TypeError, ValueError) as error:
        what = "problem" if isinstance(error, ProblemError) else "kernel"
        return Entry(why=f"{what} cannot be read", text=first_line(error))
    named = kernel.name if name is None else name
    told = {str(word): str(value) for word, value in stated.items() if value is not None}
    return Entry(problem, kernel=named, times_ms=times_ms, figures=figures, stated=told)


def entry_of(
    op: str,
    values: Mapping[str, Any],
    kernel: tuple[str, str, Mapping[str, Any]] = ("", "", {}),
    **further: Any,
) -> Entry:
    """Returns the entry of a problem with these fields and outputs, numbers as such or as texts, and of a
    kernel's source, function and configuration. What no problem has is the reason why there is none."""
    try:
        one = operation_named(op).problem_of({name: _number(value) for name, value in values.items()})
    except ProblemError as error:
        return Entry(why=first_line(error)[:300], **further)
    return Entry(one, **kernel_of(one, *kernel), **further)


def _number(value: Any) -> Any:
    """Returns the number that a text is; anything else as it is."""
    is_number = isinstance(value, str) and value.isdecimal() and value.isascii() and len(value) < _DIGITS
    return int(value) if is_number else value


_DIGITS = 20
MX = {"mxfp4": "fp4_e2m1", "mxfp8": "fp8_e4m3"}
"""What other programs call operands with MX scales, and their data types."""
NO_DTYPE = "neither a column nor a name states the data type"


def gemm_entry(
    problem: Sequence[str],
    kernel: tuple[str, str, Mapping[str, Any]] = ("", "", {}),
    batch: str = "1",
    **further: Any,
) -> Entry:
    """Returns the entry of a GEMM, of a batch of some, or of a product with MX scales: (data type, layout, M,
    N, K) as texts, and the source, function and configuration of its kernel. A name that no kernel can have
    is the reason why it names none."""
    dtype, layout, *sizes = problem
    ours = dtype_named(dtype) if dtype else ""
    if ours not in GEMM_DTYPES and ours not in MX:
        why = f"GEMMs do not support the data type {quoted(dtype)}" if dtype else NO_DTYPE
        return Entry(why=why, **further)
    if ours in MX and (layout != "rcr" or batch not in ("", "1")):
        return Entry(why=f"products of {ours} are of layout rcr, and no batches", **further)
    one: Problem | None
    try:
        shape = tuple(map(_number, sizes))
        if ours in MX:
            one, why = ScaledGemmProblem(MX[ours], "mx", *shape), ""
        else:
            one, why = batch_of(GemmProblem(ours, layout, *shape), batch)
    except ProblemError as error:
        return Entry(why=str(error)[:300], damaged=True, **further)
    return Entry(why=why, **further) if one is None else Entry(one, **kernel_of(one, *kernel), **further)


def kernel_of(problem: Problem, source: str, function: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of an entry that name its kernel. Values that are nothing are left out."""
    if not function:
        return {}
    given = {name: value_of(str(value)) for name, value in values.items() if str(value) not in ("", "None")}
    try:
        return {"kernel": NamedKernel(problem.kind, source, function, tuple(given.items())).name}
    except KernelError as error:
        return {"why_no_kernel": str(error)}
