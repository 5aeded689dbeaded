"""What a command is about: problems, their kinds (--op, --direction, --layout, --dtype, --ndim), kernels."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tile_oracle.arch.table import fp8_refusal
from tile_oracle.compiling.kernel_source import KernelSource
from tile_oracle.errors import BuildError, ModelError, RuleError
from tile_oracle.features.schemas import op_of_model
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.libraries.libraries import is_library_name
from tile_oracle.model.model_folder import ModelSpec, read_spec
from tile_oracle.model.store import no_model_there, read_manifest
from tile_oracle.operation import Operation, operation_named, operation_names
from tile_oracle.pool import list_of_kernels, load_rule_set, pool_of_kind
from tile_oracle.pool.kernel_filter import KernelFilter
from tile_oracle.problem import Kind, Problem, kind_text, problem_from_id
from tile_oracle.problem_set import (
    is_path,
    list_problem_sets,
    load_problem_set,
    load_problem_sets,
    problem_from_dimensions,
)
from tile_oracle.selector.export import SolutionNames, read_names


def problems_of_arguments(words: Sequence[str]) -> list[Problem]:
    """Returns the problems that the words mean, each once. Raises ProblemError and ProblemSetError."""
    found: dict[Problem, None] = {}
    sets = list_problem_sets()
    for word in words:
        if "=" in word:
            found[problem_from_dimensions(word)] = None
        elif word in sets or is_path(word):
            found.update(dict.fromkeys(load_problem_set(word).problems))
        else:
            found[problem_from_id(word)] = None
    return list(found)


_FIELDS = {
    "direction": "of a convolution: forward, bwd_data, bwd_weight",
    "layout": "of a GEMM: rcr, rrr, ccr, crr",
    "dtype": "data type: bf16, fp16, fp32, of GEMM also fp8",
    "ndim": "rank of a convolution: 2, 3",
}
KINDS = "\n".join(
    (
        f"--op OP  operation: {', '.join(operation_names())} (default: {operation_names()[0]})",
        *(f"--{name} WORDS  {text} (several: with commas)" for name, text in _FIELDS.items()),
    )
)
"""The arguments that name kinds of problems, for an `argument_table`."""


def asked_words(args: argparse.Namespace) -> dict[str, list[str]]:
    """Field of a kind -> the words that are given for it."""
    given = {name: getattr(args, name) for name in _FIELDS}
    return {
        name: [word.strip() for word in text.split(",")] for name, text in given.items() if text is not None
    }


def kinds_of(args: argparse.Namespace, *, defaults: bool) -> list[Kind]:
    """Returns the kinds of problems that the arguments name, those of one data type together, then of one
    rank.

    defaults: a field without words has its default value; else all of its values. Raises RuleError.
    """
    operation = operation_named(args.op or operation_names()[0])
    asked = asked_words(args)
    for name in asked:
        if name not in operation.kind_fields:
            raise RuleError(f"--{name} is not for --op {operation.name}: leave it out")
    only, usual = {}, []
    for name, values in operation.kind_fields.items():
        known = {str(value): value for value in values}
        of_field = asked.get(name) or [*known]
        if unknown := [word for word in of_field if word not in known]:
            raise RuleError(f"--{name} {unknown[0]!r} is not one of {', '.join(known)}")
        only[name] = [known[word] for word in dict.fromkeys(of_field)]
        if defaults and name not in asked:
            usual.append((name, known[operation.defaults.get(name, str(values[0]))]))
    kinds = operation.kinds(only)
    for name, value in usual:
        kinds = [kind for kind in kinds if kind.words[name] == value] or kinds
    return sorted(kinds, key=lambda kind: _place(operation, kind))


def _place(operation: Operation, kind: Kind) -> list[int]:
    places = {name: list(operation.kind_fields[name]).index(value) for name, value in kind.fields}
    return [places.pop("dtype"), *reversed(places.values())]


def own_kernels(source: KernelSource, args: argparse.Namespace, where: KernelFilter | None) -> list[Kernel]:
    """Returns the kernels of a source that has its own: all, or those for the asked kinds of problems.

    Raises BuildError when there are none.
    """
    listed, known_kinds = list_of_kernels(args.kernel_set), source.kinds or ()
    problem_set = getattr(args, "problem_set", None)
    if problem_set is not None:
        kinds = kinds_to_build(args)
        source.expect(load_problem_sets(problem_set).problems)
    else:
        asked = asked_words(args).items()
        kinds = [
            kind
            for kind in known_kinds
            if args.op in (None, kind.op) and all(str(kind.words.get(name)) in words for name, words in asked)
        ]
    if listed.triton:
        of_list = {kernel.kind for kernel in listed.triton}
        kinds = [kind for kind in kinds if kind in of_list]
    kernels = [
        kernel
        for kind in kinds
        for kernel in source.pool(kind, args.kernel_set)
        if where is None or where.matches(kernel)
    ]
    if not kernels and listed.triton:
        raise BuildError(
            f"--kernels {args.kernels} has none of the kernels in Triton that {args.kernel_set} lists"
        )
    if not kernels:
        wanted = kinds or (kinds_of(args, defaults=False) if args.op else [])
        refusals = [fp8_refusal(kind, source.arch) for kind in wanted]
        if refusals and all(refusals):
            raise BuildError(str(refusals[0]))
        known = ", ".join(map(kind_text, [one for one in known_kinds if one.op == args.op] or known_kinds))
        raise BuildError(f"there is no such kernel in {args.kernels}: it has kernels for {known}")
    return kernels


def kinds_to_build(args: argparse.Namespace, listed: Sequence[Kind] = ()) -> list[Kind]:
    """Returns the kinds of problem whose kernels to build. listed: what is built if no option says it. Raises
    BuildError and RuleError."""
    named = args.op is not None or bool(asked_words(args))
    if args.problem_set is not None:
        if named:
            raise BuildError(
                "--problem-set says the operation and the kinds of its problems: give it or them, not both"
            )
        problems = load_problem_sets(args.problem_set).problems
        return sorted({problem.kind for problem in problems}, key=kind_text)
    return kinds_of(args, defaults=True) if named or not listed else sorted(listed, key=kind_text)


def kernels_to_export(
    folder: Path, args: argparse.Namespace
) -> tuple[Sequence[Kernel], SolutionNames | None]:
    """Returns the candidates that --kernel-set, --kernels or the model's training names. Raises
    HarnessError."""
    if not folder.is_dir():
        raise ModelError(no_model_there(folder))
    if args.kernel_set is not None:
        return _kernels_of_set(read_spec(folder), args.kernel_set), None
    if args.kernels is not None:
        names = SolutionNames.of_model(folder, read_names(args.kernels))
        return names.candidates, names
    return _trained_kernels(folder), None


def _trained_kernels(folder: Path) -> list[Kernel]:
    """In the order of the model's manifest; without the algorithms of libraries, since only the library says
    which of them a problem has."""
    names = [str(name) for name in read_manifest(folder).get("kernels") or ()]
    if not names:
        raise ModelError(f"{folder} does not record its kernels: name some with --kernels")
    return [parse_kernel_name(name) for name in names if not is_library_name(name)]


def _kernels_of_set(spec: ModelSpec, name: str) -> list[Kernel]:
    """Returns the rule set's kernels for every kind of problem that the model is for."""
    only: dict[str, tuple[str | int, ...]] = {
        "dtype": (spec.dtype,),
        "direction": (spec.direction,) if spec.direction else (),
        "ndim": spec.ndims,
    }
    kinds = operation_named(op_of_model(spec.op_type)).kinds(only)
    rules = load_rule_set(name)
    covered = [kind for kind in kinds if rules.covers(kind, spec.arch)]
    if not covered:
        raise RuleError(f"kernel set {name} has no kernels for {kind_text(kinds[0])} on {spec.arch}")
    return [kernel for kind in covered for kernel in pool_of_kind(kind, spec.arch, name)]
