"""Reads template and constructor parameters from C++ headers, by name.

This is not a C++ parser. It expects valid C++ in the few forms that CK Tile's public classes have, and
returns None for what it does not find. Nothing is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_TAKEN_OUT = re.compile(
    r"^[ \t]*#[ \t]*if[ \t]+0\b.*?^[ \t]*#[ \t]*(?:else|endif)\b", re.DOTALL | re.MULTILINE
)
_LONGEST_LIST = 20_000
_DECLARED = re.compile(r"(?:\.\.\.\s*)?([A-Za-z_]\w*)\s*(?:\[[^\]]*\])?$")


@dataclass(frozen=True)
class Parameter:
    """One parameter. default: the text after the equals sign, or None."""

    name: str
    default: str | None


@dataclass(frozen=True)
class Template:
    """A class template, an alias template, or (with no parameters) a plain class or alias.

    parameters: in order. body: the text from `struct`, `class` or `using` to the end of the definition.
    """

    name: str
    parameters: tuple[Parameter, ...]
    body: str

    def has(self, *names: str) -> bool:
        """Returns whether one of these names is a parameter."""
        return any(parameter.name in names for parameter in self.parameters)


def without_comments(text: str) -> str:
    """Returns the text without comments, string contents and `#if 0` blocks, so that brackets can be
    counted."""
    text = _COMMENTS.sub(lambda match: '""' if match[0].startswith('"') else " ", text)
    return _TAKEN_OUT.sub(" ", text)


def find_template(text: str, name: str) -> Template | None:
    """Finds the definition of a class, struct or alias in text without comments; None when there is none.

    Skips explicit specialisations. Defaults may come from a forward declaration.
    """
    for match in re.finditer(rf"\b(?:struct|class|using)\s+{re.escape(name)}\b\s*(?=[{{:=])", text):
        if text[match.end() : match.end() + 2] == "::":
            continue
        parameters = _with_declared_defaults(text, name, _parameters_before(text, match.start()))
        return Template(name, parameters, text[match.start() : _end_of_body(text, match.end())])
    return None


def bases_of(template: Template) -> list[str]:
    """Returns the names of a class's base classes, without their arguments."""
    head = template.body.split("{", 1)[0]
    _, colon, clause = head.partition(":")
    words = (re.findall(r"[A-Za-z_]\w*", part.split("<")[0]) for part in split_list(clause))
    return [found[-1] for found in words if found] if colon and "=" not in head else []


def _with_declared_defaults(text: str, name: str, parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    for match in re.finditer(rf"\b(?:struct|class)\s+{re.escape(name)}\s*;", text):
        declared = _parameters_before(text, match.start())
        if len(declared) == len(parameters):
            parameters = tuple(
                Parameter(own.name, own.default if own.default is not None else before.default)
                for own, before in zip(parameters, declared, strict=True)
            )
    return parameters


def constructor_parameters(template: Template) -> tuple[Parameter, ...] | None:
    """Returns the parameters of the longest constructor; None when no constructor takes any."""
    best: tuple[Parameter, ...] = ()
    for match in re.finditer(rf"\b{re.escape(template.name)}\s*\(", template.body):
        inside = _bracketed(template.body, match.end() - 1)
        if inside is not None:
            found = tuple(_parameter(part) for part in split_list(inside) if part)
            best = found if len(found) > len(best) else best
    return best or None


def split_list(text: str) -> list[str]:
    """Splits a list at commas outside brackets, and strips the parts."""
    parts, begin = [], 0
    for at in _outside(text, ","):
        parts.append(text[begin:at].strip())
        begin = at + 1
    parts.append(text[begin:].strip())
    return parts


def _outside(text: str, wanted: str) -> Iterator[int]:
    """Positions of a character outside brackets. Inside parentheses, < and > are comparisons."""
    angles, others = 0, 0
    for at, letter in enumerate(text):
        if letter in "([{":
            others += 1
        elif letter in ")]}":
            others -= 1
        elif letter in "<>" and not others:
            angles += 1 if letter == "<" else -1
        elif letter == wanted and not angles and not others:
            yield at


def _parameters_before(text: str, at: int) -> tuple[Parameter, ...]:
    """Returns the parameters of the `template <...>` that ends right before `at`; none for a plain class."""
    before = text[max(0, at - _LONGEST_LIST) : at].rstrip()
    if not before.endswith(">"):
        return ()
    depth, others = 0, 0
    for place in range(len(before) - 1, -1, -1):
        if before[place] in "()":
            others += 1 if before[place] == ")" else -1
        elif others:
            continue
        elif before[place] == ">":
            depth += 1
        elif before[place] == "<":
            depth -= 1
            if depth == 0:
                if not before[:place].rstrip().endswith("template"):
                    return ()
                return tuple(_parameter(part) for part in split_list(before[place + 1 : -1]) if part)
    return ()


def _parameter(text: str) -> Parameter:
    declared, default = _at_equals(text)
    match = _DECLARED.search(declared.strip())
    unnamed = match is None or match[1] in ("typename", "class", "bool", "int", "auto")
    return Parameter("" if unnamed or match is None else match[1], default)


def _at_equals(text: str) -> tuple[str, str | None]:
    for at in _outside(text, "="):
        return text[:at], text[at + 1 :].strip()
    return text, None


def _bracketed(text: str, at: int) -> str | None:
    """Returns the text between the bracket at a position and its closing bracket; None when it is not
    closed."""
    depth = 0
    for place in range(at, min(len(text), at + _LONGEST_LIST)):
        if text[place] in "([{":
            depth += 1
        elif text[place] in ")]}":
            depth -= 1
            if depth == 0:
                return text[at + 1 : place]
    return None


def _end_of_body(text: str, at: int) -> int:
    """Returns the position after the closing brace of a class or the semicolon of an alias."""
    depth = 0
    for place, letter in _braces(text, at):
        if letter == "{":
            depth += 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                return place + 1
        elif depth == 0:
            return place + 1
    return len(text)


def _braces(text: str, at: int) -> Iterator[tuple[int, str]]:
    for match in re.compile("[{};]").finditer(text, at):
        yield match.start(), match[0]
