"""`tile-oracle runs report`: make the report files of a run again from its measurements.

Writes selection.parquet, verdict.json, summary.md and report.html of RUN and prints the summary. The
model's rankings, the criteria and the baseline are those of the run's own report.
"""

from __future__ import annotations

import argparse

from tile_oracle.commands.arguments import ONLY_JSON, show
from tile_oracle.terminal.argument_table import argument_table

EXAMPLES = """\
examples:
  tile-oracle runs report reports/2026-01-02T03-04-05
  tile-oracle runs report reports/nightly --baseline baselines/mine.json
  tile-oracle runs report reports/killed_run             a run that ended before its report: oracles, no picks
"""


ARGUMENTS = argument_table(f"""
run_folder RUN  the run's folder, such as reports/NAME
--baseline FILE  judge by this baseline (default: the one of the run)
--width N=100  columns of the printed summary
--json  print the content of verdict.json {ONLY_JSON}
""")


def run(args: argparse.Namespace) -> int:
    """Writes the files and prints the summary; returns 1 if the verdict is failed. Raises HarnessError."""
    from tile_oracle.record.dataset import load_records
    from tile_oracle.report.files import report_again, verdict_document, write_report
    from tile_oracle.report.terminal import summary_lines

    data = report_again(args.run_folder, load_records(args.run_folder), args.baseline)
    write_report(args.run_folder, data)
    return show(args, verdict_document(data), summary_lines(data, args.width), int(data.verdict.failed))
