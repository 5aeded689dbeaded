"""The kernels that `build` and `pool list` take: of a kernel source, or for the asked kinds of problems."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tile_oracle.commands.kinds import asked_words, kinds_of
from tile_oracle.compiling.kernel_source import KernelSource
from tile_oracle.errors import BuildError
from tile_oracle.kernel import Kernel
from tile_oracle.pool import list_of_kernels
from tile_oracle.pool.kernel_filter import KernelFilter
from tile_oracle.problem import Kind, kind_text
from tile_oracle.problem_set import load_problem_sets


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
        known = ", ".join(map(kind_text, known_kinds))
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
