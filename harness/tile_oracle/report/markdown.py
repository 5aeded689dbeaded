"""summary.md: the summary for pull requests, CI job pages and editors."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tile_oracle.report import answers, wording
from tile_oracle.report.data import ReportData
from tile_oracle.report.sources import source_figures

_NAMED_FAILURES = 10
_WORST = 10


def summary_markdown(data: ReportData) -> str:
    """The summary as GitHub-flavoured Markdown, with foreign text escaped."""
    figures = data.efficiency
    parts = [
        f"# {text(wording.title(data))}",
        f"**Verdict: {text(wording.headline(data))}**",
        f"{text(wording.pairs_sentence(data))}; {text(wording.one_line(data.ranked_by.sentence, 400))}.",
    ]
    over_median, over_worst = wording.speed_ups(data)
    table = [("coverage", wording.coverage_sentence(data))]
    if figures.covered:
        shown = []
        for name, part in wording.efficiencies(data):
            more = "" if name == "efficiency" else f"{name}, "
            shown += [
                (f"{name}, mean", wording.percent(part.mean_percent)),
                (f"{more}median", wording.percent(part.median_percent)),
                (f"{more}P10", wording.percent(part.p10_percent)),
                (f"{more}min", wording.percent(part.min_percent)),
            ]
        if data.time_weighted_percent is not None:
            weighted = wording.percent(data.time_weighted_percent)
            shown.append((f"time-weighted: {wording.TIME_WEIGHTED}", weighted))
        table = [
            *shown,
            ("top-1: the pick is the oracle", wording.percent(figures.top_1_percent)),
            ("top-5: the oracle is in the first five", wording.percent(figures.top_5_percent)),
            ("efficiency of measuring the top 3", wording.percent(figures.measure_top_percent[2])),
            *table,
        ]
    if data.fixed_mean_percent is not None:
        table.append(("to compare: one kernel for all problems", wording.percent(data.fixed_mean_percent)))
    if data.repeatability_percent is not None:
        table.append(
            ("to compare: the sweep's winners, measured again", wording.percent(data.repeatability_percent))
        )
    table += [
        (f"to compare: {wording.beside_name(one, data)}", wording.percent(one.mean_percent))
        for one in data.beside
    ]
    if over_median is not None:
        table.append(("oracle over median kernel", wording.times(over_median)))
        table.append(("oracle over worst kernel", wording.times(over_worst)))
    parts += _answers(data)
    parts += _verdict(data)
    parts += ["## Figures", _table(("figure", "value"), [tuple(map(text, row)) for row in table])]
    parts += _worst(data)
    parts += _sources(data)
    parts += _failures(data)
    parts += _surroundings(data)
    return "\n\n".join(parts) + "\n"


def text(foreign: object, limit: int = 400) -> str:
    """Foreign text as one escaped line of Markdown."""
    line = wording.one_line(foreign, limit)
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]|~#!@])", r"\\\1", line)


def code(foreign: object, limit: int = 400) -> str:
    """Foreign text as a code span that fits into a table cell."""
    line = wording.one_line(foreign, limit).replace("`", "'").replace("\\", "/").replace("|", "\\|")
    # HTML is plain text in a code span.
    return f"`{line}`" if line.strip() else ""


def _answers(data: ReportData) -> list[str]:
    """How good, where time is lost, and the commands to run next."""
    parts = [text(" ".join(answers.is_it_good(data)), 1000)]
    parts.append("\n".join(f"- {text(one)}" for one in answers.where_it_fails(data)))
    for reason, command in answers.next_commands(data):
        fenced = wording.one_line(command, 2000).replace("`", "'")
        parts.append(f"{text(reason[:1].upper() + reason[1:])}:\n\n```sh\n{fenced}\n```")
    return parts


def _verdict(data: ReportData) -> list[str]:
    verdict = data.verdict
    parts = ["## Verdict"]
    if verdict.criteria:
        rows = []
        for one in verdict.criteria:
            *figures, outcome = wording.comparison(one)
            rows.append((text(one.name), *figures, wording.interval(one), outcome, text(one.note)))
        heads = ("criterion", "value", "baseline", "limit", "change (points)", "outcome", "note")
        parts.append(_table(heads, rows))
        parts += [text(line) for line in wording.open_lines(verdict)]
    if verdict.losses:
        losses = [
            (code(loss.problem), f"{loss.efficiency_percent:.1f} %", f"{loss.baseline_percent:.1f} %")
            for loss in verdict.losses[:_WORST]
        ]
        table = _table(("lost too much", "now", "baseline"), losses)
        parts.append(table + _more(len(verdict.losses), _WORST))
    notes = wording.verdict_notes(data)
    if not verdict.criteria:
        notes.insert(0, verdict.message)
    parts.append("\n".join(f"- {text(note)}" for note in notes))
    return parts


def _worst(data: ReportData) -> list[str]:
    rows = wording.worst_rows(data, _WORST)
    if not rows:
        return []
    table = [
        (
            wording.percent(100 * row["efficiency"]),
            code(row["problem"]),
            code(wording.short_kernel(row["pick_kernel"], row)),
            code(wording.short_kernel(row["oracle_kernel"], row)),
            text(wording.why(row)),
        )
        for row in rows
    ]
    return ["## Worst problems", _table(("efficiency", "problem", "pick", "oracle", "why"), table)]


def _sources(data: ReportData) -> list[str]:
    rows = [
        (
            text(one.source),
            f"{one.wins} of {one.problems}",
            *(wording.percent(one.mean_percent), wording.percent(one.worst_percent)),
        )
        for one in source_figures(data.by_source)
    ]
    head = ("source", "fastest on", "its best / the oracle, geometric mean", "worst")
    return ["## Sources of kernels", _table(head, rows)] if rows else []


def _failures(data: ReportData) -> list[str]:
    parts = []
    counts = [(status, f"{number:,}") for status, number in wording.status_counts(data)]
    parts += ["## Pairs by status", _table(("status", "pairs"), counts)] if counts else []
    for heading, failures in (
        ("## Failures", data.verdict.new_failures),
        ("## Known failures", data.verdict.known_failures),
    ):
        if failures:
            rows = [
                (
                    one.status,
                    code(wording.kernel_on(one)),
                    code(one.problem),
                    text(one.detail, wording.DETAIL_CHARACTERS),
                )
                for one in failures[:_NAMED_FAILURES]
            ]
            table = _table(("status", "kernel", "problem", "detail"), rows)
            parts += [heading, table + _more(len(failures), _NAMED_FAILURES)]
    return parts


def _surroundings(data: ReportData) -> list[str]:
    rows = [(text(name), code(value)) for name, value in {**data.run.environment, **data.run.options}.items()]
    if data.run.baseline_file:
        rows.append(("baseline file", code(data.run.baseline_file)))
    return ["## Environment and options", _table(("what", "value"), rows)] if rows else []


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell or " " for cell in line) + " |" for line in lines)


def _more(total: int, shown: int) -> str:
    return f"\n\nand {total - shown:,} more" if total > shown else ""
