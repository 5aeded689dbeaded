"""report.html: self-contained, escaped, complete for runs of any size."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import itertools
import re
from collections import Counter
from functools import cache
from html.parser import HTMLParser

import pytest

from tests.report.records_factory import accepted, frame, record, some_kernels, some_problems, some_run
from tests.samples import slow
from tile_oracle.judge.criteria import Criteria
from tile_oracle.judge.picker import Origin
from tile_oracle.pages.words import moment
from tile_oracle.report.answers import is_it_good
from tile_oracle.report.data import ReportData, RunInfo, Scope, analyse
from tile_oracle.report.html import report_html
from tile_oracle.report.picker_figures import PickerFigures
from tile_oracle.report.pictures import hero_line, spots

VOID = {"meta", "br", "wbr", "input", "link", "img"}
RUN = RunInfo(
    "a-run",
    problem_set="forward_smoke",
    target="cpu",
    device="Some CPU",
    environment={"toolchain": "zig c++"},
    options={"--budget": "10m"},
)


class Page(HTMLParser):
    """A strict parser of a page: matching elements, attributes, text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.ids: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())


@cache
def a_report(count: int, *, model: bool = True, failures: float = 0.05) -> ReportData:
    problems = some_problems(count)
    records, rankings = some_run(problems, 6, failures=failures)
    if failures >= 1:
        records = records[records["status"] != "ok"]
    return analyse(
        records,
        problems,
        rankings if model else None,
        run=RUN,
        ranked_by=Origin("folder", "models/x") if model else None,
        scope=Scope(count * 6, count * 6),
    )


@pytest.mark.parametrize(
    ("count", "model", "failures"),
    [
        (0, True, 0.0),
        (1, True, 0.0),
        (1, False, 0.0),
        (10, True, 0.1),
        (10, False, 0.1),
        (10, True, 1.0),
        (100, True, 0.05),
        *slow((2000, True, 0.02)),
    ],
)
def test_the_page_is_complete_for_runs_of_any_size(count: int, model: bool, failures: float) -> None:
    data = a_report(count, model=model, failures=failures)
    html = report_html(data)
    page = Page(html)
    assert page.tags["h1"] == page.tags["header"] == page.tags["main"] == 1
    assert len(page.ids) == len(set(page.ids))
    targets = {value[1:] for tag, name, value in page.attributes if (tag, name) == ("a", "href")}
    assert targets <= set(page.ids)
    assert not re.search(r"\b(nan|inf|None|NaT)\b", page.words)
    assert not re.search(r'="[^"]*\bnan\b', html.partition("</style>")[2])
    for problem in data.selection["problem"]:
        assert problem in html
    if data.efficiency.covered:
        assert f"{data.efficiency.mean_percent:.1f} %" in page.words


def test_the_page_loads_nothing_and_runs_only_its_own_script() -> None:
    html = report_html(a_report(10))
    page = Page(html)
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    for _, name, value in page.attributes:
        assert name not in ("src", "srcset", "action", "style", "xlink:href")
        assert not name.startswith("on")
        assert "://" not in value
    assert "url(" not in html
    assert "@import" not in html
    kinds = [value for tag, name, value in page.attributes if (tag, name) == ("script", "type")]
    assert (page.tags["script"], kinds) == (2, ["application/json"])
    script = html.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(v for tag, name, v in page.attributes if tag == "meta" and "default-src" in v)
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_every_chart_has_a_text_alternative() -> None:
    page = Page(report_html(a_report(40)))
    charts = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "class")]
    assert charts.count("chart") == 2
    labels = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert len(labels) == charts.count("chart")
    assert all(labels)


def test_the_line_of_the_head_has_every_way_to_choose_and_no_text_over_another() -> None:
    beside = tuple(PickerFigures(f"picker number {n}", 40, 97.0 + 0.1 * n, 90.0) for n in range(6))
    data = dataclasses.replace(
        a_report(40), fixed_mean_percent=61.6, repeatability_percent=99.9, beside=beside
    )
    chart = hero_line(data)
    low, high = re.findall(r"interval ([\d.]+) to ([\d.]+)", chart)[0]
    mean = data.efficiency.mean_percent
    assert float(low) < mean < float(high)
    texts = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)" class="halo">([^<]+)', chart)
    assert len(texts) == len(spots(data)) == 8
    rows: dict[str, list[tuple[float, float]]] = {}
    for x, y, anchor, said in texts:
        wide = 6.5 * len(said)
        rows.setdefault(y, []).append(
            (float(x) - wide, float(x)) if anchor == "end" else (float(x), float(x) + wide)
        )
    for spans in rows.values():
        assert all(left[1] < right[0] for left, right in itertools.pairwise(sorted(spans)))
    assert all(left >= 0 and right <= 480 for spans in rows.values() for left, right in spans)


@pytest.mark.parametrize("percent", [12.0, 33.0, 48.0, 52.0, 70.0, 98.0])
def test_the_text_above_the_line_lies_within_the_chart_wherever_the_mean_is(percent: float) -> None:
    data = a_report(40)
    selection = data.selection.assign(efficiency=percent / 100.0)
    beside = (PickerFigures("the lowest", 40, 10.0, 5.0),)
    chart = hero_line(dataclasses.replace(data, selection=selection, beside=beside))
    x, anchor, said = re.findall(
        r'<text x="([\d.]+)" y="[\d.]+" text-anchor="(\w+)" class="lead">([^<]+)', chart
    )[0]
    wide = 8.0 * len(said)
    left = float(x) - wide if anchor == "end" else float(x)
    assert f"{percent:.1f}" in said
    assert left >= -8
    assert left + wide <= 488


def test_wrong_and_missing_results_are_the_first_sentence() -> None:
    data = a_report(40, failures=0.6)
    problems = [*data.not_covered.values()]
    first, second, *_ = is_it_good(data)
    wrong = data.statuses["wrong"]
    assert first == f"{wrong} of {len(data.final):,} pairs are wrong."
    assert second.startswith(f"{sum(map(len, problems))} of 40 problems are not judged: ")
    shown = report_html(data).partition('<section id="answers"')[2]
    assert '<a href="#pairs">' in shown.partition("</p>")[0]
    assert re.search(r'<a href="#open=(\S+)" title="\1">[\dx]+, \d+ to \d+, ', shown), "a problem by its size"
    assert is_it_good(a_report(40, failures=0.0))[0].startswith("The picks reach")


def test_criteria_and_losses() -> None:
    data = a_report(10)
    baseline = accepted(data)
    higher = dataclasses.replace(baseline, efficiencies=dict.fromkeys(baseline.efficiencies, 1.0))
    records, rankings = some_run(some_problems(10), 6, failures=0.2)
    published = Criteria(rule="published")
    failed = analyse(records, some_problems(10), rankings, run=RUN, baseline=higher, criteria=published)
    page = Page(report_html(failed))
    assert failed.verdict.losses
    assert "FAIL" in page.words
    assert "lost too much" in page.words
    html = report_html(failed)
    losses = html[html.index('<section id="judgement"') :].partition("</section>")[0]
    assert losses.count(" data-p=") == len(failed.verdict.losses), "each opens its kernels"
    failures = html[html.index('<table id="failures"') :].partition("</table>")[0]
    assert failures.count(" data-p=") == len(failed.verdict.new_failures)
    assert "baseline" in page.words


def test_kernels_are_listed_with_their_registers_and_lds() -> None:
    problem = some_problems(1)[0]
    a, b = some_kernels(2, problem)
    facts = {"vgprs": 1128, "lds_bytes": 34_304, "spills": 0, "workgroups_per_cu": 3}
    rows = [record(problem, a, 2.0) | facts, record(problem, b, 1.0)]
    html = report_html(analyse(frame(rows), [problem], None, run=RUN))
    shown = Page(html).words
    assert "registers" in _headings_of_kernels(html)
    assert "1,128" in shown
    assert "34,304" in shown
    without = report_html(analyse(frame([record(problem, a, 2.0)]), [problem], None, run=RUN))
    assert "registers" not in _headings_of_kernels(without)


def _headings_of_kernels(html: str) -> str:
    return html[html.index('<table id="all-kernels"') :].partition("</thead>")[0]


def test_hostile_text_stays_text_wherever_it_stands() -> None:
    problem = some_problems(1)[0]
    a, b = some_kernels(2, problem)
    shown = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'><!--]]> &lt;b&gt;"
    hostile = f"{shown} \x00\x1b[31m\u202e"
    rows = [
        record(problem, a, 1.0),
        record(problem, b, status="crash", detail=hostile),
        record(problem, "k" + hostile, status="wrong", detail=hostile),
    ]
    records = frame(rows)
    rankings = records[["problem", "kernel"]].assign(predicted_tflops=[1.0, 2.0, 3.0])
    texts = dict.fromkeys(("problem_set", "target", "device", "created", "baseline_file"), hostile)
    run = RunInfo(hostile, **texts, environment={hostile: hostile}, options={hostile: hostile})
    model = Origin("folder", hostile, hostile)
    page = Page(report_html(analyse(records, [problem], rankings, run=run, ranked_by=model)))
    assert page.tags["script"] == 2
    assert page.tags["img"] == 0
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert all(c.isprintable() or c == "\n" for c in "".join(page.text))
    assert shown in page.words


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2026-11-24T03:28:27+00:00", "2026-11-24 03:28 UTC"),
        ("2026-11-24T03:28:27+02:00", "2026-11-24 01:28 UTC"),
        ("2026-11-24T03:28:27", "2026-11-24T03:28:27"),
        ("last night", "last night"),
    ],
)
def test_the_time_of_a_run_is_short_and_says_its_zone(given: str, shown: str) -> None:
    assert moment(given) == shown
