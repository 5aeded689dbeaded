"""Sheets of formulas: the features of a schema as text, one a line.

    Ho = (Hi + 2 * pad_h - ((Y - 1) * dilation_h + 1)) // stride_h + 1  # output rows
    N  # images

Names are columns: other formulas of the schema, input columns, hardware features. A name alone is an input
column itself. A meaning may stand in the line after its formula. A line with @ is one for each axis of a
product: @ stands for its letter, @@ for the capital. `pipeline == "mem"`, `pipeline in ("mem",
"compv3")` and `starts(pipeline, "basic_v")` are 1.0 where the text in a column is so, else 0.0. The syntax is
Python's, but only what `_formula` knows is read, and nothing is run as Python.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from tile_oracle.features.feature_table import (
    Feature,
    Formula,
    ceil_div,
    given,
    log,
    log2,
    log2_of,
    power_of_two,
    ratio,
    tile_fill,
)

_OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_OF_NUMPY = ("where", "minimum", "maximum", "ceil", "floor", "mod", "sqrt", "trunc")
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in _OF_NUMPY},
    **{one.__name__: one for one in (log, log2, log2_of, ceil_div, ratio, tile_fill, power_of_two)},
}


def formulas(sheet: str, **of_table: Callable[..., Any]) -> tuple[Feature, ...]:
    """Returns the features of a sheet, in its order.

    of_table: further functions, which get the table before their arguments; a name alone has none, and may be
    an object whose attributes are columns. Raises ValueError for a line without a meaning, or with something
    that formulas do not have.
    """
    lines, found = list(_along_axes(sheet)), []
    for line in ast.parse("\n".join(lines)).body:
        end = line.end_lineno or 0
        said = (one.partition("  # ")[2] for one in lines[end - 1 : end + 1])
        meaning = next(filter(None, said), "")
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if meaning:
                found.append(Feature(name, _formula(value, of_table), meaning))
            case ast.Expr(value=ast.Name(id=name)) if meaning:
                found.append(given(name, meaning))
            case _:
                raise ValueError(f"no formula with its meaning: {lines[end - 1]}")
    return tuple(found)


def _along_axes(sheet: str) -> Iterator[str]:
    """Yields the lines of a sheet, those with @ once for each axis."""
    for line in sheet.splitlines():
        for axis in "mnk" if "@" in line else "m":
            yield line.replace("@@", axis.upper()).replace("@", axis)


def _formula(node: ast.expr, of_table: Mapping[str, Callable[..., Any]]) -> Formula:
    read = partial(_formula, of_table=of_table)
    match node:
        case ast.Name(id=name):
            return of_table[name] if name in of_table else lambda t: t[name]
        case ast.Attribute(value=value, attr=name):
            whole = read(value)
            return lambda t: getattr(whole(t), name)
        case ast.Constant(value=int() | float() as number):
            return lambda t: np.asarray(number, dtype=np.float64)
        case ast.Compare(left=ast.Name(id=name), comparators=[ast.Constant(value=str(word))]):
            return lambda t: t.word_is(name, lambda one: one == word)
        case ast.Compare(left=ast.Name(id=name), ops=[ast.In()], comparators=[ast.Tuple() as words]):
            known = ast.literal_eval(words)
            return lambda t: t.word_is(name, lambda one: one in known)
        case ast.Call(func=ast.Name(id="starts"), args=[ast.Name(id=name), ast.Constant(value=str(word))]):
            return lambda t: t.word_is(name, lambda one: one.startswith(word))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _called(name, [read(one) for one in args], of_table)
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            a, b, apply = read(left), read(right), _OPERATORS[type(op)]
            return lambda t: apply(a(t), b(t))
    raise ValueError(f"formulas have no {ast.unparse(node)}")


def _called(name: str, args: list[Formula], of_table: Mapping[str, Callable[..., Any]]) -> Formula:
    if name in of_table:
        own = of_table[name]
        return lambda t: own(t, *(one(t) for one in args))
    function = _FUNCTIONS[name]
    return lambda t: function(*(one(t) for one in args))
