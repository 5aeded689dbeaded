"""Files of a run and of merged runs: manifest, journals, parts, selection, verdict, datasets, oracles."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from tile_oracle.commands.merge import write_oracle
from tile_oracle.comparison.compare import read_side
from tile_oracle.history.summary import summarize
from tile_oracle.judge.criteria import Criteria
from tile_oracle.judge.picker import Origin
from tile_oracle.measure.measurement import Measurement
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.record.dataset import load_records, measurements_folder, read_rows
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.record.final import problems_of
from tile_oracle.record.journal import Journal, write_part
from tile_oracle.record.merge import merge_records
from tile_oracle.record.run import MANIFEST, open_run, purpose_of
from tile_oracle.report.data import RunInfo, analyse
from tile_oracle.report.files import SELECTION, VERDICT, write_report
from tile_oracle.session.recording import KERNEL_FILTER, KERNEL_SET, pool_of_sources
from tools.faults.flippable.kind import FileKind

_PURPOSE = {KERNEL_SET: "tiny", KERNEL_FILTER: "tile_m == 16", "target": "cpu", "data seed": 7}


def kinds() -> tuple[FileKind, ...]:
    """All kinds of files of a run, and those that are made from runs."""
    return (
        FileKind("run.json", _make_manifest, _read_manifest),
        FileKind("journal", _make_journal, _read_run),
        FileKind("journal, then --resume", _make_journal, _resume_run),
        FileKind("part", _make_part, _read_run),
        FileKind("part, then --resume", _make_part, _resume_run),
        FileKind("selection.parquet", _make_report(SELECTION), _read_selection),
        FileKind("verdict.json", _make_report(VERDICT), _read_verdict),
        FileKind("merged dataset", _make_merged, _read_merged),
        FileKind("oracle file", _make_oracle, _read_oracle),
    )


def some_rows(count: int, run: str = "flipped", seed: int = 1) -> list[dict[str, Any]]:
    """Rows as a session records them, with values that are not round numbers."""
    choose = random.Random(seed)
    rows = []
    for n in range(count):
        problem = GroupedConvProblem("forward", "fp32", 2, 1, 4, 4, 1, 5 + n // 4, 5, 3, 3)
        kernel = GroupedConvKernel("forward", "fp32", 2, 16, 16 + n % 4, 16, 1, 1, 1, 4, 16, 1)
        latency_ms = choose.uniform(0.01, 1.0)
        status = "ok" if choose.random() < 0.9 else "wrong"
        detail = "" if status == "ok" else "value 3 is 1.0, not 2.0"
        one = Measurement(
            problem, kernel, status, detail, 0, latency_ms, latency_ms * 0.9, 0.01, 11, "full", 36
        )
        time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) + timedelta(seconds=n)
        made = {"run": run, "time": time.isoformat(), "harness_version": "0", **one.as_row()}
        rows.append(made | {"target": "cpu", "arch": "cpu", "device": "A CPU", "seed": 7, "cache": "warm"})
    return rows


def _make_manifest(folder: Path) -> list[Path]:
    return [open_run(folder, _PURPOSE, stem="x", name="flipped", resume=False).folder / MANIFEST]


def _read_manifest(folder: Path) -> Any:
    run = folder / "flipped"
    return purpose_of(run), pool_of_sources([run])


def _make_journal(folder: Path) -> list[Path]:
    """A run whose process has died."""
    run = open_run(folder, _PURPOSE, stem="x", name="flipped", resume=False)
    journal = Journal(run.measurements, "dead")
    for row in some_rows(12):
        journal.append(row)
    assert journal._fd is not None
    journal._flusher.let_go()
    os.close(journal._fd)
    return sorted(run.measurements.glob(".journal-*"))


def _make_part(folder: Path) -> list[Path]:
    run = open_run(folder, _PURPOSE, stem="x", name="flipped", resume=False)
    run.measurements.mkdir()
    part = run.measurements / "part-main-00000.parquet"
    write_part(part, some_rows(24))
    return [part]


def _read_run(folder: Path) -> Any:
    return values_of(load_records(folder / "flipped"))


def _resume_run(folder: Path) -> Any:
    run = open_run(folder, _PURPOSE, stem="x", name="flipped", resume=True)
    left = sorted(path.name for path in run.measurements.glob("part-*"))
    return run.name, values_of(load_records(run.folder)) if left else []


def _make_report(name: str) -> Callable[[Path], list[Path]]:
    def make(folder: Path) -> list[Path]:
        _make_part(folder)
        run = folder / "flipped"
        records = load_records(run)
        problems = problems_of(records)
        rankings = pd.DataFrame(
            {
                "problem": records["problem"],
                "kernel": records["kernel"],
                "predicted_tflops": [0.001 * (n * 7 % 13 + 1) for n in range(len(records))],
            }
        )
        about = RunInfo(name="flipped", problem_set="some", device="A CPU", folder=str(run))
        data = analyse(
            records,
            problems,
            rankings,
            run=about,
            ranked_by=Origin(kind="folder", name="a model"),
            criteria=Criteria(),
        )
        write_report(run, data)
        return [run / name]

    return make


def _read_selection(folder: Path) -> Any:
    return sorted(read_side(folder / "flipped").picks.items())


def _read_verdict(folder: Path) -> Any:
    found = vars(summarize(folder / "flipped", "flipped"))
    return {name: str(value) for name, value in found.items()}


def _make_merged(folder: Path) -> list[Path]:
    tables = []
    for number, name in enumerate(("monday", "tuesday")):
        measurements_folder(folder / name).mkdir(parents=True)
        write_part(measurements_folder(folder / name) / "part-a.parquet", some_rows(30, name, number))
        tables.append(read_rows(folder / name))
    merged, _ = merge_records(tables)
    path = folder / "measured.parquet"
    write_dataset(merged, path, {KERNEL_SET: "tiny", KERNEL_FILTER: "tile_m == 16"})
    return [path]


def _read_merged(folder: Path) -> Any:
    path = folder / "measured.parquet"
    return pool_of_sources([path]), values_of(load_records(path))


def _make_oracle(folder: Path) -> list[Path]:
    merged = _make_merged(folder)
    path, _ = write_oracle(merged, out=folder / "oracle.parquet", kernel_set="tiny")
    return [path]


def _read_oracle(folder: Path) -> Any:
    path = folder / "oracle.parquet"
    return pool_of_sources([path]), values_of(load_records(path))


def values_of(table: pd.DataFrame) -> list[str]:
    """The rows as text, so that NaN equals NaN."""
    return [repr(row) for row in table.itertuples(index=False, name=None)]
