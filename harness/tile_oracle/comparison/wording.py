"""A comparison as text, Markdown and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tile_oracle.comparison.compare import FASTER, OUTCOMES, SLOWER, Change, Comparison, ProblemChange
from tile_oracle.errors import KernelError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.report.wording import microseconds
from tile_oracle.static_page import clean
from tile_oracle.terminal.text_table import text_table

SCHEMA = 1
_SHOWN = 20
_SAME = "the same"


def percent(value: float) -> str:
    """+5.12 %, +250.0 %, +22,290 %."""
    digits = 2 if abs(value) < 99.995 else 1 if abs(value) < 999.95 else 0
    return f"{value:+,.{digits}f} %"


def change_text(change: Change | None) -> str:
    """+5.1 % [+4.0, +6.2]."""
    if change is None:
        return "unknown"
    low, high = (percent(limit).removesuffix(" %") for limit in (change.low, change.high))
    return f"{percent(change.percent)} [{low}, {high}]"


def facts(comparison: Comparison, *, outcomes: bool = True) -> list[tuple[str, str]]:
    """(name, value) of all that is said in one line. outcomes: also the number of problems of each."""
    counts = comparison.counts
    shared = len(comparison.problems)
    sides = (
        ("only old", comparison.gone),
        ("only new", comparison.added),
        ("without a time", comparison.untimed),
    )
    apart = "".join(f", {len(problems):,} {where}" for where, problems in sides if problems)
    found = [
        ("old", f"{comparison.old.name} ({comparison.old.kind})"),
        ("new", f"{comparison.new.name} ({comparison.new.kind})"),
        ("compared", f"{_several(shared, 'problem')} by the time of the {comparison.by}{apart}"),
        *((outcome, _several(counts[outcome], "problem")) for outcome in OUTCOMES if outcomes),
        ("mean change of time", change_text(comparison.mean)),
        ("all shared pairs", f"{change_text(comparison.alike)}, mean over the pairs that both measured"),
        ("between sessions", f"{comparison.between_percent:.2f} % standard deviation of a pair's time"),
        ("oracles changed", _several(len(comparison.oracles_changed), "problem")),
        ("picks changed", _picks(comparison)),
        ("kernels gained", _count(comparison.gained)),
        ("kernels lost", _count(comparison.lost)),
        ("newly failing", _several(len(comparison.failing), "pair")),
    ]
    old, new = comparison.old.made_by, comparison.new.made_by
    found += [
        (name, f"{clean(old[name])} -> {clean(new[name])}")
        for name in old
        if name in new and old[name] != new[name] and old[name] and new[name]
    ]
    return found


def changed_rows(rows: Sequence[ProblemChange]) -> list[list[str]]:
    """Problem, change, interval, both latencies, both kernels (short)."""
    return [
        [
            one.problem,
            percent(one.change.percent),
            " to ".join(percent(limit).removesuffix(" %") for limit in (one.change.low, one.change.high)),
            microseconds(1000 * one.old_ms),
            microseconds(1000 * one.new_ms),
            *short_names(one.old_kernel, one.new_kernel),
        ]
        for one in rows
    ]


HEADINGS = ("problem", "change", "95 % interval", "old, µs", "new, µs", "old kernel", "new kernel")


def lists(comparison: Comparison) -> list[tuple[str, Sequence[str], list[list[str]]]]:
    """(title, headings, rows) of what changed besides times; some have no row."""
    moved = ("problem", "from", "to")
    return [
        ("newly failing", ("kernel", "status", "pairs", "such as"), failing_rows(comparison)),
        ("oracles changed", moved, [[p, *short_names(*both)] for p, *both in comparison.oracles_changed]),
        ("picks changed", moved, [[p, *short_names(*both)] for p, *both in comparison.picks_changed]),
        ("kernels gained", ("kernel",), [[name] for name in comparison.gained or ()]),
        ("kernels lost", ("kernel",), [[name] for name in comparison.lost or ()]),
    ]


def failing_rows(comparison: Comparison) -> list[list[str]]:
    """Newly failing kernels: kernel, status, how many problems, one of them."""
    grouped = Counter((one.kernel, one.status) for one in comparison.failing)
    example = {(one.kernel, one.status): one.problem for one in reversed(comparison.failing)}
    order = sorted(grouped, key=lambda key: (-grouped[key], key))
    return [
        [kernel, status, str(grouped[kernel, status]), example[kernel, status]] for kernel, status in order
    ]


def short_names(old: str, new: str) -> tuple[str, str]:
    """Two kernels' names without what the problem says already; "the same" for equal ones."""
    return _short_name(old), _SAME if old == new else _short_name(new)


def _short_name(kernel: str) -> str:
    try:
        return parse_kernel_name(kernel).short_name
    except KernelError:
        return kernel


def terminal_lines(comparison: Comparison) -> list[str]:
    """The comparison for a terminal."""
    lines = text_table([[name, clean(value)] for name, value in facts(comparison)], right_aligned=())
    for outcome in (SLOWER, FASTER):
        rows = [_one_kernel(row) for row in changed_rows(comparison.with_outcome(outcome))]
        lines += _table(outcome, (*HEADINGS[:5], "kernel"), rows, (1, 2, 3, 4))
    for title, headings, rows in lists(comparison):
        lines += _table(title, headings, rows, (2,) if "pairs" in headings else ())
    return lines


def _one_kernel(row: Sequence[str]) -> list[str]:
    """A row with one column of kernels, because terminals are narrow; the list of changes has both."""
    *figures, old, new = row
    return [*figures, old if new == _SAME else f"{new} (changed)"]


def markdown(comparison: Comparison) -> str:
    """The comparison for a pull request or a step summary."""
    counts = comparison.counts
    head = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)
    lines = [f"## {_cell(comparison.old.name)} → {_cell(comparison.new.name)}: {head}", ""]
    lines += _markdown_table(("", ""), [list(one) for one in facts(comparison, outcomes=False)])
    tables: list[tuple[str, Sequence[str], list[list[str]]]] = [
        (outcome, HEADINGS, changed_rows(comparison.with_outcome(outcome))) for outcome in (SLOWER, FASTER)
    ]
    for title, headings, rows in tables + lists(comparison):
        if rows:
            lines += ["", f"### {title}", "", *_markdown_table(headings, rows[:_SHOWN])]
            lines += ["", f"and {len(rows) - _SHOWN} more"] if len(rows) > _SHOWN else []
    return "\n".join(lines) + "\n"


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """The content of --json: changes in percent, latencies in milliseconds."""
    return {
        "schema": SCHEMA,
        "old": _side(comparison.old.name, comparison.old.kind, comparison.old.made_by),
        "new": _side(comparison.new.name, comparison.new.kind, comparison.new.made_by),
        "by": comparison.by,
        "margin_percent": comparison.margin_percent,
        "counts": dict(comparison.counts),
        "mean_percent": None if comparison.mean is None else asdict(comparison.mean),
        "same_kernels_percent": None if comparison.alike is None else asdict(comparison.alike),
        "between_sessions_percent": comparison.between_percent,
        "problems": [asdict(one) for one in comparison.problems],
        "only_old": list(comparison.gone),
        "only_new": list(comparison.added),
        "untimed": list(comparison.untimed),
        "oracles_changed": [list(one) for one in comparison.oracles_changed],
        "picks_changed": [list(one) for one in comparison.picks_changed],
        "kernels_gained": None if comparison.gained is None else list(comparison.gained),
        "kernels_lost": None if comparison.lost is None else list(comparison.lost),
        "newly_failing": [asdict(one) for one in comparison.failing],
    }


def _side(name: str, kind: str, made_by: Mapping[str, str]) -> dict[str, Any]:
    return {"name": name, "kind": kind, "made_by": dict(made_by)}


def _several(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _picks(comparison: Comparison) -> str:
    known = comparison.old.picks and comparison.new.picks
    return _several(len(comparison.picks_changed), "problem") if known else "unknown: a side has no picks"


def _count(kernels: Sequence[str] | None) -> str:
    return "unknown: a baseline does not list its kernels" if kernels is None else str(len(kernels))


def _table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]
) -> list[str]:
    if not rows:
        return []
    shown = [headings, *rows[:_SHOWN]]
    more = [f"  and {len(rows) - _SHOWN} more"] if len(rows) > _SHOWN else []
    return ["", title, *(f"  {line}" for line in text_table(shown, right_aligned=right)), *more]


def _markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    body = [headings, ["---"] * len(headings), *rows]
    return ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in body]


def _cell(text: str) -> str:
    """Foreign text as a cell of a Markdown table."""
    plain = clean(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return plain.replace("`", "\\`").replace("[", "\\[")
