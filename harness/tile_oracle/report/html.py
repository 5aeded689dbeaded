"""report.html: one self-contained file without libraries or downloads, readable without its script."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from tile_oracle.pages.render import render
from tile_oracle.report import sections
from tile_oracle.report.data import ReportData
from tile_oracle.report.drill_down import drill_data
from tile_oracle.report.terms import anchor

PAGE = Path(__file__).with_name("page")


def report_html(data: ReportData) -> str:
    """Returns the page as text. Foreign text is escaped. A content security policy allows only the page's own
    script and no downloads."""
    groups = []
    for group, parts in sections.GROUPS.items():
        made = [(name, heading, view(data)) for name, heading, view in parts]
        groups.append((group.lower(), group, [section for section in made if section[2]]))
    header = sections.header(data)
    return render(
        PAGE,
        "report.html",
        style=(PAGE / "report.css").read_text(encoding="utf-8"),
        script=(PAGE / "report.js").read_text(encoding="utf-8"),
        anchor=anchor,
        title=f"{header['state']}: {header['title']}",
        header=header,
        groups=[group for group in groups if group[2]],
        drill_data=Markup(drill_data(data)),
    )
