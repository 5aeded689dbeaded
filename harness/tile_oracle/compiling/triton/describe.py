"""Describes the kernels of a user's file, and asks the pruning functions of @triton.autotune.

`main` is the program of a child process. Its question is a JSON file: the architecture, environment
variables, and the folders of PYTHONPATH or the ids of problems. Its answer is a JSON object: the description;
{declaration's number: {problem's id: [places of the configurations that are kept]}}; or {"error": one line}.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tile_oracle.arch import load_arch
from tile_oracle.compiling.triton.specify import Specifier, autotuner, prunes
from tile_oracle.compiling.triton.user_file import FileFailure, import_declarations, one_line, write_answer
from tile_oracle.compiling.triton.user_reads import UserReads
from tile_oracle.problem import problem_from_id
from tile_oracle.triton.expression import Expression, evaluate
from tile_oracle.triton.views import LANGUAGE, OPERANDS, OUT, POINTED, Pointer, values_of

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton asks for a choice


def describe(path: Path, arch: str, surroundings: Mapping[str, Any]) -> dict[str, object]:
    """Returns the kernels of a file for an architecture. Raises HarnessError."""
    sys.path[:0] = surroundings["path"]
    reads = UserReads(path, surroundings["environment"])
    declarations = import_declarations(path)
    reads.end_import()
    with_code = reads.imports_packages
    kernels: dict[str, dict[str, object]] = {}
    left_out: Counter[tuple[str, str, str]] = Counter()
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
            kernels[kernel.name] = unit | ({"code": specifier.code} if with_code else {})
        left_out.update(specifier.left_out)
    if reads.variables:
        kernels = {name: unit | {"environment": reads.variables} for name, unit in kernels.items()}
    return {
        "files": reads.files(),
        "environment": reads.variables,
        "kernels": kernels,
        "left_out": [[*one, count] for one, count in left_out.items()],
        "pruned": pruned,
    }


def kept(path: Path, arch: str, problem_ids: Sequence[str]) -> dict[str, object]:
    """Returns the places of the configurations that are kept. Raises FileFailure."""
    problems = [problem_from_id(one) for one in problem_ids]
    found: dict[str, object] = {}
    for number, declaration in enumerate(import_declarations(path)):
        if not prunes(declaration):
            continue
        tuner = autotuner(declaration.main.function)
        place, _, line = declaration.place.rpartition(":")
        of_problem = found[str(number)] = {}
        for problem in problems:
            words = problem.kind.words
            if problem.op != declaration.view.op or any(
                words[k] not in v for k, v in declaration.kinds.items()
            ):
                continue
            try:
                view = declaration.view(problem.kind, arch)
                tuner.nargs = _values(declaration.main, view, problem, tuner)
                chosen = {id(config) for config in tuner.prune_configs({})}
            except Exception as error:  # the functions are the user's
                raise FileFailure(one_line(error, path.parent, Path(place).name, int(line))) from None
            of_problem[problem.id] = [n for n, config in enumerate(tuner.configs) if id(config) in chosen]
    return found


def _values(launch: Any, view: Any, problem: Any, tuner: Any) -> dict[str, Any]:
    """Returns the values of the arguments that no configuration sets, as a launch would pass them."""
    numbers = values_of(problem, load_arch(view.arch).hardware.num_cus)
    given: Mapping[str, Any] = (
        launch.arguments(view) if launch.arguments is not None else view.usual_arguments()
    )
    language = importlib.import_module("triton.language")
    *operands, out = problem.operand_shapes
    shapes = {**dict(zip(OPERANDS, operands, strict=False)), OUT: out}

    def value(one: Any) -> Any:
        if isinstance(one, Expression):
            return evaluate(one.tree, numbers)
        if isinstance(one, Pointer):
            return tensor_like(getattr(language, LANGUAGE[POINTED[one.dtype]]), shapes.get(one.role, (1,)))
        return one

    return {name: value(one) for name, one in given.items() if name in tuner.arg_names}


def tensor_like(dtype: Any, shape: tuple[int, ...]) -> SimpleNamespace:
    """Returns what a pruning function may ask of an array."""
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    elements, size = strides[0] * shape[0], max(1, dtype.primitive_bitwidth // 8)
    return SimpleNamespace(
        dtype=dtype,
        shape=shape,
        ndim=len(shape),
        itemsize=size,
        element_size=lambda: size,
        numel=lambda: elements,
        stride=lambda axis=None: tuple(strides) if axis is None else strides[axis],
        size=lambda axis=None: shape if axis is None else shape[axis],
    )


def main(file: str, question: str, answer: str) -> int:
    """Writes the answer. Returns 1 when it is an error."""
    gc.disable()  # a third of the time: it would go through a growing answer again and again
    told = json.loads(Path(question).read_bytes())
    if "problems" not in told:
        return write_answer(Path(answer), lambda: describe(Path(file), told["arch"], told))
    os.environ.update(told["environment"])
    return write_answer(Path(answer), lambda: kept(Path(file), told["arch"], told["problems"]))
