"""Asks a library, in a child process, which algorithms it offers for problems."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from tile_oracle.errors import BuildError, DeviceMissingError
from tile_oracle.libraries.libraries import Library, find_library
from tile_oracle.libraries.offers import About, Answer, Offers, ProblemOffers, Question
from tile_oracle.problem import Problem
from tile_oracle.process.children import child_environment

_SILENT_S = 600.0
"""A library's file has hundreds of megabytes, and a first start compiles code."""


def ask_library(
    library: Library, given: str, problems: Sequence[Problem], most: int, device_options: Mapping[str, str]
) -> Offers:
    """Returns the library's offers, at most `most` for a problem.

    given: the path of its file, or "". device_options: those of the target. A problem during which the child
    dies has none, with the reason. Raises BuildError when the library is missing or cannot be used,
    DeviceMissingError when the device cannot be opened.
    """
    path = find_library(library, given)
    left = [problem for problem in problems if problem.op in library.ops]
    found: dict[str, ProblemOffers] = {}
    about: About | None = None
    while left:
        visible, runtime = (device_options.get(name, "") for name in ("visible", "library"))
        rows = [problem.as_row() for problem in left]
        question = Question(library.name, str(path), visible, runtime, most, rows)
        with tempfile.TemporaryDirectory() as folder:
            lines, death = _ask(Path(folder), question)
        if not lines:
            raise BuildError(f"{library.title} ({path}) cannot be loaded: the process that loads it {death}")
        about = msgspec.json.decode(lines[0], type=About)
        if about.failed:
            raise DeviceMissingError(f"{library.title} ({path}) cannot be used: {about.failed}")
        for line in lines[1:]:
            answer = msgspec.json.decode(line, type=Answer)
            found[answer.problem] = answer.offers
        left = [problem for problem in left if problem.id not in found]
        if left:
            found[left.pop(0).id] = ProblemOffers(why_none=f"the process that asked the library {death}")
    if about is None:
        archs = " or ".join(library.archs)
        raise BuildError(
            f"--kernels {library.name} is for {' or '.join(library.ops)} on {archs}, and no problem is"
        )
    return Offers(library.name, str(path), about.version, about.device, about.driver, found)


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
