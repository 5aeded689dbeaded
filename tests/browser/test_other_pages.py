"""The page of runs history in Chromium."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Open, expect, fits
from tests.browser.test_report_page import PHONE
from tests.history.made_runs import noisy_means, write_nights
from tile_oracle.cli import main


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("short")
    write_nights(folder / "runs", noisy_means(12, 3))
    assert main(["history", str(folder / "runs"), "-o", str(folder / "history.html")]) == 0
    return folder / "history.html"


@pytest.mark.parametrize(("name", "options"), [("light", {}), ("phone", PHONE)])
def test_the_page_fits_its_window(
    name: str, options: dict[str, Any], page_file: Path, open_page: Open, screenshots: Path
) -> None:
    page = open_page(page_file, **options)
    page.screenshot(path=screenshots / f"{page_file.stem}-{name}.png")
    assert page.locator("svg.chart").first.is_visible()
    assert fits(page)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    means = noisy_means(24, 3)
    means[12:] -= 2
    write_nights(
        folder / "runs",
        means,
        environment=lambda n: {"driver": "old" if n < 12 else "new"},
        picks=lambda n: {n % 5: 2},
    )
    assert main(["history", str(folder / "runs"), "-o", str(folder / "history.html")]) == 0
    return folder / "history.html"


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_a_run_s_dot_and_name_lead_to_its_report(script: bool, history: Path, open_page: Open) -> None:
    page = open_page(history, java_script_enabled=script)
    page.locator("svg.chart").first.locator("a circle").last.click()
    expect(page).to_have_url(re.compile(r"runs/night-0023/report\.html$"))
    page.go_back()
    page.get_by_role("link", name="night-0005").last.click()
    expect(page).to_have_url(re.compile(r"runs/night-0005/report\.html$"))


def test_a_long_history_prints_its_newest_runs(tmp_path: Path, open_page: Open, screenshots: Path) -> None:
    write_nights(tmp_path / "runs", noisy_means(90, 3))
    assert main(["history", str(tmp_path / "runs"), "-o", str(tmp_path / "h.html")]) == 0
    page = open_page(tmp_path / "h.html")
    rows, note = (
        page.locator("table", has_text="verdict").locator("tbody tr"),
        page.get_by_text("first 60 rows are printed").first,
    )
    assert (rows.last.is_visible(), note.is_visible()) == (True, False)
    page.emulate_media(media="print")
    assert (rows.nth(59).is_visible(), rows.nth(60).is_visible(), note.is_visible()) == (True, False, True)
    page.pdf(path=screenshots / "history.pdf")


def test_the_tables_of_the_history_fit_a_desktop(history: Path, open_page: Open) -> None:
    page = open_page(history, viewport={"width": 1280, "height": 900})
    wide = "[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth).length"
    assert page.evaluate(wide) == 0


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    scheme: str, page_file: Path, open_page: Open, serious_faults: Any
) -> None:
    assert serious_faults(open_page(page_file, color_scheme=scheme)) == []
