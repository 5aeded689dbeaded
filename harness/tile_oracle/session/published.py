"""What a session tells programs: --report-json, and the step summary of a GitHub workflow."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from tile_oracle.errors import RecordError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.pages.words import one_line
from tile_oracle.report.files import SUMMARY, verdict_document
from tile_oracle.session.conclusion import Conclusion
from tile_oracle.session.outcome import STEP_SUMMARY, Outcome


def write_report_json(
    path: Path, conclusions: Sequence[Conclusion], outcomes: frozenset[Outcome], status: int, trouble: str
) -> None:
    """Writes the session's outcome: exit status, outcomes, and each problem set's verdict.json.

    trouble: why the session has no verdict, or "". Raises RecordError.
    """
    document = {
        "schema": 1,
        "exit_status": status,
        "outcomes": sorted(outcome.option for outcome in outcomes),
        "trouble": trouble,
        "sets": [
            {
                "problem_set": one.data.run.problem_set,
                "folder": one.data.run.folder,
                **verdict_document(one.data),
            }
            for one in conclusions
        ],
    }
    with disk_errors_as(RecordError, f"--report-json {path} cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode("utf-8"))


def append_step_summary(conclusions: Sequence[Conclusion], trouble: str) -> None:
    """Appends each problem set's summary.md, and why there is no verdict, to the workflow step's summary, if
    there is one. Raises RecordError."""
    place = os.environ.get(STEP_SUMMARY)
    if not place:
        return
    what = f"the step summary {place} ({STEP_SUMMARY}) cannot be written"
    with disk_errors_as(RecordError, what), Path(place).open("a", encoding="utf-8") as summary:
        for one in conclusions:
            summary.write((Path(one.data.run.folder) / SUMMARY).read_text("utf-8") + "\n")
        if trouble:
            summary.write(f"tile-oracle: {one_line(trouble, 2000)}\n\n")
