"""Checks the types of a filter's syntax tree and turns it into a function of a kernel."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import Any

from tile_oracle.did_you_mean import did_you_mean
from tile_oracle.errors import LacksFieldError
from tile_oracle.json_tree import shown
from tile_oracle.kernel import EPILOGUES, PIPELINE_NAME, SCHEDULERS, Kernel, NamedKernel
from tile_oracle.kernel_filter.syntax import Syntax, Token
from tile_oracle.operation import operation_named, operation_names
from tile_oracle.operations.gemm.problem import GEMM_DTYPES, GEMM_LAYOUTS
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, DTYPES

_INTEGER, _TEXT, _FLAG = "an integer", "a text", "true or false"


@cache
def filter_fields(op: str) -> dict[str, str]:
    """Field name -> type, of the kernel fields of an operation that a filter can use."""
    kinds = {"int": _INTEGER, "str": _TEXT, "bool": _FLAG}
    return {f.name: kinds[str(f.type)] for f in fields(operation_named(op).kernel)} | {"name": _TEXT}


@lru_cache(maxsize=1)
def _all_fields() -> dict[str, str]:
    """The fields of all operations' kernels."""
    return {name: kind for op in operation_names() for name, kind in filter_fields(op).items()}


_WORDS = {
    "direction": DIRECTIONS,
    "dtype": tuple(dict.fromkeys((*DTYPES, *GEMM_DTYPES))),
    "layout": GEMM_LAYOUTS,
    "scheduler": SCHEDULERS,
    "epilogue": EPILOGUES,
}

_TEXT_SETTINGS = ("source", "function")
_SETTINGS = dict.fromkeys(_TEXT_SETTINGS, _TEXT) | dict.fromkeys(
    ("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim", "kpack"),
    _INTEGER,
)
"""Fields of a NamedKernel. Its other values are integers, and names in capitals (BLOCK_M)."""


def _configured(kernel: Kernel) -> dict[str, int | bool | str]:
    if not isinstance(kernel, NamedKernel):
        return {}
    return {"source": kernel.source, "function": kernel.function, **kernel.configuration}


Value = Callable[[Kernel], Any]


@dataclass(frozen=True)
class _Node:
    """A typed subexpression with its evaluator; with its field name or literal, if it is one."""

    type: str
    value: Value
    column: int
    field_name: str = ""
    literals: tuple[Any, ...] = ()
    is_list: bool = False

    @property
    def described(self) -> str:
        if self.is_list:
            return f"this is a list, each entry {self.type}"
        return f"{self.field_name or 'this'} is {self.type}"


_LIST_AFTER_IN = "a list is valid only after 'in'"
_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip


def meaning(text: str) -> Value:
    """The filter as a function of a kernel.

    Raises RuleError with the column of the error. The function raises RuleError for a division by zero, and
    for a field that kernels of the operation do not have.
    """
    typing = _Typing(Syntax(text))
    return typing.must_be(typing.node(typing.syntax.tree), _FLAG, "a filter as a whole").value


class _Typing:
    """Turns a syntax tree into typed nodes."""

    def __init__(self, syntax: Syntax) -> None:
        self.syntax = syntax
        self.fail = syntax.fail

    def node(self, tree: ast.expr) -> _Node:
        column = tree.col_offset
        match tree:
            case ast.BoolOp():
                return self.logical(tree)
            case ast.UnaryOp(op=ast.Not()):
                value = self.must_be(self.node(tree.operand), _FLAG, "the operand of 'not'").value
                return _Node(_FLAG, lambda kernel: not value(kernel), column)
            case ast.UnaryOp(op=ast.USub()):
                node = self.must_be(self.node(tree.operand), _INTEGER, "the operand of '-'")
                return _Node(_INTEGER, lambda kernel: -node.value(kernel), column, literals=node.literals)
            case ast.Compare():
                return self.comparison(tree)
            case ast.BinOp():
                return self.arithmetic(tree)
            case ast.List() | ast.Tuple():
                return self.list(tree)
            case ast.Name():
                return self.field(tree.id, column)
            case ast.Constant(value=bool(flag)):
                return _literal(_FLAG, flag, column)
            case ast.Constant(value=int(number)):
                return _literal(_INTEGER, number, column)
            case ast.Constant(value=str()):
                return _literal(_TEXT, self.syntax.text_at(column), column)
        self.fail(column, "not an expression of kernel filters")

    def logical(self, tree: ast.BoolOp) -> _Node:
        word, combine = ("and", all) if isinstance(tree.op, ast.And) else ("or", any)
        first = self.must_be(self.node(tree.values[0]), _FLAG, f"the left side of {word!r}")
        values = [first.value]
        for operand in tree.values[1:]:
            column = self.syntax.operator_before(operand).column
            what = f"the right side of {word!r} (column {column})"
            values.append(self.must_be(self.node(operand), _FLAG, what).value)
        return _Node(_FLAG, lambda kernel: combine(value(kernel) for value in values), first.column)

    def comparison(self, tree: ast.Compare) -> _Node:
        first = left = self.node(tree.left)
        links: list[tuple[Callable[[Any, Any], Any], Value]] = []
        for comparison, operand in zip(tree.ops, tree.comparators, strict=True):
            right = self.node(operand)
            self.check_comparison(left, comparison, self.syntax.operator_before(operand), right)
            links.append((_COMPARISONS[type(comparison)], right.value))
            left = right
        start = first.value

        def chain(kernel: Kernel) -> bool:
            low = start(kernel)
            for compare, value in links:
                high = value(kernel)
                if not compare(low, high):
                    return False
                low = high
            return True

        return _Node(_FLAG, chain, first.column)

    def arithmetic(self, tree: ast.BinOp) -> _Node:
        # A loop, since a long sum is as deep as it is long.
        leftmost: ast.expr = tree
        operands: list[tuple[ast.operator, ast.expr]] = []
        while isinstance(leftmost, ast.BinOp):
            operands.insert(0, (leftmost.op, leftmost.right))
            leftmost = leftmost.left
        sign = self.syntax.operator_before(operands[0][1])
        first = self.must_be(self.node(leftmost), _INTEGER, f"the left side of {sign.text!r}")
        steps: list[tuple[Callable[[Any, Any], Any], Value, int]] = []
        for operation, operand in operands:
            sign = self.syntax.operator_before(operand)
            node = self.must_be(self.node(operand), _INTEGER, f"the right side of {sign.text!r}")
            if sign.text in ("//", "%") and node.literals == (0,):
                self.fail(sign.column, "division by zero")
            steps.append((_ARITHMETIC[type(operation)], node.value, sign.column))
        start = first.value

        def calculate(kernel: Kernel) -> int:
            result: int = start(kernel)
            for calculation, value, column in steps:
                try:
                    result = calculation(result, value(kernel))
                except ZeroDivisionError:
                    self.fail(column, f"division by zero for kernel {kernel.name}")
            return result

        return _Node(_INTEGER, calculate, first.column)

    def list(self, tree: ast.List | ast.Tuple) -> _Node:
        items = [self.node(item) for item in tree.elts]
        for item in items:
            self.must_be(item, items[0].type, "an entry of this list, like its first one,")
        values = [item.value for item in items]
        return _Node(
            items[0].type,
            lambda kernel: [value(kernel) for value in values],
            tree.col_offset,
            literals=tuple(literal for item in items for literal in item.literals),
            is_list=True,
        )

    def field(self, name: str, column: int) -> _Node:
        if name not in _all_fields() and (name in _SETTINGS or name.isupper()):
            return _Node(_SETTINGS.get(name, _INTEGER), self.of_configuration(name, column), column, name)
        if name not in _all_fields():
            fields = ", ".join(filter_fields(operation_names()[0]))
            hint = did_you_mean(name, _all_fields(), f"fields: {fields}", cutoff=0.5)
            quoted = f" (put a text in quotes: '{name}')" if PIPELINE_NAME.fullmatch(name) else ""
            self.fail(column, f"a kernel has no field {shown(name)}{quoted}; {hint}")
        return _Node(_all_fields()[name], self.of_one_operation(name, column), column, field_name=name)

    def of_configuration(self, name: str, column: int) -> Value:
        def value(kernel: Kernel) -> Any:
            found = _configured(kernel).get(name)
            if found is None:
                known = ", ".join(_configured(kernel)) or "none"
                what = f"{kernel.name} is not configured with {name}; it has: {known}"
                self.fail(column, what, LacksFieldError)
            if type(found) is bool:
                return int(found)
            if isinstance(found, str) != (name in _TEXT_SETTINGS):
                self.fail(column, f"{name} = {shown(str(found))} of {kernel.name} is not an integer")
            return found

        return value

    def of_one_operation(self, name: str, column: int) -> Value:
        def value(kernel: Kernel) -> Any:
            if not hasattr(kernel, name):
                if isinstance(kernel, NamedKernel):
                    what = f"{kernel.name} has no {name}; it has: {', '.join(_configured(kernel))}"
                    self.fail(column, what, LacksFieldError)
                known = ", ".join(filter_fields(kernel.op))
                self.fail(column, f"{kernel.op} kernels have no {name}; fields: {known}", LacksFieldError)
            return getattr(kernel, name)

        return value

    def must_be(self, node: _Node, type_: str, what: str) -> _Node:
        if node.is_list:
            self.fail(node.column, _LIST_AFTER_IN)
        if node.type != type_:
            self.fail(node.column, f"{what} must be {type_}, but {node.described}")
        return node

    def check_comparison(self, left: _Node, comparison: ast.cmpop, sign: Token, right: _Node) -> None:
        if left.is_list:
            self.fail(left.column, _LIST_AFTER_IN)
        if isinstance(comparison, ast.In | ast.NotIn):
            if not right.is_list and not (left.type == right.type == _TEXT and right.field_name):
                example = "('mem', 'compv3')" if right.type == _TEXT else "(64, 128)"
                self.fail(
                    right.column,
                    f"{sign.text!r} needs a list like {example} or a text field, but {right.described}",
                )
        elif right.is_list:
            self.fail(right.column, _LIST_AFTER_IN)
        if left.type != right.type:
            self.fail(sign.column, f"{sign.text!r} cannot compare these: {left.described}, {right.described}")
        if isinstance(comparison, _ORDERED) and left.type != _INTEGER:
            self.fail(sign.column, f"{sign.text!r} compares integers only, but {left.described}")
        if isinstance(comparison, ast.Eq | ast.NotEq) or right.is_list:
            self.check_words(left, right)
            self.check_words(right, left)

    def check_words(self, field_: _Node, other: _Node) -> None:
        """Refuses a string that the field can never have: probably a typo."""
        name = field_.field_name
        if name == "pipeline":
            for word in other.literals:
                if PIPELINE_NAME.fullmatch(word) is None:
                    self.fail(
                        other.column,
                        f"{shown(word)} is not a pipeline; examples: compv3, mem, basic_v1",
                    )
        elif name in _WORDS:
            for word in other.literals:
                if word not in _WORDS[name]:
                    known = ", ".join(_WORDS[name])
                    self.fail(other.column, f"{name} is never {shown(word)}; it is one of {known}")


def _literal(type_: str, value: Any, column: int) -> _Node:
    return _Node(type_, lambda kernel: value, column, literals=(value,))
