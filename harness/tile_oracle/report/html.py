"""report.html: one self-contained file without libraries or downloads, readable without its script."""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tile_oracle import static_page
from tile_oracle.report import sections, wording
from tile_oracle.report.data import ReportData
from tile_oracle.report.problem_views import drill_data
from tile_oracle.report.terms import anchor

_PAGE = Path(__file__).with_name("page")
_MOST_CHARACTERS = 2000


def report_html(data: ReportData) -> str:
    """The page as text. Foreign text is escaped. A content security policy allows only the page's own script
    and no downloads."""
    views = [(name, heading, view(data)) for name, heading, view in sections.SECTIONS]
    script = (_PAGE / "report.js").read_text(encoding="utf-8")
    return (
        _environment()
        .get_template("report.html")
        .render(
            drill_data=Markup(drill_data(data)),
            anchor=anchor,
            header=sections.header(data),
            sections=[section for section in views if section[2] is not None],
            style=static_page.base_style() + Markup((_PAGE / "report.css").read_text(encoding="utf-8")),
            script=Markup(script),
            script_sha256=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_PAGE),
        autoescape=True,
        finalize=_cleaned,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["breakable"] = static_page.breakable
    return environment


def _cleaned(value: object) -> object:
    """Converts every template expression before it is escaped."""
    return value if isinstance(value, Markup) else wording.one_line(value, _MOST_CHARACTERS)
