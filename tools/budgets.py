"""`python -m tools.budgets`: fails where a part of the project is larger than tools/budgets.toml allows.

Code lines of Python are counted without blank lines, comments and docstrings, those of other languages
without blank lines and comments, and prose in words. A budget is raised in a commit of its own that says why.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".toml")
_CODE = {".py", ".hpp", ".h", ".cpp", ".c", ".cu", ".css", ".js", ".html", ".jinja"}
_SILENT = {
    tokenize.COMMENT, tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def main() -> int:
    """Print each part that is larger than its budget, and the sums; return 1 if there is one."""
    table = tomllib.loads(TABLE.read_text("utf-8"))
    over = []
    for place, budgets in table.items():
        measured = dict(_words(place) if place == "docs" else _lines(place))
        for name in sorted({*measured, *budgets}):
            found, most = measured.get(name, 0), budgets.get(name, 0)
            if found > most:
                over.append(f"{place}/{name}: {found:,}, but {TABLE.name} allows {most:,}")
        print(f"{place}: {sum(measured.values()):,} of {sum(budgets.values()):,}")
    print(*over, sep="\n", file=sys.stderr, end="\n" if over else "")
    return int(bool(over))


def _lines(place: str) -> Iterator[tuple[str, int]]:
    """Yield the code lines of each folder in a place, and of the files beside the folders (".")."""
    found: dict[str, int] = {}
    for path in sorted((ROOT / place).rglob("*")):
        inside = path.relative_to(ROOT / place)
        if path.suffix in _CODE and "__pycache__" not in inside.parts:
            room = inside.parts[0] if len(inside.parts) > 1 else "."
            found[room] = found.get(room, 0) + code_lines(path.read_text("utf-8"), path.suffix)
    yield from found.items()


def _words(place: str) -> Iterator[tuple[str, int]]:
    """Yield the words of the pages in a place, and of those beside it."""
    yield ".", sum(len(path.read_text("utf-8").split()) for path in (ROOT / place).glob("*.md"))
    for name in ("README.md", "CONTRIBUTING.md"):
        yield name, len((ROOT / name).read_text("utf-8").split())


def code_lines(text: str, suffix: str = ".py") -> int:
    """Count the code lines of a file's text. Raises SyntaxError for Python that cannot be parsed."""
    if suffix != ".py":
        bare = re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
        return sum(bool(line.strip()) and not line.strip().startswith("//") for line in bare.split("\n"))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SILENT:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            code.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(code)


if __name__ == "__main__":
    raise SystemExit(main())
