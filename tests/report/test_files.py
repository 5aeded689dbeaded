"""The files of a run after its measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.report.records_factory import accepted, frame, some_problems, some_run
from tile_oracle.errors import RecordError
from tile_oracle.judge.criteria import Criteria
from tile_oracle.judge.picker import Origin
from tile_oracle.report.data import ReportData, RunInfo, Scope, analyse
from tile_oracle.report.files import selection_bytes, write_report

PROBLEMS = some_problems(6)
RECORDS, RANKINGS = some_run(PROBLEMS, 8, failures=0.1)
RUN = RunInfo(
    "a-run", problem_set="forward_smoke", target="cpu", environment={"cores": "2"}, options={"-n": "2"}
)
FIRST = analyse(RECORDS, PROBLEMS, RANKINGS, run=RUN)
FILES = ["selection.parquet", "verdict.json", "summary.md", "report.html"]


def a_report(**more: object) -> ReportData:
    given = {
        "run": RUN,
        "ranked_by": Origin("out_of_fold", "LightGBM", "5 folds"),
        "scope": Scope(48, 48, deselected=3),
        "criteria": Criteria(mean_points=1.5),
        "baseline": accepted(FIRST),
        **more,
    }
    return analyse(RECORDS, PROBLEMS, RANKINGS, **given)  # type: ignore[arg-type]


def test_four_files_and_nothing_else(tmp_path: Path) -> None:
    paths = write_report(tmp_path / "run", a_report())
    assert [path.name for path in paths] == FILES
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(FILES)


@pytest.mark.slow
def test_the_same_report_is_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_report(tmp_path / name, a_report())
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_the_selection_reads_with_plain_pandas_and_the_verdict_explains_itself(tmp_path: Path) -> None:
    data = a_report()
    write_report(tmp_path, data)
    table = pd.read_parquet(tmp_path / "selection.parquet")
    assert table["problem"].tolist() == data.selection["problem"].tolist()
    assert table["efficiency"].tolist() == pytest.approx(data.selection["efficiency"].tolist(), nan_ok=True)
    document = json.loads((tmp_path / "verdict.json").read_text())
    assert document["state"] == data.verdict.state
    assert document["failed"] is False
    assert document["criteria"]["mean_points"] == 1.5
    assert document["efficiency"]["mean_percent"] == data.efficiency.mean_percent
    assert document["model"]["kind"] == "out_of_fold"
    assert document["scope"] == {
        "planned": 48,
        "measured": 48,
        "deselected": 3,
        "stopped": "",
        "unrecorded": 0,
        "left": 0,
        "complete": False,
    }
    assert [one["name"] for one in document["verdict"]["criteria"]][:3] == ["mean", "median", "P10"]


def test_column_types_do_not_depend_on_the_run() -> None:
    import io

    import pyarrow.parquet as pq

    full = pq.read_schema(io.BytesIO(selection_bytes(a_report())))
    bare = pq.read_schema(io.BytesIO(selection_bytes(analyse(frame([]), PROBLEMS, None, run=RUN))))
    none = pq.read_schema(io.BytesIO(selection_bytes(analyse(frame([]), [], None, run=RUN))))
    assert full.equals(bare)
    assert full.equals(none)


def test_an_unwritable_folder_gives_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot be written"):
        write_report(tmp_path / "file", a_report())
