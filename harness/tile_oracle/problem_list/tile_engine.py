"""Reads tile_engine's Python lists of problems: `NAME = [GroupedConvProblem(N=1, ...), ...]`.

The file is parsed but not executed. Supported are lists of calls with integers, `+`, `+=`, `append`,
`extend`, slices with integers, names of earlier lists, and `from MODULE import NAME` of a file in the same
folder. A loop or a comprehension that makes problems is an error with its line. Positions and defaults of
arguments are those of tile_engine's GroupedConvProblem. It has no data type: problems are bf16.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tile_oracle.errors import ProblemError, ProblemSetError
from tile_oracle.files.user_file import open_regular
from tile_oracle.foreign.list_file import ListFile, quoted
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

MAX_SOURCE_BYTES = 8 * 2**20
MAX_PROBLEMS = 1_000_000

_CALL = "GroupedConvProblem"
_ARGUMENTS: Mapping[str, int | str] = {
    "N": 1, "C": 64, "K": 128, "G": 1, "Hi": 28, "Wi": 28, "Di": 1, "Y": 3, "X": 3, "Z": 1,
    "stride_h": 1, "stride_w": 1, "stride_d": 1, "pad_h": 0, "pad_w": 0, "pad_d": 0,
    "dilation_h": 1, "dilation_w": 1, "dilation_d": 1, "direction": "forward", "split_k": 1,
}  # fmt: skip
"""Arguments in positional order, with their defaults."""
_MAX_IMPORTS = 8


@dataclass(frozen=True)
class _Listed:
    problem: GroupedConvProblem
    source: str


_Lists = dict[str, list[_Listed]]


def engine_problems(file: ListFile, name: str | None = None) -> Iterator[tuple[GroupedConvProblem, str]]:
    """Yields the problems of all lists that the file itself defines, or of the list `name`, with file and
    line as the source. Raises ProblemSetError."""
    module = _Module(file, _MAX_IMPORTS)
    lists = module.read()
    if name is not None and name not in lists:
        known = ", ".join(lists) or "none"
        raise file.error(f"there is no list of problems {quoted(name)}; known are: {known[:500]}", 0)
    chosen = [name] if name is not None else list(module.own)
    if not any(lists[one] for one in chosen):
        raise file.error(
            f"no list of {_CALL}(...) at the top level; write NAME = [{_CALL}(N=1, ...), ...]", 0
        )
    for one in chosen:
        file.line = module.line_of[one]
        for listed in lists[one]:
            yield listed.problem, listed.source


class _Module:
    """The lists of one file. own: those that the file itself defines or changes; line_of: name -> line."""

    def __init__(self, file: ListFile, imports_left: int) -> None:
        self._file = file
        self._imports_left = imports_left
        self._lists: _Lists = {}
        self.own: dict[str, None] = {}
        self.line_of: dict[str, int] = {}

    def read(self) -> _Lists:
        text = self._text()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # SyntaxWarnings of a file that is not run
                tree = ast.parse(text)
            for statement in tree.body:
                self._statement(statement)
        except SyntaxError as error:
            raise self._file.error(f"not Python: {error.msg}", error.lineno or 0) from None
        except (RecursionError, MemoryError):
            raise self._file.error("nested too deeply for a list of problems", 0) from None
        except ValueError as error:
            raise self._file.error(f"not Python: {error}", 0) from None
        return self._lists

    def _text(self) -> str:
        size, lines = 0, []
        for line in self._file.lines():
            size += len(line) + 1
            if size > MAX_SOURCE_BYTES:
                raise self._file.error(f"more than {MAX_SOURCE_BYTES // 2**20} MiB: split the file")
            lines.append(line)
        return "\n".join(lines) + "\n"

    # ---- statements -------------------------------------------------------------------------

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Import() | ast.Assert():
                return
            case ast.ImportFrom():
                self._import(node)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._assign(name, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                self._assign(name, value)
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value) if name in self._lists:
                self._extend(name, self._problems(value), node)
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" as method),
                    args=[value],
                    keywords=[],
                )
            ) if name in self._lists:
                added = [self._problem(value)] if method == "append" else self._problems(value)
                self._extend(name, added, node)
            case _:
                self._refuse_unread(node)

    def _assign(self, name: str, value: ast.expr) -> None:
        if not self._makes_problems(value):
            empty = isinstance(value, ast.List) and not value.elts
            if not empty:
                self._refuse_unread(value)
                self._lists.pop(name, None)
                self.own.pop(name, None)
                return
        made = self._problems(value)
        self._lists[name] = []
        self._extend(name, made, value)

    def _extend(self, name: str, added: list[_Listed], node: ast.AST) -> None:
        self._lists[name] = self._joined(self._lists[name], added, node)
        self.own[name] = None
        self.line_of.setdefault(name, _line(node))

    def _import(self, node: ast.ImportFrom) -> None:
        """Reads lists from a file in the same folder; other imports are ignored."""
        names = [alias for alias in node.names if alias.name != _CALL]
        if node.level > 1 or not (node.module or "").isidentifier() or not names:
            return
        path = self._file.path.with_name(f"{node.module}.py")
        if not path.is_file():
            return
        if not self._imports_left:
            raise self._file.error("circular imports, or too many imported files", node.lineno)
        try:
            with open_regular(path) as opened:
                beside = ListFile(opened, path, f"{self._file.shown}:{node.lineno}: {path.name}")
                lists = _Module(beside, self._imports_left - 1).read()
        except OSError as error:
            raise self._file.error(f"{path.name} cannot be read: {error.strerror}", node.lineno) from None
        self._file.sha256.update(beside.sha256.digest())
        for alias in names:
            if alias.name in lists:
                self._lists[alias.asname or alias.name] = lists[alias.name]
                self.line_of[alias.asname or alias.name] = node.lineno

    def _makes_problems(self, node: ast.AST) -> bool:
        return any(
            (isinstance(part, ast.Name) and (part.id == _CALL or part.id in self._lists))
            or (isinstance(part, ast.Attribute) and part.attr == _CALL)
            for part in ast.walk(node)
        )

    def _refuse_unread(self, node: ast.stmt | ast.expr) -> None:
        """Raises ProblemSetError for code that would make problems or change a list if it were executed."""
        if isinstance(node, ast.If) and "__name__" in ast.dump(node.test):
            return
        for part in ast.walk(node):
            called = part.func if isinstance(part, ast.Call) else None
            makes = isinstance(called, ast.Name) and called.id == _CALL
            makes |= isinstance(called, ast.Attribute) and called.attr == _CALL
            changes = (
                isinstance(called, ast.Attribute)
                and called.attr in ("append", "extend", "insert", "remove", "pop", "clear")
                and isinstance(called.value, ast.Name)
                and called.value.id in self._lists
            )
            if makes or changes:
                raise self._computed(part)

    def _computed(self, node: ast.AST) -> ProblemSetError:
        return self._file.error(
            f"problems computed by code, which is not executed; write every {_CALL}(...) out in a list, "
            "or save the list as CSV",
            _line(node),
        )

    # ---- expressions ------------------------------------------------------------------------

    def _problems(self, node: ast.expr) -> list[_Listed]:
        match node:
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                found: list[_Listed] = []
                for element in elements:
                    if isinstance(element, ast.Starred):
                        found = self._joined(found, self._problems(element.value), element)
                    else:
                        found.append(self._problem(element))
                return found
            case ast.Name(id=name) if name in self._lists:
                return self._lists[name]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._joined(self._problems(left), self._problems(right), node)
            case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=None)):
                return self._problems(value)[self._bound(lower) : self._bound(upper)]
        raise self._computed(node)

    def _joined(self, one: list[_Listed], other: list[_Listed], node: ast.AST) -> list[_Listed]:
        # A few lines could double a list until memory is full.
        if len(one) + len(other) > MAX_PROBLEMS:
            raise self._file.error(f"more than {MAX_PROBLEMS:,} problems: split the list", _line(node))
        return one + other

    def _bound(self, node: ast.expr | None) -> int | None:
        if node is None:
            return None
        value = _constant(node)
        if type(value) is not int:
            raise self._computed(node)
        return value

    def _problem(self, node: ast.expr) -> _Listed:
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name == _CALL:
                line = _line(node)
                try:
                    problem = _problem(self._arguments(node))
                except ProblemError as error:
                    raise self._file.error(str(error)[:300], line) from None
                return _Listed(problem, f"{self._file.path.name}:{line}")
        raise self._file.error(f"an element of the list is not a {_CALL}(...) call", _line(node))

    def _arguments(self, call: ast.Call) -> dict[str, Any]:
        """Raises ProblemError."""
        if len(call.args) > len(_ARGUMENTS):
            raise ProblemError(f"{_CALL} takes {len(_ARGUMENTS)} arguments, not {len(call.args)}")
        named = [
            *zip(_ARGUMENTS, call.args, strict=False),
            *((word.arg or "**", word.value) for word in call.keywords),
        ]
        given: dict[str, Any] = {}
        for name, node in named:
            if name not in _ARGUMENTS:
                raise ProblemError(
                    f"{_CALL} has no argument {quoted(name)}; known are {', '.join(_ARGUMENTS)}"
                )
            if name in given:
                raise ProblemError(f"{name} is given twice; remove one")
            value = _constant(node)
            if type(value) is not type(_ARGUMENTS[name]):
                wanted = "an integer" if name != "direction" else '"forward", "bwd_data" or "bwd_weight"'
                raise ProblemError(f"{name} is not written as {wanted}; the file is not executed")
            if isinstance(value, int) and abs(value) >= 1 << 63:  # too long for a message
                raise ProblemError(f"{name} is not an integer of 64 bits")
            given[name] = value
        return given


def _constant(node: ast.expr) -> object:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return -value
    return None


def _problem(given: Mapping[str, Any]) -> GroupedConvProblem:
    """Raises ProblemError."""
    values: dict[str, Any] = {**_ARGUMENTS, **given}
    if values.pop("split_k") != 1:
        raise ProblemError("split_k is part of a kernel here; leave it out")
    depth = tuple(values[name] for name in ("Di", "Z", "stride_d", "pad_d", "dilation_d"))
    return GroupedConvProblem(dtype="bf16", ndim=2 if depth == (1, 1, 1, 0, 1) else 3, **values)


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))
