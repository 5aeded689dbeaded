"""Which source of kernels is fastest on which problem."""

from __future__ import annotations

from functools import cache

import pandas as pd
import pytest

from tests.report.records_factory import frame, record, some_kernels, some_problems
from tile_oracle.operation import operation_named
from tile_oracle.problem import problem_from_id
from tile_oracle.report.data import ReportData, RunInfo, analyse
from tile_oracle.report.html import report_html
from tile_oracle.report.markdown import summary_markdown
from tile_oracle.report.sources import source_figures
from tile_oracle.report.terminal import summary_lines

PROBLEMS = some_problems(3)


@cache
def a_report(sources: tuple[str, str, str]) -> ReportData:
    speeds = ((10.0, 8.0, 5.0), (4.0, 3.0, 8.0), (6.0, 3.0, None))
    kernels = [some_kernels(3, problem) for problem in PROBLEMS]
    rows = [
        record(problem, kernel, speed, status="ok" if speed else "wrong") | {"implementation": source}
        for problem, several, of_problem in zip(PROBLEMS, kernels, speeds, strict=True)
        for kernel, speed, source in zip(several, of_problem, sources, strict=True)
    ]
    return analyse(frame(rows), PROBLEMS, None, run=RunInfo("a-run"))


def test_each_source_is_compared_with_the_oracle() -> None:
    data = a_report(("native", "native", "cublaslt"))
    native, library = source_figures(data.by_source)
    assert (native.source, native.wins, native.problems) == ("native", 2, 3)
    assert (library.source, library.wins, library.problems) == ("cublaslt", 1, 2)
    assert native.mean_percent == pytest.approx(100 * (1 * 0.5 * 1) ** (1 / 3))
    assert library.mean_percent == pytest.approx(100 * 0.5**0.5)
    assert native.worst_percent == library.worst_percent == pytest.approx(50.0)


def test_every_form_of_the_report_names_the_sources() -> None:
    data = a_report(("native", "native", "cublaslt"))
    assert any(line.split()[:3] == ["cublaslt", "1", "2"] for line in summary_lines(data))
    assert "| cublaslt | 1 | 2 | 70.7 % | 50.0 % |" in summary_markdown(data)
    page = report_html(data)
    assert "Sources of kernels" in page
    assert "70.7 %" in page
    band = str(data.by_source["problem"].map(_size).value_counts().index[0])
    of_band = data.by_source[data.by_source["problem"].map(_size) == band]
    place = page[page.index('<table id="who-wins"') :].partition("</table>")[0]
    assert band in place
    for source in ("native", "cublaslt"):
        won = int((of_band["winner"] == source).sum())
        row = place[place.index(f">{source}</th>") :].partition("</tr>")[0]
        assert f"{won} of {len(of_band)}</span>" in row


def _size(problem: str) -> str:
    """The band of size of a problem."""
    of = problem_from_id(problem)
    return next(name for name, belongs in operation_named(of.op).bands.items() if belongs(of))


@pytest.mark.parametrize("source", ["native", None])
def test_one_source_is_not_compared(source: str | None) -> None:
    data = a_report((source, source, source))  # type: ignore[arg-type]
    assert isinstance(data.by_source, pd.DataFrame)
    assert not source_figures(data.by_source)
    assert "Sources of kernels" not in report_html(data)
