"""`tile-oracle runs report`: a run's report, written again from its parquet files."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.report.records_factory import accepted, some_problems, some_run
from tile_oracle.commands import report
from tile_oracle.errors import GateError, RecordError
from tile_oracle.judge.baseline import save_baseline
from tile_oracle.judge.picker import Origin
from tile_oracle.record.dataset import measurements_folder
from tile_oracle.record.schema import arrow_schema
from tile_oracle.report.data import ReportData, RunInfo, analyse
from tile_oracle.report.files import write_report
from tile_oracle.terminal.argument_table import add_arguments

PROBLEMS = some_problems(5)
RECORDS, RANKINGS = some_run(PROBLEMS, 6, failures=0.0)
FILES = ("selection.parquet", "verdict.json", "summary.md", "report.html")


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run that was measured but has no report."""
    folder = tmp_path / "a-run"
    measurements_folder(folder).mkdir(parents=True)
    table = pa.Table.from_pandas(RECORDS, schema=arrow_schema(), preserve_index=False)
    pq.write_table(table, measurements_folder(folder) / "part-0.parquet")
    return folder


def the_report(folder: Path) -> ReportData:
    about = RunInfo("a-run", problem_set="mine", folder=str(folder))
    return analyse(RECORDS, PROBLEMS, RANKINGS, run=about, ranked_by=Origin("folder", "models/x"))


def call(*words: str | Path) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser, report.ARGUMENTS)
    return report.run(parser.parse_args([str(word) for word in words]))


def test_the_files_come_back_as_they_were(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_report(run_folder, the_report(run_folder))
    before = {name: (run_folder / name).read_bytes() for name in FILES}
    (run_folder / "summary.md").unlink()
    (run_folder / "report.html").write_text("old")
    assert call(run_folder) == 0
    assert {name: (run_folder / name).read_bytes() for name in FILES} == before
    assert "ranked by the trained model models/x" in capsys.readouterr().out


def test_a_killed_run_has_oracles_and_no_picks(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(run_folder, "--width", "80") == 0
    assert all((run_folder / name).is_file() for name in FILES)
    out = capsys.readouterr().out
    assert out.startswith(f"a-run on {RECORDS['target'].iloc[0]} ({RECORDS['device'].iloc[0]})\n")
    assert "5 problems, 30 pairs measured; stopped early: the session ended before" in " ".join(out.split())
    assert "no model ranked the kernels: oracles only" in out


@pytest.mark.slow
def test_another_baseline_can_fail_it(run_folder: Path, tmp_path: Path) -> None:
    data = the_report(run_folder)
    write_report(run_folder, data)
    made = accepted(data)
    path = tmp_path / "b.json"
    save_baseline(made, path)
    assert call(run_folder, "--baseline", path) == 0
    perfect = dict.fromkeys(made.efficiencies, 1.0)
    assert min(value for value in made.efficiencies.values() if value is not None) < 0.99
    save_baseline(dataclasses.replace(made, efficiencies=perfect), path)
    assert call(run_folder, "--baseline", path) == 1


def test_a_baseline_or_a_run_that_is_not_there_is_an_error(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(GateError, match="there is no baseline at"):
        call(run_folder, "--baseline", tmp_path / "none.json")
    with pytest.raises(RecordError):
        call(tmp_path / "none")
