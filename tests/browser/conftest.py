"""A real browser for the pages that tile-oracle writes.

Chromium comes from the system (`apt-get install chromium`), Playwright drives it, and axe-core checks
accessibility. Without a browser these tests are skipped; with CI set in the environment they fail.
Screenshots go to the folder TILE_ORACLE_SCREENSHOTS, or else to pytest's temporary folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

LONGEST_MS = 300_000
Open = Callable[..., Any]
"""open_page(file, **options of Browser.new_context) -> Page. The page must raise no script error."""


def _missing(what: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"{what}: install it, CI runs the browser tests", pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window. It ends with the module, because other tests count child processes."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        _missing("no chromium on PATH")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("no playwright: pip install 'tile-oracle[dev]'")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"], timeout=LONGEST_MS
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Opens a file in a fresh context; options such as color_scheme="dark", viewport, java_script_enabled."""
    contexts, errors = [], []

    def opened(file: Path, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(LONGEST_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        page.goto(file.resolve().as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the screenshots that a test keeps."""
    folder = os.environ.get("TILE_ORACLE_SCREENSHOTS")
    path = Path(folder) if folder else tmp_path_factory.mktemp("screenshots")
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture(scope="session")
def serious_faults() -> Callable[..., list[str]]:
    """serious_faults(page, part): what axe-core calls serious or critical, as "rule: element". part: of the
    page, by its selector; None: all of it."""
    try:
        import axe_core_python.sync_playwright as axe
    except ImportError:
        _missing("no axe-core-python: pip install 'tile-oracle[dev]'")

    def found(page: Any, part: str | None = None) -> list[str]:
        result = axe.Axe().run(page, part)
        return [
            f"{fault['id']}: {node['html'][:120]}"
            for fault in result["violations"]
            if fault["impact"] in ("serious", "critical")
            for node in fault["nodes"]
        ]

    return found


def expect(what: Any) -> Any:
    """Playwright's assertions on a page or a locator, which wait: what a click does comes later."""
    from playwright.sync_api import expect

    expect.set_options(timeout=LONGEST_MS)
    return expect(what)


def fits(page: Any) -> bool:
    """Whether the page is no wider than its window."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))
