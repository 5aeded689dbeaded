"""The report files of a run: written atomically, and read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from tile_oracle.errors import GateError, ProblemError, RecordError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.sealed_json import read_object, seal, typed
from tile_oracle.judge.baseline import baseline_document, load_baseline, parse_baseline
from tile_oracle.judge.criteria import Criteria
from tile_oracle.judge.picker import Origin
from tile_oracle.model.feature_share import PickReason
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.record.final import problems_of
from tile_oracle.record.sealed_parquet import DamagedError, read_table, table_bytes
from tile_oracle.report.data import (
    Candidates,
    Extrapolating,
    ReportData,
    RunInfo,
    Scope,
    Training,
    analyse,
)
from tile_oracle.report.html import report_html
from tile_oracle.report.markdown import summary_markdown
from tile_oracle.report.picker_figures import PickerFigures

SELECTION = "selection.parquet"
VERDICT = "verdict.json"
SUMMARY = "summary.md"
REPORT = "report.html"

VERDICT_SCHEMA = 1

_FIX = "delete it to report without it"
_T = TypeVar("_T")


def write_report(run_dir: Path, data: ReportData) -> tuple[Path, ...]:
    """Writes selection.parquet, verdict.json, summary.md and report.html; their paths, in that order.

    Raises RecordError where the folder cannot be written.
    """
    contents = {
        SELECTION: selection_bytes(data),
        VERDICT: (json.dumps(seal(verdict_document(data)), indent=1, allow_nan=False) + "\n").encode("utf-8"),
        SUMMARY: summary_markdown(data).encode("utf-8"),
        REPORT: report_html(data).encode("utf-8"),
    }
    with disk_errors_as(RecordError, f"the report cannot be written to {run_dir}"):
        run_dir.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_atomically(run_dir / name, content)
    return tuple(run_dir / name for name in contents)


def verdict_document(data: ReportData) -> dict[str, Any]:
    """Returns the content of verdict.json: the verdict and all of its inputs except the measurements."""
    baseline = None if data.baseline is None else baseline_document(data.baseline)
    return {
        "schema": VERDICT_SCHEMA,
        "state": data.verdict.state,
        "failed": data.verdict.failed,
        "message": data.verdict.message,
        "verdict": data.verdict.to_dict(),
        "criteria": asdict(data.criteria),
        "efficiency": {**asdict(data.efficiency), "coverage_percent": data.efficiency.coverage_percent},
        "time_weighted_percent": data.time_weighted_percent,
        "compare": {
            "one_kernel_for_all_mean_percent": data.fixed_mean_percent,
            "sweep_winners_measured_again_mean_percent": data.repeatability_percent,
        },
        "pickers": [asdict(one) for one in data.pickers],
        "changes": list(data.changes),
        "training": asdict(data.training),
        "candidates": asdict(data.candidates),
        "extrapolating": asdict(data.extrapolating),
        "reasons": {problem: asdict(reason) for problem, reason in sorted(data.reasons.items())},
        "only_one_candidate": list(data.alone),
        "not_covered": {reason: list(problems) for reason, problems in data.not_covered.items()},
        "statuses": dict(data.statuses),
        "model": {**asdict(data.ranked_by), "sentence": data.ranked_by.sentence},
        "run": {
            **asdict(data.run),
            "environment": _texts(data.run.environment),
            "options": _texts(data.run.options),
        },
        "scope": {**asdict(data.scope), "left": data.scope.left, "complete": data.scope.complete},
        "baseline": baseline,
    }


def selection_bytes(data: ReportData) -> bytes:
    """Returns the selection as a parquet file, one row per problem: the columns of judge.selection.select,
    then the lists `ranking` (all ranked kernels, best first) and `ranking_predicted_tflops`, null without a
    model."""
    table = data.selection
    arrays = {
        name: pa.array(table[name], type=_arrow_type(table[name]), from_pandas=True) for name in table.columns
    }
    arrays["ranking"], arrays["ranking_predicted_tflops"] = _rankings(data)
    return table_bytes(pa.table(arrays), compression="zstd")


def report_again(run_dir: Path, records: pd.DataFrame, accepted: Path | None = None) -> ReportData:
    """Returns the report of the run in a folder, made anew from its records and from all else that its report
    files say; without a report only the run's name and device are known. accepted: the file of another
    baseline.

    Raises RecordError, and GateError for a baseline.
    """
    path = run_dir / VERDICT
    with disk_errors_as(RecordError, f"the report in {run_dir} cannot be read"):
        document = _read_verdict(path)
        problems, rankings = _read_selection(run_dir / SELECTION) if document else (None, None)
    document = document or {"scope": {"stopped": "the session ended before its report"}}
    by = records[["target", "arch", "device"]].dropna().head(1).to_dict("records")
    made = dict(*by, name=run_dir.resolve().name)

    def part(kind: type[_T], name: str) -> _T:
        return typed(document.get(name) or {}, kind, f"{path}: {name}", RecordError, _FIX)

    document["run"] = {**made, **part(dict, "run"), "folder": str(run_dir)}
    there = document.get("baseline")
    baseline = None if there is None else parse_baseline(there, path)
    if accepted is not None:
        baseline = load_baseline(accepted)
        document["run"]["baseline_file"] = str(accepted)
        if baseline is None:
            raise GateError(f"there is no baseline at {accepted}: pytest --update-baseline makes one")
    data = analyse(
        records,
        problems_of(records) if problems is None else problems,
        rankings,
        run=part(RunInfo, "run"),
        ranked_by=part(Origin, "model"),
        scope=part(Scope, "scope"),
        baseline=baseline,
        criteria=part(Criteria, "criteria"),
        training=part(Training, "training"),
        candidates=part(Candidates, "candidates"),
    )
    beside = (document.get("pickers") or [])[1:]
    return replace(
        data,
        extrapolating=part(Extrapolating, "extrapolating"),
        reasons=typed(document.get("reasons") or {}, dict[str, PickReason], path, RecordError, _FIX),
        changes=typed(document.get("changes") or [], tuple[str, ...], path, RecordError, _FIX),
        beside=typed(beside, tuple[PickerFigures, ...], path, RecordError, _FIX),
    )


def _read_verdict(path: Path) -> dict[str, Any]:
    """Returns a document of `verdict_document`; empty if there is no file."""
    if not path.is_file():
        return {}
    document = read_object(path, RecordError, _FIX)
    if document.get("schema") != VERDICT_SCHEMA:
        raise RecordError(f"{path} is not a verdict of schema {VERDICT_SCHEMA}: {_FIX}")
    return document


def _rankings(data: ReportData) -> tuple[pa.Array, ...]:
    """Returns the names and the predictions of each problem's ranked kernels, best first."""
    order, problems = data.ranking_order, data.selection["problem"]
    if order is None:
        return tuple(pa.nulls(len(problems), pa.list_(kind)) for kind in (pa.string(), pa.float64()))
    ends = pa.array([0, *np.cumsum(order.counts)], pa.int32())
    names = pa.array(order.kernels, pa.string()).take(pa.array(order.kernel[order.rows]))
    place = pd.Index(order.problems).get_indexer(problems.astype(object))
    places = pa.array(place, mask=place < 0)
    flat = (names, pa.array(order.predicted[order.rows], pa.float64()))
    return tuple(pa.ListArray.from_arrays(ends, one).take(places) for one in flat)


def _arrow_type(column: pd.Series) -> pa.DataType:
    """Returns a fixed type for each column, even if it has only nulls."""
    if pd.api.types.is_bool_dtype(column.dtype):
        return pa.bool_()
    if pd.api.types.is_integer_dtype(column.dtype):
        return pa.int64()
    if pd.api.types.is_float_dtype(column.dtype):
        return pa.float64()
    return pa.bool_() if column.name == "pick_remeasured" else pa.string()


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {str(name): str(value) for name, value in values.items()}


def _read_selection(path: Path) -> tuple[tuple[Problem, ...] | None, pd.DataFrame | None]:
    if not path.is_file():
        return None, None
    try:
        ranked = ("ranking", "ranking_predicted_tflops")
        table = read_table(path, ("problem", *ranked), lists=ranked).to_pydict()
        problems = tuple(problem_from_id(str(problem)) for problem in table["problem"])
    except (DamagedError, KeyError, pa.ArrowException, ProblemError) as error:
        reason = (str(error).splitlines() or ["unreadable"])[0][:200]
        raise RecordError(f"{path} is not a selection ({reason}): delete it to report without it") from None
    lists = zip(table["problem"], table["ranking"], table["ranking_predicted_tflops"], strict=True)
    parts = [
        {"problem": problem, "kernel": kernel, "predicted_tflops": tflops}
        for problem, kernels, predicted in lists
        if kernels is not None and predicted is not None
        for kernel, tflops in zip(kernels, predicted, strict=False)
    ]
    return problems, pd.DataFrame(parts) if parts else None
