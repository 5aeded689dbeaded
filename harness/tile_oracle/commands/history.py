"""`tile-oracle runs history`: all runs of a folder over time, as a page, a table or JSON.

Reads the reports of all runs below FOLDER and writes one page over them: one series for each problem set,
kernel set and architecture, replays apart. Prints the newest runs and the steps.
"""

from __future__ import annotations

import argparse

from tile_oracle.commands.arguments import AS_JSON, put, write_text
from tile_oracle.terminal.argument_table import argument_table
from tile_oracle.terminal.documentation import page

PAGE = "history.html"

EXAMPLES = f"""\
examples:
  tile-oracle runs history                            reads reports/, writes reports/history.html
  tile-oracle runs history ~/nights/forward           the state folder of `tile-oracle night`
  tile-oracle runs history reports --json             everything as JSON, to the terminal's output

Only complete runs are searched for steps. A step has a 95 % interval of its size, an interval of the time at
which it began, and a p-value (permutation test); above 0.01 it is open. {page("history")} has the methods.
"""


ARGUMENTS = argument_table(f"""
folder [FOLDER=reports]  where the runs are
-o --out PAGE  where the page goes (default: FOLDER/{PAGE})
--json [FILE]  the history {AS_JSON}
""")


def run(args: argparse.Namespace) -> int:
    """Writes the page and prints the table; 0. Raises RecordError."""
    from tile_oracle.history.group import groups_of
    from tile_oracle.history.page import history_html
    from tile_oracle.history.runs import read_runs
    from tile_oracle.history.wording import history_document, terminal_lines

    runs = read_runs(args.folder)
    groups = groups_of(runs.runs)
    page = args.out or args.folder / PAGE
    write_text(page, history_html(runs, groups, page))
    lines = [*terminal_lines(groups, runs.notes), "", f"page  {page}"]
    put(args, history_document(groups, runs.notes), lines)
    return 0
