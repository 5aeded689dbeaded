"""The report files of a run, written atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from tile_oracle.errors import RecordError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.sealed_json import seal
from tile_oracle.judge.baseline import baseline_document
from tile_oracle.record.sealed_parquet import table_bytes
from tile_oracle.report.data import ReportData
from tile_oracle.report.html import report_html
from tile_oracle.report.markdown import summary_markdown

SELECTION = "selection.parquet"
VERDICT = "verdict.json"
SUMMARY = "summary.md"
REPORT = "report.html"

VERDICT_SCHEMA = 1


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
    """Returns the selection as a parquet file, one row per problem: the columns of judge.selection.select."""
    table = data.selection
    arrays = {
        name: pa.array(table[name], type=_arrow_type(table[name]), from_pandas=True) for name in table.columns
    }
    return table_bytes(pa.table(arrays), compression="zstd")


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
