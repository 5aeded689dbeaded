"""`--json` of every command that prints a table: JSON alone on stdout, and the exit status of the text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.made_records import make_problems
from tests.pytest_project import Project
from tests.session.recorded import SET, Recorded, make_recorded, records_of
from tile_oracle.cli import main
from tile_oracle.commands.arguments import json_text
from tile_oracle.commands.table import COMMANDS, called_today, named_command
from tile_oracle.record.dataset_file import write_dataset

WITHOUT_TABLE = {"build", "night", "runs import"}
"""Their output is files, text, and lines about the work."""

PROBLEM = "forward-bf16-n1-c64-k64-i56x56-f3x3-p1"
KERNEL = "grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave"


@dataclass(frozen=True)
class Case:
    """words: the command line. has: keys of the document, or of its parts. lines: one object a line."""

    words: str
    has: str = ""
    lines: bool = False

    def __str__(self) -> str:
        return self.words


FAST = [
    Case("doctor", "targets installation containment auto"),
    Case("merge measured.parquet -o merged.parquet", "file bytes summary"),
    Case("oracle measured.parquet -o oracle.parquet", "file bytes summary"),
    Case("problems", "set problems gflop sha256"),
    Case("problems forward_smoke", "set listed slices"),
    Case("kernels --op gemm --kernel-set tiny", "kernel_set kinds"),
    Case("kernels --arch gfx950 --kernel-set tiny --direction forward --dtype bf16 --ndim 2 --list", "kinds"),
    Case(f"kernels {KERNEL}", "kernel fields archs"),
    Case("history reports"),
    Case("features", "schema operation columns"),
    Case("features grouped_conv_97", "name meaning"),
    Case("portfolio measured.parquet --sizes 1,2"),
    Case("evaluate models/made_up measured.parquet"),
    Case("compare measured.parquet measured.parquet"),
    Case(
        "compare models/made_up models/made_up --records measured.parquet",
        "picks_changed efficiency_percent verdict",
    ),
    Case("suggest part.parquet --model models/made_up --budget 3", "problem kernel rank"),
    Case(f"search {PROBLEM} --model models/made_up --budget 40 --top 2", "problem picks", lines=True),
    Case(f"predict {PROBLEM} --model models/made_up --top 2", "problem picks", lines=True),
    Case(f"pick {PROBLEM} --arch gfx950 --model models/made_up", "problem picks", lines=True),
]
SLOW = [
    Case(
        "train measured.parquet -o models/new --recipe log_time --folds 2", "cross_validation manifest folder"
    ),
    Case(f"model parity models/made_up {PROBLEM} --kernels a.txt", "problems passed"),
    Case(
        "tune forward-fp32-n1-c16-k16-i9x9-f3x3-p1 --target cpu --kernel-set tiny --budget 5m",
        "problem kernel measured",
        lines=True,
    ),
]


@pytest.fixture(scope="module")
def recorded(make_project: Callable[[], Project]) -> Recorded:
    found = make_recorded(make_project())
    folder = found.project.folder
    done = found.project.pytest("--problem-set", SET, "--target", "replay", "--run-name=one")
    assert done.status == 10, done.output
    others = records_of([p for p in make_problems(40, seed=9) if p not in found.problems], found.kernels)
    write_dataset(others, folder / "other.parquet")
    write_dataset(found.records.iloc[:-3], folder / "part.parquet")
    (folder / "a.txt").write_text(f"{KERNEL}\n")
    (folder / "kernels").mkdir()
    return found


def check(
    case: Case, recorded: Recorded, capsys: pytest.CaptureFixture[str], where: pytest.MonkeyPatch
) -> None:
    where.chdir(recorded.project.folder)
    capsys.readouterr()
    status = main(case.words.split())
    assert status in (0, 1)
    assert capsys.readouterr().out
    assert main([*case.words.split(), "--json"]) == status
    out = capsys.readouterr().out
    found = [json.loads(line) for line in out.splitlines()] if case.lines else json.loads(out)
    assert found
    for part in found if isinstance(found, list) else [found]:
        assert set(case.has.split()) <= part.keys()


@pytest.mark.parametrize("case", FAST, ids=str)
def test_json_goes_to_stdout_alone(
    case: Case, recorded: Recorded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(case, recorded, capsys, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW, ids=str)
def test_json_of_commands_that_train(
    case: Case, recorded: Recorded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(case, recorded, capsys, monkeypatch)


def test_every_command_with_a_table_is_tested() -> None:
    tested = [named_command(called_today(case.words.split())) for case in (*FAST, *SLOW)]
    assert {one.name for one in tested if one} | WITHOUT_TABLE == set(COMMANDS)
    for one in filter(None, tested):
        assert any("--json" in argument.names for argument in one.load().ARGUMENTS), one.name


@pytest.mark.parametrize("words", ["evaluate models/made_up measured.parquet", "portfolio measured.parquet"])
def test_json_in_a_file_leaves_the_text(
    words: str, recorded: Recorded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recorded.project.folder)
    main([*words.split(), "--json", "some/found.json"])
    assert "%" in capsys.readouterr().out
    assert json.loads(Path("some/found.json").read_text())
    Path("a_file").write_text("")
    assert main([*words.split(), "--json", "a_file/found.json"]) == 2
    assert "cannot write a_file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "runs compare old new --markdown",
        "runs compare old new --records all --pairs",
        "runs history reports -o",
        "runs merge measured -o",
        "runs import measured.csv --arch cpu -o",
        "runs suggest measured --csv",
        "pool portfolio measured -o",
        "pool list --arch cpu -o",
        "problems forward_smoke -o",
        "model train measured -o",
        "model export mine -o",
        "tune --from-records measured -o",
        "build --arch cpu -o",
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_anything_is_read(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a_file").write_text("")
    ending = {"pool": "json", "problems": "csv"}.get(words.split()[0], "parquet")
    assert main([*words.split(), f"{tmp_path}/a_file/result.{ending}"]) == 2
    assert f"cannot write {tmp_path}/a_file/result.{ending}: " in capsys.readouterr().err


def test_numbers_that_json_lacks_are_null() -> None:
    document = {"nan": math.nan, "inf": np.float64("inf"), "some": (np.int64(3), Path("a"), {"b"}, True)}
    assert json.loads(json_text(document)) == {"nan": None, "inf": None, "some": [3, "a", ["b"], True]}
