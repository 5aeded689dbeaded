"""The table of a library's first choices, from a run's records and selection."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from tile_oracle.errors import RecordError
from tile_oracle.judge.selection import TOP_K_COLUMNS
from tile_oracle.record.dataset import load_records
from tile_oracle.record.final import final_measurements
from tile_oracle.terminal.text_table import text_table


def choice_table(folder: Path) -> str:
    """One line a problem, then metrics over all of them. Raises RecordError for a run without a report."""
    path = folder / "selection.parquet"
    if not path.is_file():
        raise RecordError(f"{path} is not there: the session ended before its report")
    selection = pd.read_parquet(path).sort_values("problem", kind="stable")
    final = final_measurements(load_records(folder))
    statuses = final.groupby("problem")["status"].value_counts().unstack(fill_value=0)
    rows = [("problem", "ok", "first choice", "best", "efficiency", "best of 5", "the best algorithm")]
    for one in selection.itertuples(index=False):
        counts = statuses.loc[one.problem]
        rows.append(
            (
                str(one.problem),
                f"{counts.get('ok', 0)}/{counts.sum()}",
                _number(one.pick_tflops, ".1f"),
                _number(one.oracle_tflops, ".1f"),
                _percent(one.efficiency),
                _percent(getattr(one, TOP_K_COLUMNS[-1])),
                "" if one.oracle_kernel is None else str(one.oracle_kernel),
            )
        )
    measured = 100 * selection["efficiency"].dropna().to_numpy(dtype=np.float64)
    lines = text_table(rows, range(1, 6))
    if not len(measured):
        return "\n".join(lines)
    summary = (
        f"{len(measured)} problems, TFLOPS. First choice against the best: "
        f"mean {measured.mean():.1f} %, median {np.median(measured):.1f} %, "
        f"P10 {np.percentile(measured, 10):.1f} %, worst {measured.min():.1f} %"
    )
    counts = final["status"].value_counts().items()
    statuses = ", ".join(f"{count:,} {status}" for status, count in counts)
    return "\n".join((*lines, "", summary, f"pairs: {statuses}"))


def _number(value: object, form: str) -> str:
    return format(value, form) if isinstance(value, float) and np.isfinite(value) else "-"


def _percent(value: object) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, float) and np.isfinite(value) else "-"
