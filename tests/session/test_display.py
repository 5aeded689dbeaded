"""What a user sees while a sweep runs."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

from tests.pytest_project import KERNELS, PROBLEMS, QUICK, TWO_KERNELS, Project


def on_a_terminal(project: Project, columns: int, *arguments: str) -> str:
    """The output of pytest on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**project.environment, "TERM": "xterm"}
    del environment["COLUMNS"]
    process = subprocess.Popen(
        project.command(*arguments),
        cwd=project.folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    written = b""
    try:
        while data := os.read(ours, 65536):
            written += data
    except OSError:  # the terminal's other end is closed: the process has ended
        pass
    os.close(ours)
    assert process.wait() == 0
    return written.decode()


def screen(written: str) -> list[str]:
    """The final screen: the last text written to each line, without colours."""
    plain = re.sub(r"\x1b\[[0-9;]*[mK]", "", written)
    lines = []
    for line in plain.replace("\r\n", "\n").split("\n"):
        cells: list[str] = []
        for part in line.split("\r"):
            cells[: len(part)] = part
        lines.append("".join(cells).rstrip())
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_a_live_line(project: Project, columns: int) -> None:
    written = on_a_terminal(project, columns, "--problem-set", "small.csv", *TWO_KERNELS)
    live = re.findall(r"\r(\[\d/2\] [^\r\n]*)", written)
    assert live
    assert re.fullmatch(
        r"\[0/2\] forward-fp32-\S+  0 of 4 pairs  (building kernels|built .* left) *", live[0]
    )
    assert max(map(len, live)) < columns
    lines = screen(written)
    assert re.search(rf"\r {{{columns - 1}}}\r\[1/2\]", written), "it is wiped away before a line that stays"
    assert not any(" of 4 pairs" in line for line in lines)
    for number, problem in enumerate(PROBLEMS[:2], 1):
        (line,) = (line for line in lines if line.startswith(f"[{number}/2] {problem}  2 ok  best "))
        assert len(line) <= columns
    # Only lines with a path wrap, because paths are never broken.
    start = lines.index(next(line for line in lines if line.startswith("small on cpu")))
    assert all(len(line) <= columns or "/" in line.split()[-1] for line in lines[start:])


def test_v_shows_every_pair_and_a_line_per_problem(project: Project) -> None:
    finished = project.pytest("--problem-set", "small.csv", *TWO_KERNELS, "-v")
    assert list(finished.outcomes().values()) == ["PASSED"] * 4
    assert sum(line.startswith(("[1/2] forward", "[2/2] forward")) for line in finished.lines) == 2


def test_with_other_tests_pytest_prints_its_letters(project: Project) -> None:
    project.write("test_plain.py", "def test_plain():\n    pass\n")
    asked = ("--problem-set", "small.csv", *TWO_KERNELS, "-k", "plain or f1x1")
    finished = project.pytest("test_plain.py", "tile_oracle", *asked)
    assert finished.counts() == {"passed": 3, "deselected": 2}
    assert any(re.match(r"test_plain\.py \.", line) for line in finished.lines)
    assert any(line.startswith(f"[1/1] {PROBLEMS[1]}  2 ok") for line in finished.lines)


def test_a_kernel_that_does_not_build_is_explained_once(project: Project) -> None:
    """It fails on each problem; the compiler's message is printed for the first."""
    compiler = project.compiler("clang", {"TO_DIRECT": "build_error"})
    kernels = ("--kernel-filter", "tile_m == 16 and pipeline == 'basic_v1'", "--toolchain", compiler)
    finished = project.pytest("--problem-set", "small.csv", *QUICK, *kernels)
    assert finished.counts()["failed"] == 2
    failures = finished.output.partition("= FAILURES =")[2].partition("= tile-oracle: ")[0]
    assert failures.count("error generated.") == 1, failures
    (later,) = re.findall(r"build_error: .*'planted' \(in full: (.*)\)", failures)
    assert later == f"tile_oracle::test_kernel[{PROBLEMS[0]}-{KERNELS[0]}]"
