"""Self-contained HTML pages without downloads, from templates that may extend `base.html`."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from tile_oracle.pages.tables import Block
from tile_oracle.pages.words import LONGEST, kernel_words, one_line

_HERE = Path(__file__).parent


def render(
    templates: Path,
    name: str,
    *,
    style: str = "",
    script: str = "",
    anchor: Callable[[str], str] = lambda term: "",
    **values: Any,
) -> str:
    """Returns a page from the template `name` in the folder `templates`.

    Every value is escaped, control characters are replaced. The page's content security policy allows only
    the page's own script and no downloads. style: after that of all pages. anchor: the id in the page that
    explains a heading, or "".
    """
    return (
        _environment(templates, anchor)
        .get_template(name)
        .render(
            style=Markup((_HERE / "base.css").read_text(encoding="utf-8") + style),
            script=Markup(script),
            script_sha256=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            **values,
        )
    )


def page(title: str, top: Sequence[Block], sections: Sequence[tuple[str, str, Sequence[Block]]]) -> str:
    """Returns a page of blocks. top: below the title. sections: id, heading and blocks of each."""
    return render(_HERE, "page.html", title=title, top=top, sections=sections)


@functools.cache
def _environment(templates: Path, anchor: Callable[[str], str]) -> Environment:
    environment = Environment(
        loader=FileSystemLoader([templates, _HERE]),
        autoescape=True,
        finalize=_cleaned,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["breakable"] = breakable
    environment.filters["kernel_words"] = lambda name: kernel_words(one_line(name, LONGEST))
    environment.globals["anchor"] = anchor
    return environment


def _cleaned(value: object) -> object:
    """Converts every template expression before it is escaped."""
    return value if isinstance(value, Markup) else one_line(value, LONGEST)


def breakable(name: object) -> Markup:
    """Returns a kernel's name with the places where a line may break: after its underscores or, in a name of
    settings (BLOCK_M=64.num_warps=4), before its points."""
    text = escape(one_line(name, LONGEST))
    return text.replace(".", Markup("<wbr>.")) if "=" in text else text.replace("_", Markup("_<wbr>"))
