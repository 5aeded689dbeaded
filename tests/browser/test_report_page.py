"""report.html in Chromium: sorting, filtering, dark, phone, no script, accessibility."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Open, fits
from tests.report.records_factory import some_problems, some_run
from tile_oracle.report.data import RankedBy, RunInfo, Scope, analyse
from tile_oracle.report.html import report_html

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "device_scale_factor": 2}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    problems = some_problems(40)
    records, rankings = some_run(problems, 8, failures=0.05)
    run = RunInfo("a-run", problem_set="forward_smoke", target="sm_90", arch="sm_90", device="Some GPU")
    ranked_by = RankedBy("folder", "models/x")
    data = analyse(records, problems, rankings, run=run, ranked_by=ranked_by, scope=Scope(320, 320))
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(report_html(data), encoding="utf-8")
    return file


def _column(page: Any, table: str, place: int) -> list[str]:
    cells = page.locator(f"#{table} tbody tr:not([hidden]) > :nth-child({place})")
    return [text.strip() for text in cells.all_inner_texts()]


def test_a_heading_sorts_its_table(report: Path, open_page: Open) -> None:
    page = open_page(report)
    button = page.locator("#all-problems thead button").nth(1)
    button.focus()
    page.keyboard.press("Enter")
    flops = [float(text.replace(",", "")) for text in _column(page, "all-problems", 2)]
    assert flops == sorted(flops)
    assert len(set(flops)) > 1
    page.keyboard.press("Enter")
    assert [float(text.replace(",", "")) for text in _column(page, "all-problems", 2)] == flops[::-1]


def test_the_filter_hides_the_other_rows(report: Path, open_page: Open) -> None:
    page = open_page(report)
    before = _column(page, "all-problems", 1)
    page.get_by_label("Filter problems").first.fill("f3x3")
    shown = _column(page, "all-problems", 1)
    assert 0 < len(shown) < len(before)
    assert all("f3x3" in problem for problem in shown)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("light", {}),
        ("dark", {"color_scheme": "dark"}),
        ("phone", PHONE),
        ("no-script", {"java_script_enabled": False}),
    ],
)
def test_the_page_fits_its_window(
    name: str, options: dict[str, Any], report: Path, open_page: Open, screenshots: Path
) -> None:
    page = open_page(report, **options)
    page.screenshot(path=screenshots / f"report-{name}.png", full_page=True)
    assert page.locator("#all-problems tbody tr").count() == 40
    assert page.locator("svg.chart").first.is_visible()
    if options.get("java_script_enabled", True):
        assert fits(page)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(scheme: str, report: Path, open_page: Open, serious_faults: Any) -> None:
    assert serious_faults(open_page(report, color_scheme=scheme)) == []
