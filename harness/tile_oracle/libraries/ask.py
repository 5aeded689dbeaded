"""Asks a library, in child processes, which algorithms it offers for problems."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from tile_oracle.errors import BuildError, DeviceMissingError
from tile_oracle.libraries.libraries import Library, find_library
from tile_oracle.libraries.offers import About, Answer, Offers, ProblemOffers, Question
from tile_oracle.problem import Problem
from tile_oracle.process.children import child_environment
from tile_oracle.process.cores import usable_cores

_SILENT_S = 600.0
"""A library's file has hundreds of megabytes, and a first start compiles code."""
_MOST_CHILDREN = 16
"""Each opens the device and loads the library, which takes memory of both."""
_FEWEST_PROBLEMS = 8
"""Of a child: a start takes as long as the answers for about so many (1 s; cuBLASLt takes 0.1 s for each)."""


def ask_library(
    library: Library, given: str, problems: Sequence[Problem], most: int, device_options: Mapping[str, str]
) -> Offers:
    """Returns the library's offers, at most `most` for a problem.

    given: the path of its file, or "". device_options: those of the target. A problem during which the child
    dies has none, with the reason. Raises BuildError when the library is missing or cannot be used,
    DeviceMissingError when the device cannot be opened.
    """
    path = find_library(library, given)
    asked = [problem for problem in problems if problem.op in library.ops]
    if not asked:
        archs = " or ".join(library.archs)
        raise BuildError(
            f"--kernels {library.name} is for {' or '.join(library.ops)} on {archs}, and no problem is"
        )
    children = max(1, min(_MOST_CHILDREN, usable_cores(), len(asked) // _FEWEST_PROBLEMS))
    visible, runtime = (device_options.get(name, "") for name in ("visible", "library"))
    question = Question(library.name, str(path), visible, runtime, most, [])
    with ThreadPoolExecutor(children) as threads:
        parts = [asked[first::children] for first in range(children)]
        answers = list(threads.map(lambda part: _answers(library, question, part), parts))
    about = answers[0][0]
    found = {name: offers for _, of_part in answers for name, offers in of_part.items()}
    in_order = {problem.id: found[problem.id] for problem in asked}
    return Offers(library.name, str(path), about.version, about.device, about.driver, in_order)


def _answers(
    library: Library, question: Question, problems: Sequence[Problem]
) -> tuple[About, dict[str, ProblemOffers]]:
    """Returns what children say, one after the other until each problem has an answer. Raises BuildError and
    DeviceMissingError."""
    left, found = list(problems), dict[str, ProblemOffers]()
    about = About()
    while left:
        rows = [problem.as_row() for problem in left]
        with tempfile.TemporaryDirectory() as folder:
            lines, death = _ask(Path(folder), replace(question, problems=rows))
        if not lines:
            raise BuildError(
                f"{library.title} ({question.path}) cannot be loaded: the process that loads it {death}"
            )
        about = msgspec.json.decode(lines[0], type=About)
        if about.failed:
            raise DeviceMissingError(f"{library.title} ({question.path}) cannot be used: {about.failed}")
        for line in lines[1:]:
            answer = msgspec.json.decode(line, type=Answer)
            found[answer.problem] = answer.offers
        left = [problem for problem in left if problem.id not in found]
        if left:
            found[left.pop(0).id] = ProblemOffers(why_none=f"the process that asked the library {death}")
    return about, found


def _ask(folder: Path, question: Question) -> tuple[list[bytes], str]:
    """Returns the child's complete lines, and how it ended."""
    asked, answers, output = (folder / name for name in ("question.json", "answers", "output"))
    asked.write_bytes(msgspec.json.encode(question))
    answers.touch()
    command = [sys.executable, "-P", "-m", "tile_oracle.device.library_offers", str(asked), str(answers)]
    with output.open("wb") as said:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=child_environment(),
            start_new_session=True,
        )
        try:
            silent = _wait(child, answers)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    tail = " ".join(output.read_text(errors="replace").split())[-400:]
    how = f"did not answer for {_SILENT_S:g} s" if silent else f"ended with status {child.returncode}"
    whole = answers.read_bytes()
    return whole[: whole.rfind(b"\n") + 1].splitlines(), f"{how}; it printed: {tail}" if tail else how


def _wait(child: subprocess.Popen[bytes], answers: Path) -> bool:
    """Waits for the child's end; whether it was silent for too long instead."""
    size = -1
    while (now := answers.stat().st_size) != size:
        size = now
        with suppress(subprocess.TimeoutExpired):
            child.wait(_SILENT_S)
            return False
    return True
