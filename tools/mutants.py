"""`python -m tools.mutants`: which errors, made one at a time in judging, records and measuring, tests find.

Each mutant changes one comparison, operation, sign, number, condition or returned value of a room of the
package, in a copy of the checkout. The room's own fast tests judge it: those that run its line or, where none
does so in pytest's process, all of them. The sample stays: a mutant belongs to it by a hash of its text, so
an edit elsewhere does not choose another one.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tile_oracle.errors import HarnessError
from tools.command_line import run_tool

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("harness/tile_oracle")
ROOMS = ("judge", "record", "measure")
EQUIVALENT = Path(__file__).with_suffix(".toml")
_COPIED = ("harness", "tests")
"""Folders of the checkout that a copy has itself; the others are links."""
_SLOWEST_S = 400
_PRELOADED = ("hypothesis", "msgspec", "numpy", "pandas", "pyarrow.parquet", "scipy.stats")
_SWAPPED: dict[type[ast.AST], tuple[type[Any], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.And: (ast.Or,), ast.Or: (ast.And,),
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.USub: (ast.UAdd,), ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,), ast.FloorDiv: (ast.Mult,), ast.Mod: (ast.Mult,), ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,),
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: of the `place`-th node of the file (in the order of `ast.walk`), by its `way`-th change."""

    file: str
    function: str
    line: int
    before: str
    after: str
    place: int
    way: int

    @property
    def room(self) -> str:
        return self.file.split("/")[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}\n    {self.before}\n    {self.after}"

    def text(self, source: str) -> str:
        """Return the changed text of the file whose text is `source`."""
        tree = ast.parse(source)
        _put(*_changes(list(ast.walk(tree))[self.place])[self.way])
        return ast.unparse(tree)


def _changes(node: ast.AST) -> list[tuple[Any, Any, Any]]:
    """Return the changes of a node, each as an object, the field or index in it, and the new value."""
    match node:
        case ast.Compare(ops=ops):
            return [(ops, i, to()) for i, op in enumerate(ops) for to in _SWAPPED[type(op)]]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op) | ast.UnaryOp(op=ast.USub() as op):
            return [(node, "op", to()) for to in _SWAPPED.get(type(op), ())]
        case ast.Constant(value=bool() as value):
            return [(node, "value", not value)]
        case ast.Constant(value=int() | float() as value):
            return [(node, "value", value + 1)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return [(node, "operand", ast.UnaryOp(ast.Not(), operand))]
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            return [(node, "test", ast.UnaryOp(ast.Not(), test))]
        case ast.comprehension(ifs=[test, *_]):
            return [(node.ifs, 0, ast.UnaryOp(ast.Not(), test))]
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) not in ("None", "False"):
            return [(node, "value", ast.Constant(None))]
    return []


def _put(owner: Any, key: Any, value: Any) -> Any:
    """Put a value into a node's field or a list; return the old one."""
    old = owner[key] if isinstance(owner, list) else getattr(owner, key)
    owner.__setitem__(key, value) if isinstance(owner, list) else setattr(owner, key, value)
    return old


def mutants_of(file: str) -> Iterator[Mutant]:
    """Yield all mutants of a file below the package.

    Left out is what no result hangs on: annotations, decorators, assertions, `zip`'s check of lengths.
    """
    source = (ROOT / PACKAGE / file).read_text("utf-8")
    tree = ast.parse(source)
    places = {id(node): place for place, node in enumerate(ast.walk(tree))}

    def inside(node: ast.AST, statement: ast.AST, function: str) -> Iterator[Mutant]:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            function = f"{function}.{node.name}".lstrip(".")
        statement = node if isinstance(node, ast.stmt) else statement
        for way, (owner, key, value) in enumerate(_changes(node)):
            before = ast.unparse(statement).split("\n")
            original = _put(owner, key, value)
            after = ast.unparse(statement).split("\n")
            _put(owner, key, original)
            old, new = next(pair for pair in zip(before, after, strict=True) if pair[0] != pair[1])
            line = getattr(node, "lineno", getattr(statement, "lineno", 0))
            yield Mutant(file, function, line, old.strip(), new.strip(), places[id(node)], way)
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _left_out(name, child):
                    yield from inside(child, statement, function)

    yield from inside(tree, tree, "")


def _left_out(field: str, node: ast.AST) -> bool:
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    declared = field in ("annotation", "returns", "decorator_list") or isinstance(node, ast.Assert)
    return declared or (isinstance(node, ast.keyword) and node.arg == "strict")


def sample(count: int, seed: str) -> list[Mutant]:
    """Choose mutants: those with the least hashes of seed and text."""
    ranked, seen = [], Counter[str]()
    for room in ROOMS:
        for path in sorted((ROOT / PACKAGE / room).rglob("*.py")):
            for mutant in mutants_of(str(path.relative_to(ROOT / PACKAGE))):
                text = "\n".join((seed, mutant.file, mutant.function, mutant.before, mutant.after))
                seen[text] += 1
                ranked.append((hashlib.sha256(f"{text}\n{seen[text]}".encode()).hexdigest(), mutant))
    return sorted((mutant for _, mutant in sorted(ranked, key=lambda pair: pair[0])[:count]), key=str)


@dataclass(frozen=True)
class Task:
    """The named tests of a room (none: all), with a mutant or none. seconds: of each; empty: find out."""

    room: str
    mutant: Mutant | None = None
    tests: frozenset[str] = frozenset()
    seconds: Mapping[str, float] = field(default_factory=dict)


class _Lines:
    """Pytest plugin: which lines of the rooms each test runs, in this process, and how long it takes."""

    def __init__(self) -> None:
        self.tests: dict[str, set[str]] = {}
        self.seconds: dict[str, float] = defaultdict(float)
        self._now: str | None = None
        self._base = str(Path.cwd() / PACKAGE) + os.sep
        sys.settrace(self._enter)
        threading.settrace(self._enter)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._now = nodeid

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self._now = item.nodeid.split("::")[0]  # what is shared is put away after the last test

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Count what several tests share for all tests of the file."""
        test, shared = self._now, fixturedef.scope != "function"
        self._now = test.split("::")[0] if shared and test else test
        try:
            return (yield)
        finally:
            self._now = test

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(self._base) else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if self._now is not None:
            place = f"{frame.f_code.co_filename.removeprefix(self._base)}:{frame.f_lineno}"
            self.tests.setdefault(place, set()).add(self._now)
        return self._line


class _Chosen:
    """Pytest plugin: leaves the other tests out, and runs files with short ones first."""

    def __init__(self, tests: frozenset[str], seconds: Mapping[str, float]) -> None:
        self.tests, self.seconds = tests, seconds

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if self.tests & {item.nodeid, item.nodeid.split("::")[0], ""}]
        of_file = Counter[str]()
        for item in chosen:
            of_file[item.nodeid.split("::")[0]] += int(1e6 * self.seconds.get(item.nodeid, 0))
        items[:] = sorted(chosen, key=lambda item: of_file[item.nodeid.split("::")[0]])


class Runner:
    """Runs tests in copies of the checkout, each in a forked process that has the libraries loaded."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._free = [folder / str(job) for job in range(jobs)]
        self._stamp = 2_000_000_000  # s: no two texts of a file have the same time, so no bytecode is stale
        for copy in self._free:
            for name in _COPIED:
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            for path in ROOT.iterdir():
                if path.name not in _COPIED and not path.name.startswith("."):
                    (copy / path.name).symlink_to(path)
        for name in _PRELOADED:
            importlib.import_module(name)

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, bool, Path]]:
        """Run tasks; yield, as they end, each one, whether all tests passed, and the copy where they ran."""
        waiting, running = list(tasks), dict[int, tuple[Task, Path, str]]()
        while waiting or running:
            if waiting and self._free:
                task, copy = waiting.pop(0), self._free.pop(0)
                original = ""
                if task.mutant is not None:
                    original = (copy / PACKAGE / task.mutant.file).read_text("utf-8")
                    self._write(copy / PACKAGE / task.mutant.file, task.mutant.text(original))
                sys.stdout.flush()
                if not (process := os.fork()):
                    os._exit(_in_fork(copy, task))
                running[process] = task, copy, original
                continue
            process, status = os.waitpid(-1, 0)
            task, copy, original = running.pop(process)
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            if task.mutant is not None:
                self._write(copy / PACKAGE / task.mutant.file, original)
            if os.waitstatus_to_exitcode(status) == pytest.ExitCode.NO_TESTS_COLLECTED:
                raise HarnessError(f"no test was run: {task}")
            yield task, status == 0, copy
            self._free.append(copy)

    def _write(self, file: Path, text: str) -> None:
        self._stamp += 2
        file.write_text(text, "utf-8")
        os.utime(file, (self._stamp, self._stamp))


def _in_fork(copy: Path, task: Task) -> int:
    """Run the tests of a task in a copy; return pytest's status."""
    os.setsid()
    signal.alarm(_SLOWEST_S)
    os.chdir(copy)
    shutil.rmtree(copy / ".hypothesis", ignore_errors=True)  # examples that failed with other mutants
    os.environ["PYTHONPATH"] = f"{copy}/harness:{copy}"
    for name in [name for name in sys.modules if name.split(".")[0] in ("tile_oracle", "tools")]:
        del sys.modules[name]  # the checkout's own
    elsewhere = [path for path in sys.path if path not in ("", str(ROOT), f"{ROOT}/harness")]
    sys.path[:] = [f"{copy}/harness", str(copy), *elsewhere]
    printed = os.open("printed", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    files = sorted({test.split("::")[0] for test in task.tests}) or [f"tests/{task.room}"]
    words = f"-n0 -p no:cacheprovider -q --tb=line -x --hypothesis-seed=0 {' '.join(files)} -m".split()
    words.append("not slow")
    if task.seconds:
        return int(pytest.main(words, plugins=[_Chosen(task.tests or frozenset({""}), task.seconds)]))
    status = pytest.main(words, plugins=[lines := _Lines()])
    sys.settrace(None)
    found = {place: sorted(tests) for place, tests in lines.tests.items()}
    Path("lines.json").write_text(json.dumps({"lines": found, "seconds": lines.seconds}), "utf-8")
    return int(status)


def _judge(mutants: Sequence[Mutant], jobs: int) -> Iterator[tuple[Mutant, str]]:
    """Yield each mutant with the first test that failed, or with "" where all passed."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        runner = Runner(Path(folder), jobs)
        known: dict[str, Any] = {}
        for task, passed, copy in runner.run([Task(room) for room in sorted({one.room for one in mutants})]):
            if not passed:
                raise HarnessError(f"the tests of {task.room} fail without a mutant:\n{_end(copy)}")
            known[task.room] = json.loads((copy / "lines.json").read_text("utf-8"))
        tasks = [Task(room, seconds=found["seconds"]) for room, found in known.items()]
        for one in mutants:
            tests = known[one.room]["lines"].get(f"{one.file}:{one.line}", ())
            tasks.append(Task(one.room, one, frozenset(tests), known[one.room]["seconds"]))
        for task, passed, copy in runner.run(tasks):
            if task.mutant:
                yield task.mutant, "" if passed else _end(copy)
            elif not passed:
                raise HarnessError(f"the tests of {task.room} fail in another order:\n{_end(copy)}")


def _end(copy: Path) -> str:
    """Return the line that names the failed test, or the last one that was printed."""
    printed = (copy / "printed").read_text("utf-8", "replace").strip().splitlines() or ["nothing was printed"]
    return next((line for line in printed if line.startswith(("FAILED", "ERROR"))), printed[-1])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--count", type=int, default=300, help="number of mutants in the sample")
    parser.add_argument("--seed", default="1", help="chooses the sample")
    parser.add_argument("--rooms", nargs="+", default=ROOMS, choices=ROOMS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tests run at the same time")
    parser.add_argument("--least", type=float, default=90.0, metavar="PERCENT", help="the least killed share")


def run(options: argparse.Namespace) -> int:
    """Print the survivors and the killed share; return 1 if it is too small."""
    chosen = [one for one in sample(options.count, options.seed) if one.room in options.rooms]
    listed = tomllib.loads(EQUIVALENT.read_text("utf-8"))["equivalent"]
    equal = {(one["in"], one["before"], one["after"]) for one in listed}
    judged = [one for one in chosen if (f"{one.file} {one.function}", one.before, one.after) not in equal]
    totals = {room: Counter[str]() for room in options.rooms}
    for mutant, killer in _judge(judged, options.jobs):
        totals[mutant.room]["killed" if killer else "survived"] += 1
        print(f"killed   {mutant}\n    {killer}" if killer else f"SURVIVED {mutant}", flush=True)
    for room, counts in totals.items():
        print(f"{room}: {counts['killed']} of {counts.total()} killed")
    killed, survived = (sum(counts[name] for counts in totals.values()) for name in ("killed", "survived"))
    share = 100 * killed / max(killed + survived, 1)
    print(f"{len(chosen)} mutants, {len(chosen) - len(judged)} of them equivalent: {survived} survived")
    print(f"{share:.1f} % killed; {options.least:g} % are asked for")
    return int(share < options.least)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    return run_tool("mutants", add_arguments, run, words)


if __name__ == "__main__":
    raise SystemExit(main())
