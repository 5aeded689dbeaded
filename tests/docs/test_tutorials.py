"""The tutorials as a reader does them: files are written, commands are run in order, and print what is shown.

Blocks of a page, in order:

tutorial, tutorial_status_N...  commands; the last one ends with one of these exit statuses, the others with 0
text                            what the commands before it print, with `...` for lines left out
report RUN                      the same of the words in a report
measured                        what one run printed; measurements differ, so nothing is compared
cpp, python, toml, csv          a file, whose name is the last one in backquotes in the text before it
edit                            a line of the last file that the text names, and what takes its place
"""

from __future__ import annotations

import html
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.pytest_project import SHORTLY
from tests.warm_python import run_warm
from tile_oracle.compiling.triton.child_process import triton_folder

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("tutorial_*.md"))
_FENCE = re.compile(r"^```([\w ]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"`([\w./]+\.(?:py|hpp|toml|csv))`")
_FILES = ("cpp", "python", "toml", "csv")


@dataclass
class Block:
    """A fenced block, and the last file that the text before it names."""

    kind: str
    body: str
    file: str


def blocks(page: Path) -> Iterator[Block]:
    text, file = page.read_text(encoding="utf-8"), ""
    end = 0
    for found in _FENCE.finditer(text):
        named = _NAMED.findall(text[end : found.start()])
        file, end = named[-1] if named else file, found.end()
        yield Block(found[1], found[2], file)


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(line)
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    site = folder / "site"
    if words[0] == "pip":
        offline = ("--quiet", "--no-deps", "--no-build-isolation", "--upgrade", f"--target={site}")
        command = [sys.executable, "-m", "pip", *words[1:], *offline]
        return subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False)
    if "--target cpu" in line:
        words += SHORTLY
    if "--kernels mine" in line:
        # A process that was executed: the package is on its path from the start.
        own["PYTHONPATH"] = os.pathsep.join([str(site), *sys.path])
        command = [sys.executable, "-m", "pytest", *words[1:]]
        return subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False)
    module = {"pytest": "pytest", "tile-oracle": "tile_oracle.cli"}[words[0]]
    return run_warm(module, words[1:], cwd=folder, env=own, timeout_s=300, together=True)


def words_of(report: Path) -> str:
    text = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", report.read_text(encoding="utf-8"), flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"</?a\b[^>]*>", "", text)))


def shown_in(shown: str, printed: str) -> str:
    """The part of a block that was not printed, in order; "" if all was."""
    whole = " ".join(printed.split())
    at = 0
    for part in re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE):
        wanted = " ".join(part.split())
        found = whole.find(wanted, at)
        if found < 0:
            return wanted
        at = found + len(wanted)
    return ""


def test_there_is_a_tutorial_for_each_kind_of_reader() -> None:
    assert [page.stem for page in PAGES] == ["tutorial_kernels", "tutorial_models", "tutorial_nights"]
    for page in PAGES:
        kinds = {block.kind.split("_")[0].split(" ")[0] for block in blocks(page)}
        assert "tutorial" in kinds
        assert kinds <= {"tutorial", "text", "report", "measured", "edit", "yaml", *_FILES}, page.name


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_commands_do_what_it_says(page: Path, tmp_path: Path) -> None:
    if page.stem == "tutorial_kernels" and triton_folder() is None:
        pytest.skip("Triton is not installed")
    printed = ""
    for block in blocks(page):
        kind, _, statuses = block.kind.partition("_status_")
        if kind in _FILES:
            path = tmp_path / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.body)
        elif kind == "edit":
            before, after = block.body.splitlines()
            text = (tmp_path / block.file).read_text()
            assert text.count(before) == 1
            (tmp_path / block.file).write_text(text.replace(before, after))
        elif kind == "tutorial":
            printed = ""
            *first, last = block.body.replace("\\\n", " ").splitlines()
            at_last = {int(status) for status in statuses.split("_") if status} or {0}
            for line, allowed in [*((line, {0}) for line in first), (last, at_last)]:
                done = run(line, tmp_path)
                printed += f"{done.stdout}\n{done.stderr or ''}\n"
                assert done.returncode in allowed, f"{page.name}: {line}\n{printed[-4000:]}"
        elif kind == "text":
            missing = shown_in(block.body, printed)
            assert not missing, f"{page.name}: not printed: {missing}\n{printed[-4000:]}"
        elif kind.startswith("report "):
            report = tmp_path / "reports" / kind.split()[1] / "report.html"
            missing = shown_in(block.body, words_of(report))
            assert not missing, f"{page.name}: not in the report: {missing}"
