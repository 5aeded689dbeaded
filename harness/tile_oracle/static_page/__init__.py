"""Self-contained HTML pages without scripts or downloads, for pages that show several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

_HERE = Path(__file__).parent
_MOST_CHARACTERS = 2000


def render(templates: Path, name: str, **values: Any) -> str:
    """A page from the template `name` in the folder `templates`; it may extend `base.html`.

    Every value is escaped, control characters are replaced. The page's content security policy allows
    neither scripts nor downloads.
    """
    environment = Environment(
        loader=ChoiceLoader([FileSystemLoader(templates), FileSystemLoader(_HERE)]),
        autoescape=True,
        finalize=_cleaned,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["breakable"] = breakable
    return environment.get_template(name).render(style=base_style(), **values)


def base_style() -> Markup:
    """The style sheet of all pages."""
    return Markup((_HERE / "base.css").read_text(encoding="utf-8"))


def clean(text: object) -> str:
    """Foreign text as one line without control and direction characters."""
    words = " ".join(str(text)[: 4 * _MOST_CHARACTERS].split())
    shown = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in words)
    return shown if len(shown) <= _MOST_CHARACTERS else shown[: _MOST_CHARACTERS - 3] + "..."


def _cleaned(value: object) -> object:
    return value if isinstance(value, Markup) else clean("" if value is None else value)


def breakable(name: object) -> Markup:
    """A kernel's name with the places where a line may break: after its underscores or, in a name of settings
    (BLOCK_M=64.num_warps=4), before its points."""
    text = escape(clean(name))
    return text.replace(".", Markup("<wbr>.")) if "=" in text else text.replace("_", Markup("_<wbr>"))
