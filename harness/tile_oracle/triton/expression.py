"""Integer expressions over a problem's numbers: built by Python's operators, kept as trees, never as code.

A declaration is evaluated once, with expressions in place of numbers. The trees travel as JSON to the worker,
which evaluates them for each problem without the user's file.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tile_oracle.errors import HarnessError

Tree = int | str | list[Any]
"""A number, the name of a problem's number, or [operator, operand, ...]."""

MAX_NODES = 2000
MAX_DEPTH = 200
_LARGEST = 1 << 62


class ExpressionError(HarnessError):
    """An expression that cannot be evaluated, or a value that cannot be an expression."""


_BINARY: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b), "<": lambda a, b: int(a < b), "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b), ">=": lambda a, b: int(a >= b),
    ">>": lambda a, b: a >> min(max(b, 0), 64), "<<": lambda a, b: a << min(max(b, 0), 64), "minimum": min,
    "maximum": max,
}  # fmt: skip


def _operator(name: str, *, reflected: bool = False) -> Callable[[Expression, object], Expression]:
    def apply(self: Expression, other: object) -> Expression:
        return _made(name, other, self) if reflected else _made(name, self, other)

    return apply


class Expression:
    """An integer that depends on the problem. It has Python's operators; a condition is 1 or 0.

    It has no truth value: `if`, `and`, `min` and `max` cannot be traced. Use `where`, `&`, `minimum` and
    `maximum` instead.
    """

    __slots__ = ("tree",)
    __hash__ = object.__hash__

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def __repr__(self) -> str:
        return text_of(self.tree)

    def __bool__(self) -> NoReturn:
        raise ExpressionError(
            f"{self} depends on the problem and is not known here: use where(condition, a, b), minimum, "
            "maximum and & instead of if, min, max and and"
        )

    def __index__(self) -> NoReturn:
        raise ExpressionError(f"{self} depends on the problem and is no number here")

    __int__ = __index__

    __add__, __radd__ = _operator("+"), _operator("+", reflected=True)
    __sub__, __rsub__ = _operator("-"), _operator("-", reflected=True)
    __mul__, __rmul__ = _operator("*"), _operator("*", reflected=True)
    __floordiv__, __rfloordiv__ = _operator("//"), _operator("//", reflected=True)
    __mod__, __rmod__ = _operator("%"), _operator("%", reflected=True)
    __xor__, __rshift__, __lshift__ = map(_operator, ("^", ">>", "<<"))
    __and__ = __rand__ = _operator("&")
    __or__ = __ror__ = _operator("|")
    __eq__, __ne__ = _operator("=="), _operator("!=")  # type: ignore[assignment]
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("<", "<=", ">", ">="))

    def __neg__(self) -> Expression:
        return _made("-", 0, self)


Number = int | Expression


def number(name: str) -> Expression:
    """Returns the number of this name, such as a problem's field."""
    return Expression(name)


def tree_of(value: object) -> Tree:
    """Returns the tree of an expression or an integer. Raises ExpressionError."""
    if isinstance(value, Expression):
        return value.tree
    if isinstance(value, int):
        return int(value)
    raise ExpressionError(f"{value!r} is of type {type(value).__name__}: give an integer or an expression")


def _made(name: str, *operands: object) -> Expression:
    return Expression([name, *map(tree_of, operands)])


def cdiv(value: Number, step: Number) -> Number:
    """value / step, rounded up. `triton.cdiv` works too."""
    return (
        -(-value // step) if isinstance(value, int) and isinstance(step, int) else (value + step - 1) // step
    )


def minimum(first: Number, second: Number) -> Number:
    """Returns the smaller one."""
    if isinstance(first, int) and isinstance(second, int):
        return min(first, second)
    return _made("minimum", first, second)


def maximum(first: Number, second: Number) -> Number:
    """Returns the larger one."""
    if isinstance(first, int) and isinstance(second, int):
        return max(first, second)
    return _made("maximum", first, second)


def where(condition: Number, first: Number, second: Number) -> Number:
    """Returns the first value if the condition holds, else the second."""
    return _made("where", condition, first, second)


def evaluate(tree: Tree, values: Mapping[str, int]) -> int:
    """Returns the value of a tree for these numbers. Raises ExpressionError."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        try:
            return values[tree]
        except KeyError:
            raise ExpressionError(f"{tree} is not known: there are {', '.join(sorted(values))}") from None
    name, *operands = tree
    if name == "where":
        condition, first, second = operands
        return evaluate(first if evaluate(condition, values) else second, values)
    left, right = (evaluate(operand, values) for operand in operands)
    try:
        found = _BINARY[name](left, right)
    except ZeroDivisionError:
        raise ExpressionError(f"{text_of(tree)} divides by zero") from None
    if not -_LARGEST <= found <= _LARGEST:
        raise ExpressionError(f"{text_of(tree)} is beyond 2^62")
    return found


def checked(tree: object) -> Tree:
    """Returns a tree that came from outside. Raises ExpressionError unless it is well formed and not too
    large."""
    left = MAX_NODES

    def check(part: object, depth: int) -> None:
        nonlocal left
        left -= 1
        if left < 0 or depth > MAX_DEPTH:
            raise ExpressionError("an expression is too large")
        if isinstance(part, list) and part and isinstance(part[0], str):
            if len(part) != (4 if part[0] == "where" else 3) or part[0] not in ("where", *_BINARY):
                raise ExpressionError(f"{str(part[0])[:40]!r} is not an operator of expressions")
            for operand in part[1:]:
                check(operand, depth + 1)
        elif isinstance(part, bool) or not isinstance(part, int | str):
            raise ExpressionError(f"{str(part)[:40]!r} is not an expression")

    check(tree, 0)
    return tree  # type: ignore[return-value]


def text_of(tree: Tree) -> str:
    """Returns the expression as Python would write it."""
    if not isinstance(tree, list):
        return str(tree)
    name, *operands = tree
    if name not in _BINARY or name.isalpha():
        return f"{name}({', '.join(map(text_of, operands))})"
    return f" {name} ".join(
        f"({text_of(one)})" if isinstance(one, list) else text_of(one) for one in operands
    )


def names_in(tree: Tree) -> frozenset[str]:
    """Returns the names that a tree uses."""
    found, parts = set[str](), [tree]
    for part in parts:  # which grows
        if isinstance(part, list):
            parts += part[1:]
        elif isinstance(part, str):
            found.add(part)
    return frozenset(found)


def is_multiple(tree: Tree, of: int, multiples: frozenset[str]) -> bool:
    """Returns whether the value is provably a multiple of a number when the numbers `multiples` are."""
    if isinstance(tree, int):
        return tree % of == 0
    if isinstance(tree, str):
        return tree in multiples
    name, *operands = tree
    found = [is_multiple(operand, of, multiples) for operand in operands]
    if name == "*":
        return any(found)
    if name in ("+", "-", "minimum", "maximum"):
        return all(found)
    return name == "where" and all(found[1:])
