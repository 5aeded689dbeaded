"""The syntax of kernel filters: the order of tokens, the syntax tree, and the columns of its parts."""

from __future__ import annotations

import ast
import keyword
import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import NoReturn

from tile_oracle.errors import RuleError
from tile_oracle.json_tree import shown

MAX_CHARACTERS = 4096
MAX_TOKENS = 600
MAX_DEPTH = 30
"""Maximum nesting of parentheses, `not` and signs."""

_EXCERPT = 60
_MOST_DIGITS = 10
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)|(?P<integer>[0-9]+(?![0-9A-Za-z_.]))"
    r"|(?P<word>not[ \t\r\n]+in(?![A-Za-z0-9_])|[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<text>'[^'\\\r\n]*'|\"[^\"\\\r\n]*\")|(?P<symbol><=|>=|==|!=|//|\*\*|&&|\|\||[-+*%<>()\[\],=/!&|])"
)
_OPERATORS = frozenset(
    ("and", "or", "not in", "in", "<", "<=", ">", ">=", "==", "!=", "+", "-", "*", "//", "%")
)
_CLOSING = {"(": ")", "[": "]"}
_INSTEAD = {
    "=": "==", "&&": "and", "||": "or", "&": "and", "|": "or", "!": "not", "/": "// (whole division)",
    "**": "a product", "AND": "and", "OR": "or", "NOT": "not", "true": "True", "false": "False", "is": "==",
}  # fmt: skip
_NO_FIELDS = frozenset((*keyword.kwlist, *_INSTEAD, "not in")) - {"True", "False"}
_AN_OPERAND = "expected a field, a number, a text, True, False or '('"
_AN_OPERATOR = "expected 'and', 'or', a comparison or the end"


@dataclass(frozen=True)
class Token:
    """kind: integer, word, text, symbol or end. column: from 1. `not in` is one word."""

    kind: str
    text: str
    column: int


class Syntax:
    """A parsed filter.

    tree: its Python syntax tree, in which `col_offset` counts characters from 1, and each string literal is a
    placeholder: `text_at` has its characters.
    """

    def __init__(self, text: str) -> None:
        """Raises RuleError, with a column, for what is not in the grammar of `tile_oracle.kernel_filter`."""
        if not isinstance(text, str) or not text.strip():
            raise RuleError(
                "the kernel filter is empty; write for example tile_n >= 128 and pipeline == 'compv5'"
            )
        if len(text) > MAX_CHARACTERS:
            raise RuleError(f"the kernel filter has {len(text):,} characters; the most is {MAX_CHARACTERS:,}")
        self._text = text
        self._tokens = self._read_tokens()
        self._check_order()
        # The first parenthesis lets column numbers start from 1.
        self.tree = ast.parse(f"({self._python()})", mode="eval").body

    def text_at(self, column: int) -> str:
        """The characters of the string literal that starts in a column, without its quotes."""
        return self._tokens[self._index(column)].text[1:-1]

    def operator_before(self, operand: ast.expr) -> Token:
        """The operator whose right side is `operand`."""
        index = self._index(operand.col_offset) - 1
        while self._tokens[index].text == "(":
            index -= 1
        return self._tokens[index]

    def fail(self, column: int, what: str, error: type[RuleError] = RuleError) -> NoReturn:
        """Raises the error for a mistake in a column."""
        raise error(f"kernel filter {_excerpt(self._text, column)}, column {column}: {what}")

    def _index(self, column: int) -> int:
        return bisect_left(self._tokens, column, key=lambda token: token.column)

    def _read_tokens(self) -> list[Token]:
        tokens: list[Token] = []
        position = 0
        while position < len(self._text):
            match = _TOKEN.match(self._text, position)
            if match is None:
                self._bad_character(position)
            if match.lastgroup != "space":
                text = " ".join(match[0].split()) if match.lastgroup == "word" else match[0]
                tokens.append(Token(str(match.lastgroup), text, position + 1))
            position = match.end()
        if len(tokens) > MAX_TOKENS:
            raise RuleError(
                f"the kernel filter has {len(tokens):,} words and signs; the most is {MAX_TOKENS}"
            )
        return [*tokens, Token("end", "", len(self._text) + 1)]

    def _bad_character(self, position: int) -> NoReturn:
        character = self._text[position]
        if character in "'\"":
            self.fail(
                position + 1,
                "this text has no closing quote on its line (backslashes are not allowed in a text)",
            )
        if character.isdigit() and character.isascii():
            self.fail(position + 1, "not an integer; numbers are integers like 128")
        self.fail(position + 1, f"unexpected character {character!r}")

    def _check_order(self) -> None:
        """Refuses a token that cannot follow the one before it, and unbalanced brackets.

        Python's parser accepts the rest. Its own messages change from one Python version to the next.
        """
        opened: list[tuple[Token, int]] = []
        """Open brackets, and the depth inside each."""
        depth = 0
        before = Token("start", "", 0)
        complete = False
        """Whether the tokens so far end with an operand."""
        for token in self._tokens:
            sign = token.text if token.kind in ("word", "symbol") else ""
            closes = bool(opened) and sign == _CLOSING[opened[-1][0].text]
            if closes and before is opened[-1][0]:
                self.fail(before.column, "an empty list matches no kernel")
            if closes and (complete or before.text == ","):
                opened.pop()
                complete = True
            elif complete:
                if token.kind == "end" and not opened:
                    return
                if sign not in _OPERATORS and not (sign == "," and opened):
                    self._unexpected(token, _to_close(opened[-1][0]) if opened else _AN_OPERATOR)
                depth = opened[-1][1] if opened else 0
                complete = False
            elif sign in _CLOSING or sign == "-" or (sign == "not" and _may_precede_not(before)):
                depth += 1
                if depth > MAX_DEPTH:
                    self.fail(token.column, f"nested more than {MAX_DEPTH} levels deep")
                if sign in _CLOSING:
                    opened.append((token, depth))
            else:
                self._check_operand(token)
                complete = True
            before = token

    def _check_operand(self, token: Token) -> None:
        text = token.text
        if token.kind in ("symbol", "end") or (token.kind == "word" and text in _NO_FIELDS):
            self._unexpected(token, _AN_OPERAND)
        if token.kind == "integer" and len(text) > _MOST_DIGITS:
            self.fail(token.column, f"a number has at most {_MOST_DIGITS} digits")

    def _unexpected(self, token: Token, wanted: str) -> NoReturn:
        if token.kind == "end":
            self.fail(token.column, f"the filter ends too early: {wanted}")
        if token.text in _INSTEAD:
            self.fail(token.column, f"{token.text!r} is not known; use {_INSTEAD[token.text]}")
        self.fail(token.column, f"unexpected {shown(token.text)}: {wanted}")

    def _python(self) -> str:
        """The same tokens in the same columns, on one line and in ASCII."""
        line = [" "] * len(self._text)
        for token in self._tokens:
            text = token.text
            if token.kind == "text":
                text = f"'{'_' * (len(text) - 2)}'"
            elif token.kind == "integer":
                text = str(int(text)).rjust(len(text))  # 064 is not valid Python
            line[token.column - 1 : token.column - 1 + len(text)] = text
        return "".join(line)


def _may_precede_not(token: Token) -> bool:
    return token.kind == "start" or token.text in ("and", "or", "not", "(", "[", ",")


def _to_close(opened: Token) -> str:
    return f"expected {_CLOSING[opened.text]!r} to close {opened.text!r} of column {opened.column}"


def _excerpt(text: str, column: int) -> str:
    """The text around a column, quoted, on one line."""
    start, end = max(0, column - _EXCERPT // 2), column + _EXCERPT // 2
    if len(text) <= _EXCERPT:
        return repr(text)
    return repr(("..." if start else "") + text[start:end] + ("..." if end < len(text) else ""))
