"""The history as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tile_oracle.history.group import FIGURES, JUDGED, Group
from tile_oracle.history.summary import MADE_BY, RunSummary

SCHEMA = 1


def history_document(groups: Sequence[Group], notes: Sequence[str]) -> dict[str, Any]:
    """Returns the content of --json. Numbers have the units of RunSummary; unknown ones are null."""
    return {"schema": SCHEMA, "groups": [_group(group) for group in groups], "notes": list(notes)}


def _group(group: Group) -> dict[str, Any]:
    return {
        "problem_set": group.problem_set,
        "kernel_set": group.kernel_set,
        "target": group.target,
        "replayed": group.replayed,
        "runs": [_run(run, speed) for run, speed in zip(group.runs, group.speed, strict=True)],
        "steps": [
            {
                "figure": trend.figure.name,
                **asdict(step),
                "change": step.change,
                "settled": step.settled,
                **{name: trend.at[getattr(step, name)] for name in ("at", "first", "last")},
            }
            for trend in group.trends
            for step in trend.steps
        ],
        "searched_for_steps": list(JUDGED),
        "made_by_changes": [asdict(mark) for mark in group.marks],
        "changes": [
            {
                **{name: getattr(change, name) for name in ("at", "problem", "what", "before", "after")},
                "efficiency": change.efficiency,
                "oracle_tflops": change.tflops,
            }
            for change in group.changes
        ],
    }


def _run(run: RunSummary, speed: float | None) -> dict[str, Any]:
    plain = ("folder", "name", "when", "state", "complete", "pairs", "new_failures", "pickers", *MADE_BY)
    figures = {figure.name: getattr(run, figure.name, None) for figure in FIGURES}
    return {name: getattr(run, name) for name in plain} | figures | {"speed": speed}
