"""Kernel filters such as `tile_n >= 128 and pipeline == 'compv5'`: a small language over a kernel's fields.

A filter is a Python expression of fields, integers, texts, True, False, lists, `and`, `or`, `not`,
comparisons and `+ - * // %`, with Python's semantics, chained comparisons included. The types are stricter:
integers, texts and booleans do not mix, ordering and arithmetic are for integers only, and a list is valid
only after `in` (`in` with a text field tests for a part of the text). Types are checked while parsing, and an
error names the column, so a wrong filter cannot silently match nothing.

Python's parser builds the syntax tree; the nodes named above are turned into functions of a kernel, and all
others refused. No filter is compiled or evaluated as Python code.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import pairwise
from typing import Any, NoReturn

from tile_oracle.errors import LacksFieldError, RuleError
from tile_oracle.files.json_tree import shown
from tile_oracle.kernel import EPILOGUES, FAMILY, PIPELINE_NAME, SCHEDULERS, Kernel
from tile_oracle.operation import operation_named, operation_names
from tile_oracle.terminal.did_you_mean import did_you_mean

MAX_CHARACTERS = 4096
MAX_DEPTH = 30
"""Maximum nesting of operators; a sum nests once for each `+`."""

_LEAST_TOO_LARGE = 10**10
_EXCERPT = 60
_INTEGER, _TEXT, _FLAG = "an integer", "a text", "true or false"
_EXAMPLE = "tile_n >= 128 and pipeline == 'compv5'"

_MISTAKES = re.compile(
    r"""'[^'\\\r\n]*'|"[^"\\\r\n]*"|(?P<quote>['"])|(?P<foreign>&&|\|\||(?<![<>=!])=(?!=)|!(?!=)"""
    r"|\b(?:AND|OR|NOT)\b)|(?P<character>[^\t\r\n -~]|[\\#])"
)
_INSTEAD = {
    "=": "==", "&&": "and", "||": "or", "&": "and", "|": "or", "!": "not", "/": "// (whole division)",
    "**": "a product", "AND": "and", "OR": "or", "NOT": "not", "true": "True", "false": "False", "is": "==",
}  # fmt: skip

Value = Callable[[Kernel], Any]

_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip

_TEXT_SETTINGS = ("source", "function")
_SETTINGS = dict.fromkeys(_TEXT_SETTINGS, _TEXT) | dict.fromkeys(
    ("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim", "kpack"),
    _INTEGER,
)
"""Fields of a NamedKernel. Its other values are integers, and names in capitals (BLOCK_M)."""


@cache
def filter_fields(op: str) -> dict[str, str]:
    """Field name -> type, of the kernel fields of an operation that a filter can use."""
    kinds = {"int": _INTEGER, "str": _TEXT, "bool": _FLAG}
    return {f.name: kinds[str(f.type)] for f in fields(operation_named(op).kernel)} | {"name": _TEXT}


@cache
def _all_fields() -> dict[str, str]:
    """Returns the fields of all operations' kernels."""
    return {name: kind for op in operation_names() for name, kind in filter_fields(op).items()}


@cache
def _words(name: str) -> tuple[str, ...]:
    """Returns the texts that a field can have; none if they are not known."""
    if name in (own := {"scheduler": SCHEDULERS, "epilogue": EPILOGUES}):
        return own[name]
    fields_of = (operation_named(op).kind_fields for op in operation_names())
    words = (value for known in fields_of for value in known.get(name, ()) if isinstance(value, str))
    return tuple(dict.fromkeys(words))


@dataclass(frozen=True)
class KernelFilter:
    """A filter, parsed and checked on construction. Raises RuleError with the column of the error.

    Filters with equal texts are equal. They are hashable and can be pickled.
    """

    text: str
    _value: Value = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_value", _Reader(self.text).value())

    def matches(self, kernel: Kernel) -> bool:
        """Returns whether the filter accepts the kernel. Raises RuleError if it divides by zero for this
        kernel, or uses a field that kernels of this operation do not have."""
        return bool(self._value(kernel))

    def __reduce__(self) -> tuple[type[KernelFilter], tuple[str]]:
        return (KernelFilter, (self.text,))


@dataclass(frozen=True)
class _Term:
    """A typed subexpression with its evaluator; with its field's name or its literals, if it is one."""

    type: str
    value: Value
    tree: ast.expr
    field_name: str = ""
    literals: tuple[Any, ...] = ()
    is_list: bool = False

    def __str__(self) -> str:
        if self.is_list:
            return f"this is a list, each entry {self.type}"
        return f"{self.field_name or 'this'} is {self.type}"


class _Reader:
    """Turns the text of a filter into typed terms."""

    def __init__(self, text: str) -> None:
        """Raises RuleError for a text that is no expression."""
        if not text.strip():
            raise RuleError(f"the kernel filter is empty; write for example {_EXAMPLE}")
        if len(text) > MAX_CHARACTERS:
            raise RuleError(f"the kernel filter has {len(text):,} characters; the most is {MAX_CHARACTERS:,}")
        self._text = text
        self._depth = 0
        for found in _MISTAKES.finditer(text):
            if found["quote"]:
                what = "this text has no closing quote on its line (backslashes are not allowed in a text)"
                self._fail(found.start(), what)
            if found["character"]:
                self._fail(found.start(), f"unexpected character {found[0]!r}")
            if found["foreign"]:
                self._fail(found.start(), _instead(found[0]))

    def value(self) -> Value:
        """Returns the filter as a function of a kernel. Raises RuleError with the column of a mistake."""
        plain = re.sub(r"\s", " ", self._text)
        indent = len(plain) - len(plain.lstrip())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of Python, as for `1 is 1`
                tree = ast.parse(plain[indent:], mode="eval").body
        except SyntaxError as error:
            at = indent + error.offset - 1 if error.offset else len(plain)  # none: it ends too early
            self._fail(min(at, len(plain)), f"{error.msg}; write for example {_EXAMPLE}")
        except (RecursionError, MemoryError):
            self._fail(0, "it is nested too deeply")
        for node in ast.walk(tree):
            if isinstance(node, ast.expr):
                node.col_offset += indent
                node.end_col_offset = (node.end_col_offset or 0) + indent
        return self._must_be(self._term(tree), _FLAG, "a filter as a whole").value

    def _fail(self, place: int, what: str, error: type[RuleError] = RuleError) -> NoReturn:
        """Raises the error for a mistake at a place, which counts from 0; the message's column from 1."""
        start, end = max(0, place - _EXCERPT // 2), place + _EXCERPT // 2
        text = self._text
        if len(text) > _EXCERPT:
            text = ("..." if start else "") + text[start:end] + ("..." if end < len(text) else "")
        raise error(f"kernel filter {text!r}, column {place + 1}: {what}")

    def _sign(self, left: ast.expr, right: ast.expr) -> tuple[int, str]:
        """Returns the place of the operator between two operands, and the operator."""
        start = left.end_col_offset or 0
        found = re.compile(r"not\s+in\b|\w+|[^\w\s()\[\],'\"]+").search(self._text, start, right.col_offset)
        return (start, "") if found is None else (found.start(), " ".join(found[0].split()))

    def _term(self, tree: ast.expr) -> _Term:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(tree.col_offset, f"nested more than {MAX_DEPTH} levels deep")
        try:
            return self._read(tree)
        finally:
            self._depth -= 1

    def _read(self, tree: ast.expr) -> _Term:
        match tree:
            case ast.BoolOp():
                return self._logical(tree)
            case ast.UnaryOp(op=ast.Not()):
                flag = self._must_be(self._term(tree.operand), _FLAG, "the operand of 'not'").value
                return _Term(_FLAG, lambda kernel: not flag(kernel), tree)
            case ast.UnaryOp(op=ast.USub()):
                term = self._must_be(self._term(tree.operand), _INTEGER, "the operand of '-'")
                return _Term(_INTEGER, lambda kernel: -term.value(kernel), tree, literals=term.literals)
            case ast.Compare():
                return self._comparison(tree)
            case ast.BinOp():
                return self._arithmetic(tree)
            case ast.List() | ast.Tuple():
                return self._list(tree)
            case ast.Name():
                return self._field(tree)
            case ast.Constant(value=bool() | int() | str()):
                literal = tree.value
                if type(literal) is int and literal >= _LEAST_TOO_LARGE:
                    self._fail(tree.col_offset, "a number has at most 10 digits")
                kind = {bool: _FLAG, int: _INTEGER, str: _TEXT}[type(literal)]
                return _Term(kind, lambda kernel: literal, tree, literals=(literal,))
            case ast.Constant(value=float()):
                self._fail(tree.col_offset, "not an integer; numbers are integers like 128")
        self._fail(tree.col_offset, "not an expression of kernel filters")

    def _logical(self, tree: ast.BoolOp) -> _Term:
        word, combine = ("and", all) if isinstance(tree.op, ast.And) else ("or", any)
        values = [self._must_be(self._term(tree.values[0]), _FLAG, f"the left side of {word!r}").value]
        for before, operand in pairwise(tree.values):
            what = f"the right side of {word!r} (column {self._sign(before, operand)[0] + 1})"
            values.append(self._must_be(self._term(operand), _FLAG, what).value)
        return _Term(_FLAG, lambda kernel: combine(value(kernel) for value in values), tree)

    def _comparison(self, tree: ast.Compare) -> _Term:
        terms = [self._term(operand) for operand in (tree.left, *tree.comparators)]
        for (left, right), comparison in zip(pairwise(terms), tree.ops, strict=True):
            self._check_comparison(left, comparison, right)
        compare = [_OPERATORS[type(comparison)] for comparison in tree.ops]

        def chain(kernel: Kernel) -> bool:
            low = terms[0].value(kernel)
            for holds, term in zip(compare, terms[1:], strict=True):
                high = term.value(kernel)
                if not holds(low, high):
                    return False
                low = high
            return True

        return _Term(_FLAG, chain, tree)

    def _check_comparison(self, left: _Term, comparison: ast.cmpop, right: _Term) -> None:
        place, sign = self._sign(left.tree, right.tree)
        if type(comparison) not in _OPERATORS:
            self._fail(place, _instead(sign))
        is_in = isinstance(comparison, ast.In | ast.NotIn)
        for term in (left,) if is_in else (left, right):
            if term.is_list:
                self._must_be(term, term.type, "")
        if is_in and not right.is_list and not (left.type == right.type == _TEXT and right.field_name):
            example = "('mem', 'compv3')" if right.type == _TEXT else "(64, 128)"
            what = f"{sign!r} needs a list like {example} or a text field, but {right}"
            self._fail(right.tree.col_offset, what)
        if left.type != right.type:
            self._fail(place, f"{sign!r} cannot compare these: {left}, {right}")
        if isinstance(comparison, _ORDERED) and left.type != _INTEGER:
            self._fail(place, f"{sign!r} compares integers only, but {left}")
        if not is_in or right.is_list:
            self._check_words(left.field_name, right)
            self._check_words(right.field_name, left)

    def _check_words(self, name: str, other: _Term) -> None:
        """Refuses a text that the field can never have: probably a typo."""
        for word in other.literals:
            if name == "pipeline" and PIPELINE_NAME.fullmatch(word) is None:
                what = f"{shown(word)} is not a pipeline; examples: compv3, mem, basic_v1"
            elif word not in (_words(name) or (word,)):
                what = f"{name} is never {shown(word)}; it is one of {', '.join(_words(name))}"
            else:
                continue
            self._fail(other.tree.col_offset, what)

    def _arithmetic(self, tree: ast.BinOp) -> _Term:
        place, sign = self._sign(tree.left, tree.right)
        calculation = _OPERATORS.get(type(tree.op))
        if calculation is None:
            self._fail(place, _instead(sign))
        left = self._must_be(self._term(tree.left), _INTEGER, f"the left side of {sign!r}")
        right = self._must_be(self._term(tree.right), _INTEGER, f"the right side of {sign!r}")
        if sign in ("//", "%") and right.literals == (0,):
            self._fail(place, "division by zero")

        def calculate(kernel: Kernel) -> int:
            try:
                return int(calculation(left.value(kernel), right.value(kernel)))
            except ZeroDivisionError:
                self._fail(place, f"division by zero for kernel {kernel.name}")

        return _Term(_INTEGER, calculate, tree)

    def _list(self, tree: ast.List | ast.Tuple) -> _Term:
        if not tree.elts:
            self._fail(tree.col_offset, "an empty list matches no kernel")
        items = [self._term(item) for item in tree.elts]
        for item in items:
            self._must_be(item, items[0].type, "an entry of this list, like its first one,")
        literals = tuple(literal for item in items for literal in item.literals)
        values = [item.value for item in items]
        return _Term(items[0].type, lambda kernel: [v(kernel) for v in values], tree, "", literals, True)

    def _field(self, tree: ast.Name) -> _Term:
        name, place = tree.id, tree.col_offset
        known = _all_fields()
        if name in known:
            return _Term(known[name], self._of_one_operation(name, place), tree, name)
        if name in _INSTEAD:
            self._fail(place, _instead(name))
        if name not in _SETTINGS and not name.isupper():
            hint = did_you_mean(
                name, known, f"fields: {', '.join(filter_fields(operation_names()[0]))}", cutoff=0.5
            )
            quoted = f" (put a text in quotes: '{name}')" if PIPELINE_NAME.fullmatch(name) else ""
            self._fail(place, f"a kernel has no field {shown(name)}{quoted}; {hint}")
        return _Term(_SETTINGS.get(name, _INTEGER), self._of_configuration(name, place), tree, name)

    def _of_configuration(self, name: str, place: int) -> Value:
        def value(kernel: Kernel) -> Any:
            found = _configured(kernel).get(name)
            if found is None:
                what = f"{kernel.name} is not configured with {name}; it has: {_known(_configured(kernel))}"
                self._fail(place, what, LacksFieldError)
            if type(found) is bool:
                return int(found)
            if isinstance(found, str) != (name in _TEXT_SETTINGS):
                self._fail(place, f"{name} = {shown(str(found))} of {kernel.name} is not an integer")
            return found

        return value

    def _of_one_operation(self, name: str, place: int) -> Value:
        def value(kernel: Kernel) -> Any:
            if hasattr(kernel, name):
                return getattr(kernel, name)
            what = f"{kernel.op} kernels have no {name}; fields: {_known(filter_fields(kernel.op))}"
            if kernel.source:
                what = f"{kernel.name} has no {name}; it has: {_known(_configured(kernel))}"
            self._fail(place, what, LacksFieldError)

        return value

    def _must_be(self, term: _Term, type_: str, what: str) -> _Term:
        if term.is_list:
            self._fail(term.tree.col_offset, "a list is valid only after 'in'")
        if term.type != type_:
            self._fail(term.tree.col_offset, f"{what} must be {type_}, but {term}")
        return term


def _configured(kernel: Kernel) -> dict[str, int | bool | str]:
    if kernel.source == FAMILY:
        return {}
    return {"source": kernel.source, "function": kernel.function, **kernel.configuration}


def _known(names: Sequence[str] | dict[str, Any]) -> str:
    return ", ".join(names) or "none"


def _instead(word: str) -> str:
    return f"{word!r} is not known; use {_INSTEAD.get(word, 'and, or, not, a comparison, + - * // or %')}"
