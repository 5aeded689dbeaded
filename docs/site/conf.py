"""Sphinx builds the documentation as a site: `make docs`, in build/site.

The pages are the Markdown files that people also read in the repository. The source folder is the
repository, so that the links between docs/, README.md and the other pages work in both.
"""

import re
from pathlib import Path

from pygments.lexers import BashLexer, TextLexer
from sphinx.application import Sphinx

from tile_oracle.version import __version__

project = "tile-oracle"
author = "the tile-oracle project"
copyright = "the tile-oracle project"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md", "examples/**.md"]

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
add_module_names = False
default_role = "code"
smartquotes = False  # they would make one dash of the two of an option

html_theme = "furo"
html_title = f"tile-oracle {__version__}"
html_static_path: list[str] = []
html_extra_path = ["root"]  # index.html, since the pages are in docs/
html_show_sourcelink = False


def setup(app: Sphinx) -> None:
    """Highlights the code blocks of which the tests make commands and files."""
    for name in ("campaign", "first-day", "gfx950", "gfx950_status_1"):
        app.add_lexer(name, BashLexer)
    tutorials = "".join(page.read_text() for page in Path(__file__).parents[1].glob("tutorial_*.md"))
    for name in set(re.findall(r"^```(tutorial\w*)", tutorials, re.MULTILINE)):
        app.add_lexer(name, BashLexer)
    for name in ("csv", "conf", "measured", "report", "edit"):
        app.add_lexer(name, TextLexer)
