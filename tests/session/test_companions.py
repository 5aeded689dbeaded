"""Plugins that a session cannot run with: one line says so, and what to do."""

from __future__ import annotations

import pytest

from tests.pytest_project import TWO_KERNELS, Project
from tests.samples import sampled

FLAG = "def pytest_addoption(parser):\n    parser.addoption('--{name}', action='store_true')\n"
SOCKET = """
def pytest_addoption(parser):
    parser.addoption("--disable-socket", action="store_true")
    parser.addoption("--allow-unix-socket", action="store_true")
"""
THREADS = "def pytest_addoption(parser):\n    parser.addoption('--parallel-threads', default=1, type=int)\n"
REPORTER = """
import pytest

class ShortReporter:
    def write_line(self, line):
        print(line)

@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(ShortReporter(), "terminalreporter")
"""
ASKED = ("--problem-set", "small.csv", *TWO_KERNELS)


@pytest.mark.parametrize(
    ("plugin", "options", "said"),
    sampled(
        [
            (FLAG.format(name="forked"), ("--forked",), "--forked (pytest-forked)"),
            (SOCKET, ("--disable-socket",), "--disable-socket (pytest-socket)"),
            (THREADS, ("--parallel-threads=2",), "--parallel-threads (pytest-run-parallel)"),
            (REPORTER, (), "other, which replaces pytest's terminal reporter. Leave it out: -p no:other"),
        ],
        every=4,
    ),
    ids=["pytest-forked", "pytest-socket", "pytest-run-parallel", "pytest-tldr"],
)
def test_an_unsupported_plugin_is_named_in_one_line(
    project: Project, plugin: str, options: tuple[str, ...], said: str
) -> None:
    project.write("other.py", plugin)
    project.write("test_own.py", "def test_own():\n    pass\n")
    done = project.pytest(*ASKED, "-p", "other", *options)
    assert done.status == pytest.ExitCode.USAGE_ERROR, done.output
    (line,) = filter(None, done.lines)
    assert line.startswith(f"ERROR: tile-oracle does not work with {said}")
    assert project.runs == []
    assert project.pytest("-p", "other", *options, "test_own.py").status == 0, "other runs do"


@pytest.mark.slow
def test_what_they_allow_is_not_refused(project: Project) -> None:
    project.write("other.py", SOCKET + THREADS.partition("\n")[2])
    allowed = ("--disable-socket", "--allow-unix-socket", "--parallel-threads=1")
    assert project.pytest(*ASKED, "-p", "other", *allowed).status == 0
