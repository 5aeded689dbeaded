"""`tile-oracle runs compare`: two sets of measurements problem by problem, or two models on one set."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tile_oracle.commands.arguments import AS_JSON, put, put_text
from tile_oracle.errors import HarnessError
from tile_oracle.terminal.argument_table import argument_table
from tile_oracle.terminal.documentation import page

FAIL_ON = ("slower", "cannot-tell", "oracle-changed", "pick-changed", "lost", "failing", "gone")

EXAMPLES = f"""\
examples:
  tile-oracle runs compare reports/monday reports/tuesday
  tile-oracle runs compare baselines/old.json reports/tuesday --by pick --fail-on slower,failing
  tile-oracle runs compare driver_1.parquet driver_2.parquet --markdown compare.md
  tile-oracle runs compare models/old models/new --records measured.parquet

Exit status: 0, or 1 if --fail-on names something that was found. With --records, OLD and NEW are pickers
({page("pickers")}), judged by the gate's criteria with the old one as the baseline, and the exit status is
that of a session. {page("compare")} has the outcomes and their statistics.
"""


ARGUMENTS = argument_table(f"""
old OLD  a run, records, an oracle file or a baseline; or a model
new NEW  the same for the new side
--records RECORDS...  compare models, judged by these measurements; without --by or --fail-on
--by oracle|pick=oracle  whose time is compared
--same PERCENT=1  a problem whose interval lies within this change is the same
--fail-on WHAT,...=  exit with 1 if any of these was found: {", ".join(FAIL_ON)}
--json [FILE]  the comparison {AS_JSON}
--markdown FILE  write the comparison as Markdown; - prints it
--pairs FILE  with --records: write what would settle the open problems, for pytest --pairs; -
    prints it
--problem-set SET  with --pairs: the records' problem set, for the command that settles
""")


def run(args: argparse.Namespace) -> int:
    """Prints the comparison; the exit status of --fail-on or of the models' verdict. Raises HarnessError."""
    if args.records:
        from tile_oracle.commands import compare_models

        return compare_models.run(args)
    return _measurements(args)


def _measurements(args: argparse.Namespace) -> int:
    from tile_oracle.comparison.compare import compare_sides, read_side
    from tile_oracle.comparison.wording import comparison_document, markdown, terminal_lines

    wanted = [word.strip() for word in args.fail_on.split(",") if word.strip()]
    if unknown := [word for word in wanted if word not in FAIL_ON]:
        raise HarnessError(f"--fail-on {unknown[0]!r} is unknown: use {', '.join(FAIL_ON)}")
    old, new = read_side(Path(args.old)), read_side(Path(args.new))
    comparison = compare_sides(old, new, by=args.by, margin_percent=args.same)
    put(args, comparison_document(comparison), terminal_lines(comparison))
    if args.markdown:
        put_text(args.markdown, markdown(comparison))
    counts = comparison.counts
    found = {
        "slower": counts["slower"],
        "cannot-tell": counts["cannot tell"] + len(comparison.untimed),
        "oracle-changed": len(comparison.oracles_changed),
        "pick-changed": len(comparison.picks_changed),
        "lost": len(comparison.lost or ()),
        "failing": len(comparison.failing),
        "gone": len(comparison.gone),
    }
    bad = [f"{word}: {found[word]}" for word in wanted if found[word]]
    if bad:
        print(f"--fail-on: {', '.join(bad)}", file=sys.stderr)
    return 1 if bad else 0
