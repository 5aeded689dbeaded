"""Declares which operation a Triton function computes, and how it is launched."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

from tile_oracle.triton.expression import Expression, ExpressionError, Number
from tile_oracle.triton.views import ProblemView

Function = TypeVar("Function")
Arguments = Callable[[Any], Mapping[str, object]]
"""Problem view -> the value of each argument of the function that no configuration sets."""
Meta = Mapping[str, Any]
"""All arguments of the function: configured values as they are, the others as expressions or pointers."""
Grid = Callable[[Meta], Sequence[Number]] | Sequence[Number]
Constraint = Expression | bool | tuple[Expression | bool, str]
"""A condition under which the kernel computes a problem, with or without the reason in words."""


class DeclarationError(ExpressionError):
    """A declaration that cannot be used. The message says where it stands."""


@dataclass(frozen=True)
class Launch:
    """A further launch, after the declared function's, such as the sum of split-K's parts.

    function: a @triton.jit function. Its constexpr arguments take the values of the configuration. grid,
    arguments: as in the decorators (`declare`).
    """

    function: Any
    _: KW_ONLY
    grid: Grid
    arguments: Arguments | None = None


@dataclass(frozen=True)
class Declaration:
    """What a decorator said about a function. place: FILE:LINE of the declaration."""

    view: type[ProblemView]
    kinds: Mapping[str, tuple[str | int, ...]]
    main: Launch
    after: tuple[Launch, ...]
    configs: Any
    constraints: Callable[[Any, Meta], Iterable[Constraint]] | None
    workspace_bytes: Callable[[Any, Meta], Number] | None
    aligned: tuple[str, ...] | None
    general: Callable[[Any, Meta], bool] | bool
    archs: tuple[str, ...] | None
    place: str


_DECLARED: list[Declaration] = []


def declared() -> list[Declaration]:
    """Returns the declarations of this process, in their order, and forgets them."""
    found = list(_DECLARED)
    _DECLARED.clear()
    return found


launch = Launch
"""What a declaration calls it by."""


def declare(
    view: type[ProblemView],
    *,
    grid: Grid,
    arguments: Arguments | None = None,
    configs: Any = None,
    constraints: Callable[[Any, Meta], Iterable[Constraint]] | None = None,
    workspace_bytes: Callable[[Any, Meta], Number] | None = None,
    after: Sequence[Launch] = (),
    aligned: Sequence[str] | None = None,
    general: Callable[[Any, Meta], bool] | bool = True,
    archs: Sequence[str] | None = None,
    **kinds: Sequence[str | int],
) -> Callable[[Function], Function]:
    """Declare that a Triton function computes an operation: `tile_oracle.triton.gemm` is this for its view.

    The function itself is unchanged.

    grid: the numbers of programs, or a function of all arguments, as Triton's own grids are.
    arguments: takes a view of a problem, such as GemmView, and returns the value of each argument that no
    configuration sets. Left out: the argument names of Triton's tutorials (a_ptr, M, stride_am, ...), or
    the problem's own.
    configs: triton.Config objects or dicts, or a function that takes the view and returns them. Left out:
    those of @triton.autotune.
    constraints: takes the view and all arguments, and yields the conditions under which the function is
    right.
    workspace_bytes: size of the memory behind `view.workspace()`.
    after: launches that follow (`launch`).
    aligned: names of numbers. The function is compiled twice: for problems in which all of them are
    multiples of 16, and for all others. Left out: the extents of the contiguous axes.
    general: whether it is compiled for those others, or a function of the view and all arguments that
    says so.
    archs: the architectures it is for. Left out: all.
    kinds: the kinds of problems, as in problem sets: dtypes, and layouts of gemm; directions and ndims of
    grouped_conv.
    """
    caller = sys._getframe(1)
    place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    plurals = {f"{name}s": name for name in view.kinds}
    for name in kinds:
        if name not in plurals:
            raise DeclarationError(f"{view.op} has no {name}: it has {', '.join(plurals)}")
    chosen = {name: tuple(kinds.get(plural, view.kinds[name])) for plural, name in plurals.items()}

    def decorate(function: Function) -> Function:
        main = Launch(function, grid=grid, arguments=arguments)
        _DECLARED.append(
            Declaration(
                *(view, chosen, main, tuple(after), configs, constraints, workspace_bytes),
                *(None if aligned is None else tuple(aligned), general),
                *(None if archs is None else tuple(archs), place),
            )
        )
        return function

    return decorate
