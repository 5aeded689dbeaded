"""What the history keeps of a run: its figures, what made them, and each problem's pick and oracle."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from tile_oracle.errors import RecordError
from tile_oracle.files.sealed_json import read_object
from tile_oracle.record.dataset import measurements_folder
from tile_oracle.record.journal import parts_in
from tile_oracle.record.run import MANIFEST, purpose_of
from tile_oracle.record.sealed_parquet import read_table

VERDICT, SELECTION, REPORT = "verdict.json", "selection.parquet", "report.html"
_FIX = "delete it; `pytest --problem-set SET --oracle={}` reports on the run again"

MADE_BY = ("device", "driver", "toolchain", "sources", "model")
"""The fields of a summary that say what made a run; the page marks their changes."""


CHOICES = ("problem", "pick_kernel", "oracle_kernel", "efficiency", "oracle_tflops")
"""The columns of a run's selection that the history keeps."""


def _no_choices() -> pd.DataFrame:
    return pd.DataFrame(columns=CHOICES).astype({"efficiency": "float64", "oracle_tflops": "float64"})


@dataclass(frozen=True)
class RunSummary:
    """One run, or one night whose run is gone (`folder` is "").

    folder: relative to the folder that was read. when: UTC, ISO 8601. sources: hash of kernel sources and
    toolchain. mean to worst, coverage: percent, None if unknown. complete: every pair was measured. pairs: as
    measured in the run. device_hours: of the device's own clock over all timed and warm-up runs.
    pairs_per_s: measurements / time from the first to the last. choices: CHOICES of each problem. pickers:
    the figures of all of them, the judged one first (report.picker_figures).
    """

    folder: str
    name: str
    when: str
    state: str = ""
    problem_set: str = ""
    kernel_set: str = ""
    target: str = ""
    replayed: bool = False
    complete: bool = True
    device: str = ""
    driver: str = ""
    toolchain: str = ""
    sources: str = ""
    model: str = ""
    mean: float | None = None
    median: float | None = None
    p10: float | None = None
    worst: float | None = None
    coverage: float | None = None
    pairs: int = 0
    new_failures: int = 0
    device_hours: float | None = None
    pairs_per_s: float | None = None
    has_report: bool = False
    pickers: tuple[dict[str, Any], ...] = ()
    choices: pd.DataFrame = field(default_factory=_no_choices)


def summarize(folder: Path, shown_as: str) -> RunSummary:
    """Returns the summary of a run's folder, from its report files. Raises RecordError for damaged ones."""
    verdict = read_object(folder / VERDICT, RecordError, _FIX.format(folder))
    run, figures = _part(verdict, "run"), _part(verdict, "efficiency")
    made, scope = _part(run, "environment"), _part(verdict, "scope")
    replayed = bool(_text(run, "replayed"))
    choices = _choices(folder / SELECTION)
    # Of several problem sets, a run's own folder is above their reports.
    there = (folder / MANIFEST).is_file() or measurements_folder(folder).is_dir()
    whole = folder if there else folder.parent
    spent = (None, None) if replayed else _spent(whole, set(choices["problem"]))
    failures = _part(verdict, "verdict").get("new_failures")
    return RunSummary(
        folder=shown_as,
        name=_text(run, "name") or folder.name,
        when=_text(run, "created"),
        state=_text(verdict, "state"),
        problem_set=_text(run, "problem_set"),
        kernel_set=_text(run, "kernel_set"),
        target=_text(run, "arch") or _text(run, "target"),
        replayed=replayed,
        complete=scope.get("complete") is not False,
        device=_text(run, "device"),
        driver=_text(made, "driver"),
        toolchain=_text(made, "toolchain"),
        sources=_text(purpose_of(whole), "sources and toolchain")[:12],
        model=_text(_part(verdict, "model"), "name") or _text(_part(verdict, "model"), "kind"),
        mean=_number(figures, "mean_percent"),
        median=_number(figures, "median_percent"),
        p10=_number(figures, "p10_percent"),
        worst=_number(figures, "min_percent"),
        coverage=_number(figures, "coverage_percent"),
        pairs=int(_number(scope, "measured") or 0),
        new_failures=len(failures) if isinstance(failures, list) else 0,
        device_hours=spent[0],
        pairs_per_s=spent[1],
        has_report=(folder / REPORT).is_file(),
        pickers=tuple(one for one in verdict.get("pickers") or () if isinstance(one, dict)),
        choices=choices,
    )


def _choices(path: Path) -> pd.DataFrame:
    if not path.is_file():
        return _no_choices()
    table = read_table(path, CHOICES)
    if missing := set(CHOICES) - set(table.column_names):
        raise RecordError(f"{path} lacks the column {sorted(missing)[0]!r}; {_FIX.format(path.parent)}")
    return table.to_pandas()


def _spent(run: Path, problems: set[str]) -> tuple[float | None, float | None]:
    """Device hours and measurements per second of these problems; None if unknown."""
    busy_ms, measured, times = 0.0, 0, []
    has_busy = False
    for part in parts_in(measurements_folder(run)):
        frame = read_table(part, ("problem", "busy_ms", "time")).to_pandas()
        if not {"problem", "time"} <= set(frame.columns):
            continue
        frame = frame[frame["problem"].isin(problems)]
        measured += len(frame)
        times += [] if frame["time"].isna().all() else [frame["time"].min(), frame["time"].max()]
        if "busy_ms" in frame and frame["busy_ms"].notna().any():
            has_busy, busy_ms = True, busy_ms + float(frame["busy_ms"].sum())
    seconds = (max(times) - min(times)).total_seconds() if times else 0.0
    return busy_ms / 3.6e6 if has_busy else None, (measured - 1) / seconds if seconds > 0 else None


def _part(document: dict[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _text(document: dict[str, Any], name: str) -> str:
    found = document.get(name)
    return found if isinstance(found, str) else ""


def _number(document: dict[str, Any], name: str) -> float | None:
    found = document.get(name)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
