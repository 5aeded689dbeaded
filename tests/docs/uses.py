"""What is done with the kernels of one operation and source, each use as a user types it.

`python -m tests.docs.uses OPERATION SOURCE FOLDER [USE ...]` does all of them in a folder, and prints as JSON
use -> "works" or the last line that was printed. Kernels of rules are measured on this CPU. Those of other
sources need a GPU, so their records are made up: commands cannot tell them from measured ones.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pandas as pd

from tests.made_records import made_row, made_table
from tests.pytest_project import SHORTLY, Project
from tile_oracle.cli import main
from tile_oracle.exploration import tune_rounds
from tile_oracle.kernel import Kernel, NamedKernel
from tile_oracle.operation import Kind
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.record.dataset_file import write_dataset

NATIVE, CK_TILE, TRITON, LIBRARY = SOURCES = ("native", "CK Tile", "Triton", "library")
OPERATIONS = ("grouped_conv", "gemm", "attention", "softmax", "row_softmax")
WORKS = "works"
_TRAIN, _JUDGE, _SET = "train.parquet", "judge.parquet", "shapes.csv"
_MODEL = "models/mine"
_FEW = 6

_SIZES = (
    *((4, 16), (8, 64), (16, 100), (3, 128), (20, 40), (32, 32), (5, 80), (9, 24)),
    *((12, 96), (7, 48), (10, 20), (6, 72)),
)


def _ids(op: str, dtype: str) -> list[str]:
    """Small problems, of which the last four judge."""
    forms = {
        "grouped_conv": "forward-{dtype}-n1-c{b}-k{a}-i9x9-f1x1",
        "gemm": "gemm-{dtype}-rcr-m{a}-n{b}-k64",
        "attention": "attention-{dtype}-b1-h1-g1-q{a}-k{b}-d64",
        "softmax": "softmax-{dtype}-r{a}-c{b}",
        "row_softmax": "row_softmax-{dtype}-r{a}-c{b}",
    }
    return [forms[op].format(dtype=dtype, a=a, b=b) for a, b in _SIZES]


@dataclass(frozen=True)
class Column:
    """An operation and a source of its kernels."""

    op: str
    source: str
    project: Project

    @property
    def measured(self) -> bool:
        """Whether its kernels run on this CPU."""
        return self.source == NATIVE

    @property
    def arch(self) -> str:
        return {NATIVE: "cpu", CK_TILE: "gfx950"}.get(self.source, "sm_90")

    @property
    def kernel_set(self) -> str:
        """The least that has three kernels: those of a CPU are compiled."""
        return "tiny" if self.op in ("grouped_conv", "gemm") and self.measured else "default"

    @cached_property
    def problems(self) -> list[Problem]:
        dtype = "fp32" if self.measured and self.op != "attention" else "bf16"
        return [problem_from_id(text) for text in _ids(self.op, dtype)]

    @property
    def judged(self) -> list[Problem]:
        return self.problems[-4:]

    @property
    def kind(self) -> Kind:
        return self.problems[0].kind

    @cached_property
    def kernels(self) -> Sequence[Kernel]:
        if self.source in (NATIVE, CK_TILE):
            return pool_of_kind(self.kind, self.arch, self.kernel_set)[:_FEW]
        library = {"gemm": "cublaslt"}.get(self.op, "cudnn")
        if self.source == LIBRARY:
            return [NamedKernel(self.kind, library, "a66", (("tile", tile),)) for tile in range(_FEW)]
        return [
            NamedKernel(self.kind, "triton", "mine", (("BLOCK_M", 16 << place), ("num_warps", 4)))
            for place in range(_FEW)
        ]

    @property
    def file(self) -> str:
        """The model's problem, for commands that take one."""
        return self.judged[0].id

    def rows(self, problems: Sequence[Problem]) -> pd.DataFrame:
        """Every pair once; a time that its name decides."""
        implementation = {CK_TILE: "ck_tile", TRITON: "triton"}.get(self.source, "cublaslt")
        rows = []
        for problem in problems:
            for kernel in self.kernels:
                share = zlib.crc32(f"{problem.id}{kernel.name}".encode()) / 2**32
                latency_ms = 0.002 * (1 + share) + problem.flops / 1e11
                own = {"samples": 10, "implementation": implementation, "detail": "", "spread": 0.001}
                rows.append(made_row(problem, kernel, latency_ms, self.arch, **own))
        return made_table(rows, self.op).assign(device="Made-up Accelerator")

    def prepare(self) -> None:
        """Writes the problem set and the records."""
        self.project.problem_set(_SET, tuple(problem.id for problem in self.judged))
        if self.measured:
            self.project.problem_set("train.csv", tuple(problem.id for problem in self.problems[:-4]))
            self.measure("train.csv", "train")
            records = pd.read_parquet(self.project.folder / "reports/train/measurements")
            write_dataset(records, self.project.folder / _TRAIN)
            return
        write_dataset(self.rows(self.problems[:-4]), self.project.folder / _TRAIN)
        write_dataset(self.rows(self.judged), self.project.folder / _JUDGE)

    def measure(self, problem_set: str, name: str, *more: str) -> str:
        """A session of the kernels on this CPU."""
        own = ("--target=cpu", f"--kernel-set={self.kernel_set}", "--model=none", f"--run-name={name}")
        return self.run(problem_set, *own, *SHORTLY, *more, statuses=(10, 11, 0))

    def run(self, problem_set: str, *more: str, statuses: Sequence[int]) -> str:
        """A session; its output. Fails for another status than these."""
        done = self.project.pytest("--problem-set", problem_set, *more)
        if done.status not in statuses:
            raise Failed(done.output)
        return done.output

    def replay(self, name: str, *more: str, statuses: Sequence[int]) -> str:
        words = (f"--oracle={_judging(self)}", "--model", _MODEL, f"--run-name={name}", *more)
        return self.run(_SET, *words, statuses=statuses)


class Failed(Exception):
    """A use that does not work. Its text is what was printed."""


def command(*words: str) -> str:
    """`tile-oracle WORDS`; what it prints. Raises Failed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(words))
    if status not in ((0, 1, 11, 13) if words[1] == "compare" else (0,)):
        raise Failed(err.getvalue() or out.getvalue())
    return out.getvalue()


# ---- uses: a measuring machine ------------------------------------------------------------------------


def session(column: Column) -> None:
    column.measure(_SET, "live")


def two_workers(column: Column) -> None:
    column.measure(_SET, "two", "-n2")


def resumed(column: Column) -> None:
    assert "(resumed)" in column.measure(_SET, "live", "--resume", "-v")


def cold_start(column: Column) -> None:
    words = ("--target", "cpu", "--kernel-set", "tiny", "--budget", "10m", "--quiet")
    # The first round takes longer than the budget, by this clock.
    with mock.patch.object(tune_rounds, "time", SimpleNamespace(monotonic=itertools.count(0, 700).__next__)):
        command("tune", "--problem-set", _SET, *words)


def kit(column: Column) -> None:
    command("build", "-o", "built", "--kernel-set", "tiny", "--problem-set", _SET)
    words = ("--kernels=native=built", *SHORTLY, "--model=none", "--run-name=kit")
    column.run(_SET, "--target=cpu", *words, statuses=(10, 11, 0))


def drift(column: Column) -> None:
    command("pool", "list", "--diff", "built", "built")


# ---- uses: records ------------------------------------------------------------------------------------


def trains(column: Column) -> None:
    recipe = "log_time" if column.source in (NATIVE, CK_TILE) else "lambdarank"
    command("model", "train", _TRAIN, "-o", _MODEL, "--folds", "2", "--recipe", recipe, "--quiet")


def replays(column: Column) -> None:
    column.replay("first", "--update-baseline", statuses=(0,))


def gates(column: Column) -> None:
    assert "verdict passed" in column.replay("second", statuses=(0,))


def drills_down(column: Column) -> None:
    page = (column.project.folder / "reports/second/report.html").read_text()
    for problem in column.judged:
        assert problem.id in page
    assert any(one.short_name in page for one in column.kernels)


def evaluates(column: Column) -> None:
    assert "4 of 4 problems" in command("model", "evaluate", _MODEL, _judging(column))


def adapts(column: Column) -> None:
    command("model", "train", _TRAIN, "-o", "models/adapted", "--adapt", _MODEL, "--quiet")


def suggests(column: Column) -> None:
    words = ("--problem-set", _SET, "--budget", "3")
    assert column.judged[0].op in command("runs", "suggest", _TRAIN, *words)
    assert "kernel" in command("runs", "suggest", _TRAIN, "--model", _MODEL, *words)


def searches(column: Column) -> None:
    words = ("--arch", column.arch, "--budget", "20", "--top", "1")
    found = command("pick", column.file, "--search", "--model", _MODEL, *words)
    if column.source in (TRITON, LIBRARY) and not any(f"_{word}." in found for word in ("triton", "cudnn")):
        raise Failed("only kernels of rules are proposed")


def portfolio(column: Column) -> None:
    command("pool", "portfolio", _TRAIN, "-o", "few.json", "--sizes", "2")
    assert json.loads((column.project.folder / "few.json").read_text())["kernels"]


def predicts(column: Column) -> None:
    words = ("--predictions", "--model", _MODEL, *_names(column))
    document = json.loads(command("pick", column.file, *words, "--json"))
    assert {pick["kernel"] for pick in document["picks"]} == {one.name for one in column.kernels}


def picks(column: Column) -> None:
    _picked(column, "python")


def picks_natively(column: Column) -> None:
    assert _picked(column, "native") == _picked(column, "python")


def _picked(column: Column, engine: str) -> str:
    words = ("--arch", column.arch, "--model", _MODEL, "--engine", engine, *_names(column), "--json")
    document = json.loads(command("pick", column.file, *words))
    assert document["engine"] == engine
    return str(document["picks"][0]["kernel"])


def exports(column: Column) -> None:
    command("model", "export", _MODEL, "-o", "selector", *_names(column))
    assert list((column.project.folder / "selector").glob("*.selector"))


def compares(column: Column) -> None:
    command("runs", "compare", "reports/first", "reports/second", "--markdown", "compare.md")
    command("runs", "compare", _MODEL, "models/adapted", "--records", _judging(column))


def history(column: Column) -> None:
    command("runs", "history", "reports", "-o", "history.html")
    assert Path("history.html").is_file()


def _judging(column: Column) -> str:
    return "reports/live" if column.measured else _JUDGE


def _names(column: Column) -> tuple[str, str]:
    Path("names.txt").write_text("".join(f"{one.name}\n" for one in column.kernels))
    return ("--kernels", "names.txt")


ON_DEVICE: dict[str, Callable[[Column], None]] = {
    "session": session,
    "`-n 2`": two_workers,
    "resume": resumed,
    "kit (prebuilt)": kit,
    "drift (`--diff`)": drift,
}
"""Use -> what does it, in this order; each needs a device or a compiler."""

FROM_RECORDS: dict[str, Callable[[Column], None]] = {
    "train": trains,
    "replay": replays,
    "gate": gates,
    "report's drill-down": drills_down,
    "evaluate": evaluates,
    "adapt": adapts,
    "suggest": suggests,
    "search": searches,
    "portfolio": portfolio,
    "`pick --predictions`": predicts,
    "pick": picks,
    "export to C++": exports,
    "native pick": picks_natively,
    "compare": compares,
    "history": history,
}
"""Use -> what does it with records, in this order."""

AFTER: dict[str, Callable[[Column], None]] = {"cold start (`tune`)": cold_start}
"""Those that need a device, and come last."""


def done(column: Column, only: Sequence[str] = ()) -> dict[str, str]:
    """Use -> "works", or the last line that it printed. only: these uses; none: all."""
    column.prepare()
    device = {**ON_DEVICE, **FROM_RECORDS, **AFTER}
    found = {}
    for name, use in (device if column.measured else FROM_RECORDS).items():
        if only and name not in only:
            continue
        try:
            use(column)
            found[name] = WORKS
        except Failed as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            found[name] = lines[-1] if lines else "no output"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
        print(name, found[name], file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    of_op, of_source, place, *chosen = sys.argv[1:]
    made = Project(Path(place), Path(place) / "cache")
    os.chdir(place)
    print(json.dumps(done(Column(of_op, of_source, made), chosen)))
