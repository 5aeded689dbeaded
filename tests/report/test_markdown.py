"""summary.md."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.records_factory import frame, record, some_kernels, some_problems, some_run
from tile_oracle.judge.picker import Origin
from tile_oracle.pages.tables import code, text
from tile_oracle.report.data import RunInfo, analyse
from tile_oracle.report.markdown import summary_markdown

PROBLEMS = some_problems(6)
RUN = RunInfo("a-run", problem_set="forward_smoke", target="cpu", environment={"toolchain": "zig|c++"})


def columns(line: str) -> int:
    """The cells of a table row, split at unescaped pipes."""
    return len(re.findall(r"(?<!\\)\|", line)) - 1


def test_it_begins_with_the_answers_and_has_the_metrics_and_complete_tables() -> None:
    records, rankings = some_run(PROBLEMS, 12, failures=0.2)
    run = replace(RUN, folder="reports/a run")
    data = analyse(records, PROBLEMS, rankings, run=run, ranked_by=Origin("folder", "models/x"))
    summary = summary_markdown(data)
    answers = summary[: summary.index("| figure | value |")]
    assert "The picks reach" in answers
    assert "```sh\npytest --problem-set forward_smoke --target cpu --update-baseline\n```" in answers
    assert f"| efficiency, mean | {data.efficiency.mean_percent:.1f} % |" in summary
    weighted = f"{data.time_weighted_percent:.1f} %"
    assert (
        f"| time-weighted: total time of the oracles / of the picks: long problems count more | {weighted} |"
        in summary
    )
    assert "**Verdict: no baseline" in summary
    assert "models/x" in summary
    lines = summary.splitlines()
    for above, line in itertools.pairwise(lines):
        if above.startswith("|") and line.startswith("|"):
            assert columns(line) == columns(above)
    for status, number in data.statuses.items():
        assert (f"| {text(status)} | {number:,} |" in summary) == (number > 0)


def test_without_a_model_and_without_records() -> None:
    records, _ = some_run(PROBLEMS, 3)
    assert "oracles only" in summary_markdown(analyse(records, PROBLEMS, None, run=RUN))
    assert "0 of 0 problems" in summary_markdown(analyse(frame([]), [], None, run=RUN))


@settings(max_examples=30)
@given(st.text(max_size=80), st.sampled_from(["", "|", "`", "\\", "<img src=x>", "\n\n# head", "**b**"]))
def test_foreign_text_is_escaped(drawn: str, extra: str) -> None:
    hostile = drawn + extra
    shown = text(hostile)
    assert "\n" not in shown
    assert "<" not in shown
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[|#]", shown)
    span = code(hostile)
    assert span == "" or re.fullmatch(r"`(?:[^`|\\]|\\\|)+`", span)


def test_hostile_details_stay_in_their_cells() -> None:
    (kernel,) = some_kernels(1, PROBLEMS[0])
    rows = [record(PROBLEMS[0], kernel, status="crash", detail="a | b\n\n# c <script>`x`")]
    summary = summary_markdown(analyse(frame(rows), PROBLEMS[:1], None, run=RUN))
    assert "<script>" not in summary
    row = next(line for line in summary.splitlines() if line.startswith("| crash | `"))
    assert columns(row) == 4
