"""report.html in Chromium: sorting, filtering, dark, phone, no script, accessibility."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Open, expect, fits
from tests.report.records_factory import some_problems, some_run
from tile_oracle.judge.picker import Origin
from tile_oracle.report.data import RunInfo, Scope, analyse
from tile_oracle.report.html import report_html

PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "device_scale_factor": 2}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    problems = some_problems(30)
    records, rankings = some_run(problems, 20, failures=0.05)
    run = RunInfo("a-run", "forward_smoke", target="sm_90", arch="sm_90", device="A GPU", folder="reports/a")
    ranked_by = Origin("folder", "models/x")
    data = analyse(records, problems, rankings, run=run, ranked_by=ranked_by, scope=Scope(600, 600))
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(report_html(data), encoding="utf-8")
    return file


def _column(page: Any, table: str, place: int) -> list[str]:
    cells = page.locator(f"#{table} tbody tr:not([hidden]) > :nth-child({place})")
    return [text.strip() for text in cells.all_inner_texts()]


def _operations(text: str) -> float:
    """156 G as a number."""
    number, _, prefix = text.partition(" ")
    return float(number.replace(",", "")) * 1000.0 ** " kMGTP".index(prefix or " ")


def test_a_heading_sorts_its_table(report: Path, open_page: Open) -> None:
    page = open_page(report)
    page.locator("#all-problems thead button", has_text="FLOP").last.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#all-problems [aria-sort=ascending]")).to_be_visible()
    flops = [_operations(text) for text in _column(page, "all-problems", 7)]
    assert flops == sorted(flops)
    assert len(set(flops)) > 1
    page.keyboard.press("Enter")
    expect(page.locator("#all-problems [aria-sort=descending]")).to_be_visible()
    assert [_operations(text) for text in _column(page, "all-problems", 7)] == flops[::-1]


def test_the_filter_hides_the_other_rows(report: Path, open_page: Open) -> None:
    page = open_page(report)
    before = _column(page, "all-problems", 1)
    for words, title in (("3x3", "3x3,"), ("forward f3x3", "3x3,"), ("f1x1", "1x1,")):
        page.get_by_label("Filter problems").first.fill(words)
        shown = _column(page, "all-problems", 1)
        assert 0 < len(shown) < len(before)
        assert all(title in problem for problem in shown)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("light", {}),
        ("phone", PHONE),
        ("no-script", {"java_script_enabled": False}),
    ],
)
def test_the_page_fits_its_window(
    name: str, options: dict[str, Any], report: Path, open_page: Open, screenshots: Path
) -> None:
    page = open_page(report, **options)
    page.screenshot(path=screenshots / f"report-{name}.png")
    assert page.locator("#all-problems tbody tr").count() == 30
    assert page.locator("svg.chart").first.is_visible()
    if options.get("java_script_enabled", True):
        assert fits(page)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(scheme: str, report: Path, open_page: Open, serious_faults: Any) -> None:
    page = open_page(report, color_scheme=scheme)
    # Rows are alike: the longest table that is whole has the pairs that failed.
    page.evaluate("document.querySelectorAll('tbody tr:nth-child(n+16)').forEach(row => row.remove())")
    assert serious_faults(page) == []


def test_enter_on_a_problem_opens_its_kernels(report: Path, open_page: Open, screenshots: Path) -> None:
    page = open_page(report)
    opener = page.locator("#all-problems tbody .opens").nth(3)
    problem = opener.inner_text()
    opener.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("h2")).to_have_text(problem)
    times = [
        float(text.replace(",", ""))
        for text in dialog.locator("table").last.locator("tbody td:nth-child(2)").all_inner_texts()
        if text != "-"
    ]
    assert len(times) > 3
    assert dialog.locator(".tag", has_text="oracle").count() == 1
    page.screenshot(path=screenshots / "report-drill-down.png")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator(":focus")).to_have_text(problem)


def test_a_click_opens_a_problem_and_next_is_the_next_row(report: Path, open_page: Open) -> None:
    page = open_page(report)
    page.locator("#all-problems tbody tr").first.locator("td").nth(1).click()
    dialog = page.get_by_role("dialog")
    rows = page.locator("#all-problems tbody .opens")
    expect(dialog.locator("h2")).to_have_text(rows.nth(0).inner_text())
    expect(dialog.get_by_role("button", name="Previous")).to_be_disabled()
    dialog.get_by_role("button", name="Next").click()
    expect(dialog.locator("h2")).to_have_text(rows.nth(1).inner_text())
    dots, axis = dialog.locator("table .interval-dot circle"), 4.0
    places = [float(dots.nth(n).get_attribute("cx")) for n in range(dots.count())]  # type: ignore[arg-type]
    assert places[0] == axis
    assert places == sorted(places)
    assert places[-1] > axis
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def test_an_address_names_the_open_problem(report: Path, open_page: Open) -> None:
    page = open_page(report)
    opener = page.locator("#all-problems tbody .opens").nth(5)
    problem = opener.inner_text()
    opener.click()
    expect(page).to_have_url(re.compile("#open="))
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(page.get_by_role("dialog").locator("h2")).to_have_text(problem)


def test_problems_are_chosen_by_kind_and_a_link_of_the_summary_chooses(report: Path, open_page: Open) -> None:
    page = open_page(report)
    page.locator(".filter").get_by_label("kind").select_option("1x1")
    shown = _column(page, "all-problems", 1)
    assert shown
    assert all(problem.startswith("1x1, ") for problem in shown)
    link = page.locator("#answers a[href^='#kind-']").first
    link.click()
    # The page hears of its new address some time after the click.
    chosen = page.locator(".filter").get_by_label("kind").locator("option:checked")
    expect(chosen).to_have_text(link.inner_text())
    assert 0 < page.locator("#all-problems tbody tr:not([hidden])").count() < 30
    page.locator("#answers a[href^='#open=']").click()
    expect(page.get_by_role("dialog")).to_be_visible()


def test_the_groups_stay_in_reach_and_are_folded_on_a_phone(report: Path, open_page: Open) -> None:
    page = open_page(report, **PHONE)
    groups = page.locator("details.group")
    names = ["Verdict", "Where", "Kernels", "Data"]
    assert [text.strip() for text in groups.locator("> summary").all_inner_texts()] == names
    assert [groups.nth(n).get_attribute("open") is not None for n in range(4)] == [True, False, False, False]
    page.get_by_role("navigation").get_by_role("link", name="Kernels").click()
    expect(page.locator("#pool")).to_be_visible()
    page.wait_for_function("document.querySelector('nav').getBoundingClientRect().y === 0")
    without = open_page(report, **PHONE, java_script_enabled=False)
    assert without.locator("#all-problems").is_visible()


def test_the_drill_down_fits_a_phone(report: Path, open_page: Open, screenshots: Path) -> None:
    page = open_page(report, **PHONE)
    page.get_by_role("link", name="Where").click()
    page.locator("#all-problems tbody .opens").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.screenshot(path=screenshots / "report-drill-down-phone.png")
    assert fits(page)
    assert page.evaluate("(d => d.scrollWidth <= d.clientWidth)(document.getElementById('drill'))")


@pytest.mark.slow
def test_axe_finds_nothing_serious_in_the_drill_down(
    report: Path, open_page: Open, serious_faults: Any
) -> None:
    for scheme in ("light", "dark"):
        page = open_page(report, color_scheme=scheme)
        page.locator("#all-problems tbody .opens").first.click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert serious_faults(page, "#drill") == []


def test_terms_are_explained_on_hover(report: Path, open_page: Open) -> None:
    page = open_page(report)
    expect(page.locator(".hero a.term", has_text="P10")).to_have_attribute(
        "title", re.compile("10th percent")
    )
    rank = page.locator("#all-problems thead button", has_text="rank")
    expect(rank).to_have_attribute("title", re.compile("ranking"))


def test_a_command_is_copied(report: Path, open_page: Open) -> None:
    page = open_page(report, permissions=["clipboard-read", "clipboard-write"])
    place = page.locator(".command").first
    command = place.locator("code").inner_text()
    place.get_by_role("button", name="Copy the command").click()
    expect(place.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == command


def test_no_table_of_the_page_is_wider_than_a_desktop(report: Path, open_page: Open) -> None:
    page = open_page(report, viewport={"width": 1280, "height": 900})
    wide = page.evaluate(
        "[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth)"
        ".map(one => one.querySelector('table').getAttribute('aria-label'))"
    )
    assert wide == []


def test_a_term_leads_to_the_legend_without_a_script(report: Path, open_page: Open) -> None:
    page = open_page(report, java_script_enabled=False)
    page.locator(".hero a.term", has_text="P10").click()
    expect(page).to_have_url(re.compile("#term-p10$"))


def test_print_shows_the_charts_and_no_filters(report: Path, open_page: Open, screenshots: Path) -> None:
    page = open_page(report)
    page.emulate_media(media="print")
    assert page.locator("svg.chart").first.is_visible()
    assert not page.locator(".filter").first.is_visible()
    page.pdf(path=screenshots / "report.pdf")
    assert (screenshots / "report.pdf").stat().st_size > 20_000
