"""`tile-oracle runs report`: make the report files of a run again from its measurements."""

from __future__ import annotations

import argparse
from dataclasses import replace

from tile_oracle.commands.arguments import ONLY_JSON, argument_table
from tile_oracle.commands.json_output import print_json

EXAMPLES = """\
examples:
  tile-oracle runs report reports/2026-01-02T03-04-05
  tile-oracle runs report reports/nightly --baseline baselines/mine.json
  tile-oracle runs report reports/killed_run             a run that ended before its report: oracles, no picks
"""


ABOUT = (
    "Writes selection.parquet, verdict.json, summary.md and report.html of RUN and prints the summary. "
    "The model's rankings, the criteria and the baseline are those of the run's own report."
)
ARGUMENTS = argument_table(f"""
run_folder RUN  the run's folder, such as reports/NAME
--baseline FILE  judge by this baseline (default: the one of the run)
--width N=100  columns of the printed summary
--json  print the content of verdict.json {ONLY_JSON}
""")


def run(args: argparse.Namespace) -> int:
    """Writes the files and prints the summary; returns 1 if the verdict is failed. Raises HarnessError."""
    from tile_oracle.errors import GateError
    from tile_oracle.judge.baseline_file import load_baseline
    from tile_oracle.record.dataset import load_records
    from tile_oracle.record.final import problems_of
    from tile_oracle.report.data import analyse
    from tile_oracle.report.files import read_inputs, verdict_document, write_report
    from tile_oracle.report.terminal import summary_lines

    records = load_records(args.run_folder)
    inputs = read_inputs(args.run_folder)
    about, baseline = inputs.run, inputs.baseline
    if args.baseline is not None:
        baseline = load_baseline(args.baseline)
        if baseline is None:
            raise GateError(f"there is no baseline at {args.baseline}: pytest --update-baseline makes one")
        about = replace(about, baseline_file=str(args.baseline))
    data = analyse(
        records,
        inputs.problems if inputs.problems is not None else problems_of(records),
        inputs.rankings,
        run=about,
        ranked_by=inputs.ranked_by,
        scope=inputs.scope,
        baseline=baseline,
        criteria=inputs.criteria,
        training=inputs.training,
        candidates=inputs.candidates,
    )
    data = replace(data, extrapolating=inputs.extrapolating, reasons=inputs.reasons)
    data = replace(data, beside=inputs.beside, changes=inputs.changes)
    write_report(args.run_folder, data)
    if args.json:
        print_json(verdict_document(data))
    else:
        print("\n".join(summary_lines(data, args.width)))
    return 1 if data.verdict.failed else 0
