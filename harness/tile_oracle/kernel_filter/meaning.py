"""Kernel filters such as `tile_n >= 128 and pipeline == 'compv5'`: a small language over a kernel's fields.

    filter      disjunction, and it must be true or false
    disjunction conjunction { "or" conjunction }
    conjunction negation { "and" negation }
    negation    "not" negation | comparison
    comparison  sum { ("<" | "<=" | ">" | ">=" | "==" | "!=" | "in" | "not" "in") sum }
    sum         product { ("+" | "-") product }
    product     signed { ("*" | "//" | "%") signed }
    signed      "-" signed | atom
    atom        integer | 'text' | "text" | True | False | field | "(" disjunction ")" | list
    list        "(" sum "," { sum "," } ")" | "[" sum { "," sum } "]"

The semantics are Python's, including chained comparisons and the order of evaluation. The types are stricter:
integers, texts and booleans do not mix, ordering and arithmetic are for integers only, and a list is valid
only after `in` (`in` with a text field tests for a substring). Types are checked while parsing, and an error
names the column, so a wrong filter cannot silently match nothing. The text is never passed to Python's
compiler.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache
from typing import Any, NoReturn

from tile_oracle.errors import RuleError
from tile_oracle.json_tree import shown
from tile_oracle.kernel import EPILOGUES, PIPELINE_NAME, SCHEDULERS, Kernel
from tile_oracle.operation import operation_named, operation_names
from tile_oracle.operation.gemm.problem import GEMM_DTYPES, GEMM_LAYOUTS
from tile_oracle.operation.grouped_conv.problem import DIRECTIONS, DTYPES

MAX_CHARACTERS = 4096
MAX_TOKENS = 600
MAX_DEPTH = 30
"""Maximum nesting of parentheses, `not` and signs."""

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


_EXCERPT = 60
_WORDS = {
    "direction": DIRECTIONS,
    "dtype": tuple(dict.fromkeys((*DTYPES, *GEMM_DTYPES))),
    "layout": GEMM_LAYOUTS,
    "scheduler": SCHEDULERS,
    "epilogue": EPILOGUES,
}

_Value = Callable[[Kernel], Any]


@dataclass(frozen=True)
class KernelFilter:
    """A filter, parsed and checked on construction. Raises RuleError with the column of the error.

    Filters with equal texts are equal. They are hashable and can be pickled.
    """

    text: str
    _value: _Value = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_value", _Parser(self.text).filter())

    def matches(self, kernel: Kernel) -> bool:
        """Whether the filter accepts the kernel. Raises RuleError if it divides by zero for this kernel, or
        uses a field that kernels of this operation do not have."""
        return bool(self._value(kernel))

    def __reduce__(self) -> tuple[type[KernelFilter], tuple[str]]:
        return (KernelFilter, (self.text,))


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    column: int


@dataclass(frozen=True)
class _Node:
    """A typed subexpression with its evaluator; with its field name or literal, if it is one."""

    type: str
    value: _Value
    column: int
    field_name: str = ""
    literals: tuple[Any, ...] = ()
    is_list: bool = False


_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)|(?P<integer>[0-9]+(?![0-9A-Za-z_.]))|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<text>'[^'\\\r\n]*'|\"[^\"\\\r\n]*\")|(?P<symbol><=|>=|==|!=|//|\*\*|&&|\|\||[-+*%<>()\[\],=/!&|])"
)
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
    "!=": operator.ne, "in": lambda a, b: a in b, "not in": lambda a, b: a not in b,
}  # fmt: skip
_ORDERED = ("<", "<=", ">", ">=")
_INSTEAD = {
    "=": "==", "&&": "and", "||": "or", "&": "and", "|": "or", "!": "not", "/": "// (whole division)",
    "**": "a product", "AND": "and", "OR": "or", "NOT": "not", "true": "True", "false": "False", "is": "==",
}  # fmt: skip


class _Parser:
    """A recursive-descent parser; every grammar method returns the node that it parsed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.depth = 0
        self.position = 0
        if not isinstance(text, str) or not text.strip():
            raise RuleError(
                "the kernel filter is empty; write for example tile_n >= 128 and pipeline == 'compv5'"
            )
        if len(text) > MAX_CHARACTERS:
            raise RuleError(f"the kernel filter has {len(text):,} characters; the most is {MAX_CHARACTERS:,}")
        self.tokens = self._tokens()

    def fail(self, column: int, what: str) -> NoReturn:
        raise RuleError(f"kernel filter {_excerpt(self.text, column)}, column {column}: {what}")

    # ---- tokens -----------------------------------------------------------------------------

    def _tokens(self) -> list[_Token]:
        tokens: list[_Token] = []
        position = 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None:
                self._bad_character(position)
            if match.lastgroup != "space":
                tokens.append(_Token(str(match.lastgroup), match[0], position + 1))
            position = match.end()
        if len(tokens) > MAX_TOKENS:
            raise RuleError(
                f"the kernel filter has {len(tokens):,} words and signs; the most is {MAX_TOKENS}"
            )
        return [*tokens, _Token("end", "", len(self.text) + 1)]

    def _bad_character(self, position: int) -> NoReturn:
        character = self.text[position]
        if character in "'\"":
            self.fail(
                position + 1,
                "this text has no closing quote on its line (backslashes are not allowed in a text)",
            )
        if character.isdigit() and character.isascii():
            self.fail(position + 1, "not an integer; numbers are integers like 128")
        self.fail(position + 1, f"unexpected character {character!r}")

    @property
    def next(self) -> _Token:
        return self.tokens[self.position]

    def taken(self, *texts: str) -> _Token | None:
        """Consumes and returns the next token if it is one of these words or symbols, else returns None."""
        token = self.next
        if token.kind in ("word", "symbol") and token.text in texts:
            self.position += 1
            return token
        return None

    def expect(self, text: str, opened: _Token) -> None:
        if self.taken(text) is None:
            self.unexpected(f"expected {text!r} to close {opened.text!r} of column {opened.column}")

    def unexpected(self, wanted: str) -> NoReturn:
        token = self.next
        if token.kind == "end":
            self.fail(token.column, f"the filter ends too early: {wanted}")
        if token.text in _INSTEAD:
            self.fail(token.column, f"{token.text!r} is not known; use {_INSTEAD[token.text]}")
        self.fail(token.column, f"unexpected {shown(token.text)}: {wanted}")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(self.next.column, f"nested more than {MAX_DEPTH} levels deep")

    # ---- grammar ----------------------------------------------------------------------------

    def filter(self) -> _Value:
        node = self.disjunction()
        if self.next.kind != "end":
            self.unexpected("expected 'and', 'or', a comparison or the end")
        self.must_be(node, _FLAG, "a filter as a whole")
        return node.value

    def disjunction(self) -> _Node:
        return self.logical("or", self.conjunction, any)

    def conjunction(self) -> _Node:
        return self.logical("and", self.negation, all)

    def logical(self, word: str, operand: Callable[[], _Node], combine: Callable[[Any], bool]) -> _Node:
        first = operand()
        values = [first.value]
        while (token := self.taken(word)) is not None:
            if len(values) == 1:
                self.must_be(first, _FLAG, f"the left side of {word!r}")
            node = operand()
            self.must_be(node, _FLAG, f"the right side of {word!r} (column {token.column})")
            values.append(node.value)
        if len(values) == 1:
            return first
        return _Node(_FLAG, lambda kernel: combine(value(kernel) for value in values), first.column)

    def negation(self) -> _Node:
        if (token := self.taken("not")) is None:
            return self.comparison()
        self.deeper()
        value = self.must_be(self.negation(), _FLAG, "the operand of 'not'").value
        self.depth -= 1
        return _Node(_FLAG, lambda kernel: not value(kernel), token.column)

    def comparison(self) -> _Node:
        first = left = self.sum()
        links: list[tuple[Callable[[Any, Any], Any], _Value]] = []
        while (sign := self.comparison_sign()) is not None:
            right = self.sum()
            self.check_comparison(left, sign, right)
            links.append((_COMPARISONS[sign.text], right.value))
            left = right
        if not links:
            if first.is_list:
                self.fail(first.column, "a list is valid only after 'in'")
            return first
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

    def comparison_sign(self) -> _Token | None:
        if (token := self.taken("<", "<=", ">", ">=", "==", "!=", "in")) is not None:
            return token
        after = self.tokens[self.position + 1] if self.position + 1 < len(self.tokens) else self.next
        if self.next.kind == after.kind == "word" and (self.next.text, after.text) == ("not", "in"):
            token = self.next
            self.position += 2
            return _Token("word", "not in", token.column)
        return None

    def sum(self) -> _Node:
        return self.arithmetic({"+": operator.add, "-": operator.sub}, self.product)

    def product(self) -> _Node:
        return self.arithmetic({"*": operator.mul, "//": operator.floordiv, "%": operator.mod}, self.signed)

    def arithmetic(self, signs: dict[str, Callable[[Any, Any], Any]], operand: Callable[[], _Node]) -> _Node:
        first = operand()
        steps: list[tuple[Callable[[Any, Any], Any], _Value, int]] = []
        while (token := self.taken(*signs)) is not None:
            if not steps:
                self.must_be(first, _INTEGER, f"the left side of {token.text!r}")
            node = self.must_be(operand(), _INTEGER, f"the right side of {token.text!r}")
            if token.text in ("//", "%") and node.literals == (0,):
                self.fail(token.column, "division by zero")
            steps.append((signs[token.text], node.value, token.column))
        if not steps:
            return first
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

    def signed(self) -> _Node:
        if (token := self.taken("-")) is None:
            return self.atom()
        self.deeper()
        node = self.must_be(self.signed(), _INTEGER, "the operand of '-'")
        self.depth -= 1
        value = node.value
        return _Node(_INTEGER, lambda kernel: -value(kernel), token.column, literals=node.literals)

    def atom(self) -> _Node:
        token = self.next
        if (opened := self.taken("(", "[")) is not None:
            return self.enclosed(opened)
        if token.kind not in ("integer", "text", "word") or token.text in ("and", "or", "not", "in"):
            self.unexpected("expected a field, a number, a text, True, False or '('")
        self.position += 1
        if token.kind == "integer":
            if len(token.text) > 10:
                self.fail(token.column, "a number has at most 10 digits")
            return _literal(_INTEGER, int(token.text), token.column)
        if token.kind == "text":
            return _literal(_TEXT, token.text[1:-1], token.column)
        if token.text in ("True", "False"):
            return _literal(_FLAG, token.text == "True", token.column)
        return self.field(token)

    def field(self, token: _Token) -> _Node:
        name = token.text
        if name not in _all_fields():
            if name in _INSTEAD:
                self.fail(token.column, f"{name!r} is not known; use {_INSTEAD[name]}")
            close = difflib.get_close_matches(name[:100], _all_fields(), 1, cutoff=0.5)
            hint = (
                f"did you mean {close[0]}?"
                if close
                else f"fields: {', '.join(filter_fields(operation_names()[0]))}"
            )
            quoted = f" (put a text in quotes: '{name}')" if PIPELINE_NAME.fullmatch(name) else ""
            self.fail(token.column, f"a kernel has no field {shown(name)}{quoted}; {hint}")
        value: _Value = operator.attrgetter(name)
        if any(name not in filter_fields(op) for op in operation_names()):
            value = self.of_one_operation(name, token.column)
        return _Node(_all_fields()[name], value, token.column, field_name=name)

    def of_one_operation(self, name: str, column: int) -> _Value:
        def value(kernel: Kernel) -> Any:
            if not hasattr(kernel, name):
                known = ", ".join(filter_fields(kernel.op))
                self.fail(column, f"{kernel.op} kernels have no {name}; fields: {known}")
            return getattr(kernel, name)

        return value

    def enclosed(self, opened: _Token) -> _Node:
        """Parses what is inside brackets: an expression in parentheses, or a list."""
        closing = ")" if opened.text == "(" else "]"
        if self.taken(closing) is not None:
            self.fail(opened.column, "an empty list matches no kernel")
        self.deeper()
        items = [self.disjunction()]
        is_list = opened.text == "["
        while self.taken(",") is not None:
            is_list = True
            if self.next.text == closing and self.next.kind == "symbol":
                break
            items.append(self.disjunction())
        self.expect(closing, opened)
        self.depth -= 1
        if not is_list:
            return items[0]
        for item in items:
            self.must_be(item, items[0].type, "an entry of this list, like its first one,")
        values = [item.value for item in items]
        return _Node(
            items[0].type,
            lambda kernel: [value(kernel) for value in values],
            opened.column,
            literals=tuple(literal for item in items for literal in item.literals),
            is_list=True,
        )

    # ---- types ------------------------------------------------------------------------------

    def must_be(self, node: _Node, type_: str, what: str) -> _Node:
        if node.is_list:
            self.fail(node.column, "a list is valid only after 'in'")
        if node.type != type_:
            self.fail(node.column, f"{what} must be {type_}, but {self.described(node)}")
        return node

    def described(self, node: _Node) -> str:
        if node.is_list:
            return f"this is a list, each entry {node.type}"
        return f"{node.field_name or 'this'} is {node.type}"

    def check_comparison(self, left: _Node, sign: _Token, right: _Node) -> None:
        if left.is_list:
            self.fail(left.column, "a list is valid only after 'in'")
        if sign.text in ("in", "not in"):
            if not right.is_list and not (left.type == right.type == _TEXT and right.field_name):
                example = "('mem', 'compv3')" if right.type == _TEXT else "(64, 128)"
                self.fail(
                    right.column,
                    f"{sign.text!r} needs a list like {example} or a text field, but {self.described(right)}",
                )
        elif right.is_list:
            self.fail(right.column, "a list is valid only after 'in'")
        if left.type != right.type:
            self.fail(
                sign.column,
                f"{sign.text!r} cannot compare these: {self.described(left)}, {self.described(right)}",
            )
        if sign.text in _ORDERED and left.type != _INTEGER:
            self.fail(sign.column, f"{sign.text!r} compares integers only, but {self.described(left)}")
        if sign.text in ("==", "!=") or right.is_list:
            self.check_words(left, right)
            self.check_words(right, left)

    def check_words(self, field_: _Node, other: _Node) -> None:
        """Refuses a text that the field can never have, which is probably a typing error."""
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


def _excerpt(text: str, column: int) -> str:
    """The text around a column, quoted, on one line."""
    start, end = max(0, column - _EXCERPT // 2), column + _EXCERPT // 2
    if len(text) <= _EXCERPT:
        return repr(text)
    return repr(("..." if start else "") + text[start:end] + ("..." if end < len(text) else ""))


def _literal(type_: str, value: Any, column: int) -> _Node:
    return _Node(type_, lambda kernel: value, column, literals=(value,))
