"""Every command that the documentation shows is run, in order, as a reader would run it.

Only pytest sessions are shortened, by appended options: they measure a problem or two with short samples, and
stop cleanly as at the end of a budget.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.measured_tables import gfx950_folder
from tests.pytest_project import CLOCK_THAT_JUMPS
from tests.warm_python import run_warm
from tile_oracle.commands.table import named_command
from tile_oracle.terminal.argument_table import add_arguments
from tile_oracle.terminal.documentation import TITLES

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "usage.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ELSEWHERE = {"pool.md"}
"""Pages whose commands other tests run (tests/pool/test_pool_page.py)."""

NOT_JUDGED = "--allow=no-baseline,cannot-tell,incomplete,nothing-judged"
"""The exit statuses of a shortened session; tests/session checks those of complete ones."""


def shortly(line: str) -> list[str]:
    """The options that shorten a command of a page; [] for other commands than pytest."""
    if not line.startswith("pytest"):
        return []
    measures = not re.search("--oracle|--target replay", line)
    short = [NOT_JUDGED, "--budget=1h", "-p", "clock_that_jumps", "-p", "no:cacheprovider"]
    return [*short, *(["--kernel-budget=1ms"] if measures else [])]


_FENCE = re.compile(r"^```([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [body for found, body in _FENCE.findall(page.read_text()) if found == language]


def commands(page: Path, language: str = "sh") -> list[str]:
    lines = [line for body in blocks(page, language) for line in body.replace("\\\n", " ").splitlines()]
    return [line for line in lines if shlex.split(line, comments=True)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a reader's: the files that some pages show, and a clock."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "clock_that_jumps.py").write_text(CLOCK_THAT_JUMPS)
    (folder / "my_shapes.csv").write_text(blocks(GUIDE, "csv")[0])
    (folder / "nhwgc_bf16.conf").write_text(blocks(ROOT / "docs" / "ck_tile.md", "conf")[0])
    lists = ROOT / "docs" / "problem_lists.md"
    (folder / "layers.txt").write_text(blocks(lists, "text")[0])
    (folder / "bench.csv").write_text(blocks(lists, "csv")[0])
    (folder / "test_mine.py").write_text(blocks(GUIDE, "python")[0])
    return folder


def run(command: str, folder: Path, installed: bool = True) -> subprocess.CompletedProcess[str]:
    """A command of a page. installed: run the installed program, not a fork with the imports already done."""
    words = shlex.split(command, comments=True)
    found = (folder / "reports").glob("*/measurements")
    measured = (path for path in found if "-replay-" not in path.parent.name)
    runs = sorted(measured, key=lambda path: path.stat().st_mtime)
    if runs:
        words = [word.replace("reports/RUN", str(runs[-1].parent.relative_to(folder))) for word in words]
    words += shortly(command)
    modules = {"pytest": "pytest", "tile-oracle": "tile_oracle.cli"}
    if not installed and words[0] in modules:
        own = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        return run_warm(modules[words[0]], words[1:], cwd=folder, env=own, timeout_s=300)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        # `python -m tools.NAME` is for checkouts.
        "PYTHONPATH": os.pathsep.join([str(folder), *([str(ROOT)] if words[0] == "python" else [])]),
    }
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"):
        environment.pop(name, None)
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name not in ELSEWHERE and commands(page)],
    ids=lambda page: page.name,
)
def test_every_command_of_the_page_works(page: Path, reader: Path) -> None:
    for command in commands(page):
        if page.name == "README.md" and "--target replay" in command:
            continue  # run in full by test_documented_replays.py
        done = run(command, reader, installed=page.name == "README.md")
        assert done.returncode == 0, f"{page.name}: {command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.slow
@pytest.mark.skipif(gfx950_folder() is None, reason="needs the public measurements")
def test_what_is_said_of_public_measurements(tmp_path: Path) -> None:
    """Blocks gfx950 of docs/heuristic.md. gfx950_status_1: the exit status of its first command is 1."""
    shutil.copytree(gfx950_folder() or "", tmp_path, dirs_exist_ok=True)
    for language, body in _FENCE.findall((ROOT / "docs" / "heuristic.md").read_text()):
        if not language.startswith("gfx950"):
            continue
        first, *others = [run(line, tmp_path, installed=False).returncode for line in body.splitlines()]
        assert first == int(language.endswith("status_1")), body
        assert set(others) <= {0, 1}, body
    figures = json.loads((tmp_path / "figures.json").read_text())["headlines_percent"]
    assert figures["mean"]["value"] >= 98.3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_the_page_have_the_options_that_it_names(page: Path) -> None:
    """In text and indented blocks, too, which no test runs."""
    for line in re.findall(r"tile-oracle ([a-z][^`\n]*)", page.read_text().replace("\\\n", " ")):
        if command := named_command(line.split()):
            parser = argparse.ArgumentParser()
            add_arguments(parser, command.load().ARGUMENTS)
            own, _, _ = line.partition(" -- ")
            named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", own))
            assert named <= set(parser._option_string_actions), line


def test_no_sentence_stands_on_two_pages() -> None:
    pages: dict[str, set[str]] = {}
    for page in PAGES:
        prose = re.sub(r"^```.*?^```|^ {4}.*?$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for sentence in re.split(r"(?<=[.:])\s+|\n\n|\|", prose):
            pages.setdefault(" ".join(sentence.split()), set()).add(page.name)
    assert not {one: names for one, names in pages.items() if len(names) > 1 and len(one.split()) > 5}


@pytest.mark.slow
def test_the_reader_s_own_test_passes_for_every_pair(reader: Path) -> None:
    words = [
        "test_mine.py",
        "--problem-set",
        "forward_smoke",
        "--kernel-set=tiny",
        NOT_JUDGED,
        "--kernel-budget=1ms",
    ]
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = run_warm("pytest", words, cwd=reader, env=own, timeout_s=300)
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"^=+ 80 passed", done.stdout, re.MULTILINE), done.stdout[-300:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_site_has_the_page(page: Path) -> None:
    """`make docs` fails for a page that no table of contents lists; this says so sooner."""
    contents = (ROOT / "docs" / "index.md").read_text().splitlines()
    listed = page.stem if page.parent.name == "docs" else f"../{page.stem}"
    assert page.stem == "index" or listed in contents


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_messages_name_pages_by_their_titles() -> None:
    for name, title in TITLES.items():
        assert (ROOT / "docs" / f"{name}.md").read_text().startswith(f"# {title}\n")
