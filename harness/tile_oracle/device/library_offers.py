"""Asks a library which algorithms it offers: the child process of tile_oracle.libraries.ask.

Usage: python -m tile_oracle.device.library_offers QUESTION ANSWERS. ANSWERS gets one line of JSON about the
library, then one for each problem as soon as it is known. If this process dies, the parent starts another one
for the problems that are left.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from tile_oracle.device.library.kernel import OpenedLibrary
from tile_oracle.device.runtime.cuda import open_cuda
from tile_oracle.device.runtime.driver import RuntimeFailure, RuntimeMissing
from tile_oracle.device.runtime.hip import open_hip
from tile_oracle.libraries.offers import About, Answer, ProblemOffers, Question
from tile_oracle.problem import problem_from_row

_VISIBLE = {"hipblaslt": "HIP_VISIBLE_DEVICES", "miopen": "HIP_VISIBLE_DEVICES"}
"""The libraries over HIP, and the variable that chooses their devices."""


def main(arguments: list[str]) -> int:
    """Answers one question."""
    question = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Question)
    if question.visible:
        os.environ[_VISIBLE.get(question.library, "CUDA_VISIBLE_DEVICES")] = question.visible
    with Path(arguments[1]).open("ab", buffering=0) as answers:
        try:
            about, library = _opened(question)
        except (RuntimeMissing, RuntimeFailure, OSError, ValueError) as error:
            answers.write(msgspec.json.encode(About(failed=f"{type(error).__name__}: {error}")) + b"\n")
            return 1
        answers.write(msgspec.json.encode(about) + b"\n")
        for row in question.problems:
            problem = problem_from_row(row)
            try:
                offers = library.offers(problem, question.most)
            except RuntimeFailure as failure:
                offers = ProblemOffers(why_none=str(failure))
            answers.write(msgspec.json.encode(Answer(problem.id, offers)) + b"\n")
    return 0


def _opened(question: Question) -> tuple[About, OpenedLibrary]:
    on_hip = question.library in _VISIBLE
    driver = open_hip(library=question.runtime or None) if on_hip else open_cuda()
    properties = driver.properties()
    library = OpenedLibrary(question.library, question.path)
    return About(version=library.version, device=properties.name, driver=properties.driver), library


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
