"""The terminal summary, for the end of a session."""

from __future__ import annotations

import textwrap

from tile_oracle.pages import words
from tile_oracle.pages.tables import Table
from tile_oracle.report import wording
from tile_oracle.report.data import THROTTLED, TIME_WENT, ReportData
from tile_oracle.report.figures import Group, figure_groups
from tile_oracle.report.html import criteria
from tile_oracle.report.picker_figures import picker_lines
from tile_oracle.report.views import slice_view, sources
from tile_oracle.terminal.text_table import first_few

_NAMED_FAILURES = 3
_LABEL_WIDTH, _SHORT = 14, 40
_BLANK = "\N{NO-BREAK SPACE}"


def summary_lines(data: ReportData, width: int = 100, *, with_baseline: bool = True) -> list[str]:
    """Returns the summary of a run as lines of at most `width` characters (at least 60), without colour.

    Only a line with a long word, such as a path, may be wider. with_baseline: name the baseline's file.
    """
    width = max(width, 60)
    files = _files(data, with_baseline=with_baseline)
    blocks = [
        _head(data),
        _figures(data),
        _sources(data),
        picker_lines(data.pickers),
        _worst(data),
        _failures(data),
        _verdict(data),
        files,
    ]
    lines: list[str] = []
    for block in blocks:
        if block and lines:
            lines.append("")
        lines += [part for line in block for part in _wrap(line, width)]
    return lines


def evaluation_lines(data: ReportData, worst: int) -> list[str]:
    """Returns what a model's picks on records are worth, as lines: figures, kinds of problem, the worst
    problems."""
    blocks = [
        [wording.title(data), f"  {wording.pairs_sentence(data)}", f"  {data.ranked_by.sentence}"],
        _figures(data),
        _sources(data),
        slice_view(data).plain(),
        _worst(data, worst),
        wording.scope_notes(data),
    ]
    return [line.replace(_BLANK, " ") for block in blocks if block for line in ("", *block)][1:]


def _head(data: ReportData) -> list[str]:
    return [
        wording.title(data),
        f"  {wording.pairs_sentence(data)}",
        f"  {words.one_line(data.ranked_by.sentence, 400)}",
        *_conditions(data),
    ]


def _conditions(data: ReportData) -> list[str]:
    """Returns where the time went, and a warning about throttled clocks, which make measurements
    unrepresentative of the device."""
    shown = ((TIME_WENT, "the time went into"), (THROTTLED, "the GPU was throttled during"))
    texts = ((said, data.run.environment.get(key)) for key, said in shown)
    return [f"  {said} {words.one_line(text, 200)}" for said, text in texts if text]


def _figures(data: ReportData) -> list[str]:
    *shown, coverage = figure_groups(data)
    counts = ", ".join(f"{number:,} {status}" for status, number in wording.status_counts(data))
    pairs = Group("pairs", [("", counts or "none measured")])
    return [_pairs(group) for group in (*shown, coverage, pairs)]


def _sources(data: ReportData) -> list[str]:
    return [line for table in sources(data)[:1] if isinstance(table, Table) for line in table.plain()]


def _worst(data: ReportData, most: int = 5) -> list[str]:
    covered = data.covered
    rows = wording.rows(covered[covered["efficiency"] < 1.0].head(most))
    if not rows:
        seen = ", on problems that the model was trained on" if data.in_sample else ""
        return [f"every pick is as fast as the oracle{seen}"] if data.efficiency.covered else []
    lines, titles = ["worst problems"], words.titles(map(str, data.selection["problem"]))
    for row in rows:
        pick, oracle = (words.short_name(row[f"{whose}_kernel"]) for whose in ("pick", "oracle"))
        lines += [
            f"  {words.percent(100 * row['efficiency']):>7}  {titles[row['problem']]}  {row['problem']}",
            f"           pick    {_speed(row['pick_tflops'])}{pick}",
            f"           oracle  {_speed(row['oracle_tflops'])}{oracle}",
            f"           {wording.why(row)}",
        ]
    return lines


def _failures(data: ReportData) -> list[str]:
    lines = []
    for heading, failures in (
        ("failures", data.verdict.new_failures),
        ("known failures", data.verdict.known_failures),
    ):
        groups = wording.by_status(failures)
        lines += [heading] if groups else []
        for status, members in groups.items():
            lines.append(f"  {status}: {words.count(len(members), 'pair')}")
            lines += [
                f"    {one}" for one in first_few(list(map(wording.failure_line, members)), _NAMED_FAILURES)
            ]
    return lines


def _verdict(data: ReportData) -> list[str]:
    verdict = data.verdict
    lines = [f"verdict {wording.headline(data)}"]
    if verdict.criteria:
        lines += [f"  {line}" for line in criteria(data, units=False).plain()]
        lines += [f"  {one.name}: {one.note}" for one in verdict.criteria if one.note]
    losses = [
        f"{words.one_line(loss.problem)}: {loss.baseline_percent:.1f} % -> {loss.efficiency_percent:.1f} %"
        for loss in verdict.losses
    ]
    lines += [f"    {one}" for one in first_few(losses, 5, "more problems")]
    lines += [f"  {line}" for line in wording.open_lines(verdict)]
    return lines + [f"  {note}" for note in wording.verdict_notes(data)]


def _files(data: ReportData, *, with_baseline: bool) -> list[str]:
    shown = []
    if data.run.folder:
        shown.append(("report", f"{words.one_line(data.run.folder, 1000)}/report.html"))
    if data.run.baseline_file and with_baseline:
        path = words.one_line(data.run.baseline_file, 1000)
        writes = f"none yet; --update-baseline writes {path}" if data.scope.complete else "none yet"
        shown.append(("baseline", path if data.baseline else writes))
    return [_pairs(Group(name, [("", value)])) for name, value in shown]


def _speed(tflops: float | None) -> str:
    shown = words.tflops(tflops)
    return f"{shown:>7} {'TFLOPS' if shown != '-' else '':6}  "


def _pairs(group: Group) -> str:
    """A line whose short values are not broken: their blanks do not count until the line is wrapped."""
    parts = [f"{name} {value}".strip() for name, value in group.pairs]
    parts = [one.replace(" ", _BLANK) if len(one) < _SHORT else one for one in parts]
    return f"{group.label:<{_LABEL_WIDTH}}" + "   ".join([*parts, *([group.note] if group.note else [])])


def _wrap(line: str, width: int) -> list[str]:
    """Wraps a line that is too long: indented by two more than its start, or under the first value. Words are
    never broken, so that paths and names can be copied."""
    is_figures = line[:1].strip() != "" and line[_LABEL_WIDTH - 2 : _LABEL_WIDTH] == "  "
    start = _LABEL_WIDTH if is_figures else len(line) - len(line.lstrip())
    indent = _LABEL_WIDTH if is_figures else min(start + 2, 24)
    lines = textwrap.wrap(
        line[start:],
        width,
        initial_indent=line[:start],
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [one.replace(_BLANK, " ") for one in lines]
