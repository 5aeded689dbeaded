"""Describes the kernels of a user's file.

`main` is the program of a child process. Its surroundings are a JSON file: the user's environment variables,
and the folders of PYTHONPATH. Its answer is a JSON object: the description, or {"error": one line}.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tile_oracle.compiling.triton.specify import Specifier, prunes
from tile_oracle.compiling.triton.user_file import FileFailure, import_declarations, write_answer
from tile_oracle.compiling.triton.user_reads import UserReads

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton asks for a choice


def describe(path: Path, arch: str, surroundings: Mapping[str, Any]) -> dict[str, object]:
    """Returns the kernels of a file for an architecture. Raises HarnessError."""
    sys.path[:0] = surroundings["path"]
    reads = UserReads(path, surroundings["environment"])
    declarations = import_declarations(path)
    reads.end_import()
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
            kernels[kernel.name] = unit | ({"code": specifier.code} if reads.imports_packages else {})
        left_out.update(specifier.left_out)
    if reads.variables:
        kernels = {name: unit | {"environment": reads.variables} for name, unit in kernels.items()}
    return {
        "files": reads.files(),
        "environment": reads.variables,
        "kernels": kernels,
        "left_out": [[function, why, count] for (function, why), count in left_out.items()],
        "pruned": pruned,
    }


def main(file: str, arch: str, surroundings: str, answer: str) -> int:
    """Writes the answer. Returns 1 when it is an error."""
    told = json.loads(Path(surroundings).read_bytes())
    return write_answer(Path(answer), lambda: describe(Path(file), arch, told))
