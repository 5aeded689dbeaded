"""summary.md: the summary for pull requests, CI job pages and editors."""

from __future__ import annotations

from collections.abc import Sequence

from tile_oracle.pages import words
from tile_oracle.pages.tables import Block, Cell, Column, Table, text
from tile_oracle.report import answers, wording
from tile_oracle.report.answers import next_steps
from tile_oracle.report.data import ReportData
from tile_oracle.report.figures import figure_groups
from tile_oracle.report.html import criteria, losses
from tile_oracle.report.picker_figures import pickers_table
from tile_oracle.report.views import pairs, problem_table, sources

_MOST = 10


def summary_markdown(data: ReportData) -> str:
    """Returns the summary as GitHub-flavoured Markdown, with foreign text escaped."""
    model = words.one_line(data.ranked_by.sentence, 400)
    figures = [
        [Cell(", ".join(part for part in (group.label, name) if part), note=group.note), Cell(value)]
        for group in figure_groups(data)
        for name, value in group.pairs
    ]
    tables = [
        pickers_table(data.pickers),
        problem_table(data, _MOST),
        *sources(data)[:1],
        *pairs(data),
        _surroundings(data),
    ]
    parts = [
        f"# {text(wording.title(data))}",
        f"**Verdict: {text(wording.headline(data))}**",
        f"{text(wording.pairs_sentence(data))}; {text(model)}.",
        *data.changes,
        *_answers(data),
        *_verdict(data),
        *_section(Table("Figures", [Column("figure"), Column("value")], figures)),
        *(part for table in tables for part in _section(table)),
    ]
    return "\n\n".join(parts) + "\n"


def _section(block: Block) -> Sequence[str]:
    if not isinstance(block, Table) or not block.rows:
        return []
    return [f"## {block.caption}", block.markdown(_MOST * 4)]


def _answers(data: ReportData) -> list[str]:
    """Returns how good, where time is lost, and the commands to run next."""
    parts = [text(" ".join(answers.is_it_good(data)), 1000)]
    parts.append("\n".join(f"- {text(one)}" for one in answers.where_it_fails(data)))
    for step in next_steps(data):
        fenced = words.one_line(step.command, 2000).replace("`", "'")
        parts.append(f"{text(f'T{step.reason[1:]}')}:\n\n```sh\n{fenced}\n```")
    return parts


def _verdict(data: ReportData) -> list[str]:
    judged = bool(data.verdict.criteria)
    notes = [*([] if judged else [data.verdict.message]), *wording.verdict_notes(data)]
    return [
        "## Verdict",
        *([criteria(data).markdown()] if judged else []),
        *(text(line) for line in (wording.open_lines(data.verdict) if judged else ())),
        *([losses(data).markdown(_MOST)] if data.verdict.losses else []),
        "\n".join(f"- {text(note)}" for note in notes),
    ]


def _surroundings(data: ReportData) -> Table:
    known = {**data.run.environment, **data.run.options}
    known |= {"baseline file": data.run.baseline_file} if data.run.baseline_file else {}
    rows = [[Cell(name), Cell(value)] for name, value in known.items()]
    return Table("Environment and options", [Column("what"), Column("value", "name")], rows)
