"""Records as problem sets."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from tile_oracle.errors import ProblemSetError
from tile_oracle.problem_set import load_problem_set

IDS = ("forward-bf16-n1-c8-k8-i9x9-f3x3", "bwd_data-fp16-n2-c8-k8-i9x9-f3x3")


def write(path: Path, **columns: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(columns).to_parquet(path)
    return path


def test_a_file_and_a_run_s_folder(tmp_path: Path) -> None:
    file = write(tmp_path / "all.parquet", problem=[IDS[0], IDS[0], IDS[1]])
    write(tmp_path / "run.1" / "measurements" / "part-1.parquet", problem=[IDS[0]])
    write(tmp_path / "run.1" / "measurements" / "part-2.parquet", problem=IDS)
    of_file, of_run = load_problem_set(file), load_problem_set(tmp_path / "run.1")
    assert tuple(problem.id for problem in of_file.problems) == IDS
    assert of_run.problems == of_file.problems
    assert of_run.sha256 == of_file.sha256
    assert (of_file.name, of_run.name) == ("all", "run.1")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"kernel": ["a"]}, "no column problem: these are no records; `tile-oracle runs import` makes"),
        ({"problem": ["conv"]}, "'conv' is not a problem id"),
        ({"problem": [None]}, "'None' is not a problem id"),
        ({"problem": [IDS[0].replace("c8", "c" + "8" * 4301)]}, "(a record's problem)"),
        ({"problem": [7]}, "'7' is not"),
        ({"problem": []}, "no problem in it"),
    ],
)
def test_files_that_are_not_records(tmp_path: Path, columns: dict[str, list[object]], message: str) -> None:
    with pytest.raises(ProblemSetError) as caught:
        load_problem_set(write(tmp_path / "all.parquet", **columns))
    assert message in str(caught.value)
    assert "all.parquet: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_parquet(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("N,C,K")
    os.mkfifo(tmp_path / "pipe.parquet")
    for name, message in (("text", "text.parquet is not parquet"), ("pipe", "is not a regular file")):
        with pytest.raises(ProblemSetError, match=message):
            load_problem_set(tmp_path / f"{name}.parquet")
