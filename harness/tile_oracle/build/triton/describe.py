"""Describes the kernels of a user's file: python describe.py FILE ARCH ANSWER.

The main program of a child process. ANSWER is a file that gets a JSON object: the description, or
{"error": one line}.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton asks for a choice


def describe(path: Path, arch: str) -> dict[str, object]:
    """The kernels of a file for an architecture. Raises FileFailure."""
    from tile_oracle.build.triton.specify import Specifier, prunes
    from tile_oracle.build.triton.user_file import FileFailure, files_below, import_declarations

    declarations = import_declarations(path)
    kernels: dict[str, dict[str, object]] = {}
    left_out: Counter[tuple[str, str]] = Counter()
    pruned = []
    for number, declaration in enumerate(declarations):
        specifier = Specifier(declaration, number, path, arch)
        if prunes(declaration):
            pruned.append(specifier.function)
        for kernel, unit in specifier.kernels():
            if kernel.name in kernels:
                raise FileFailure(
                    f"{declaration.place.rpartition('/')[2]}: {kernel.name} is declared twice: functions of "
                    "one kind need different names"
                )
            kernels[kernel.name] = unit
        left_out.update((one.function, one.why) for one in specifier.left_out)
    return {
        "files": [file.relative_to(path.parent.resolve()).as_posix() for file in files_below(path.parent)],
        "kernels": kernels,
        "left_out": [[function, why, count] for (function, why), count in left_out.items()],
        "pruned": pruned,
    }


def main(file: str, arch: str, answer: str) -> int:
    """Writes the answer. Returns 1 when it is an error."""
    from tile_oracle.build.triton.user_file import write_answer

    return write_answer(Path(answer), lambda: describe(Path(file), arch))


if __name__ == "__main__":
    sys.path[:] = [place for place in sys.path if place != str(Path(__file__).parent)]
    sys.exit(main(*sys.argv[1:4]))
