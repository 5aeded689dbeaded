"""`tile-oracle suggest`: which pairs to measure next."""

from __future__ import annotations

import argparse

import pandas as pd

from harness.errors import ModelError
from harness.heuristic.suggest import suggest
from harness.heuristic.suggest_simulation import KNOWN_PROBLEMS, ROUNDS, WAYS, simulate
from harness.kernel import parse_kernel_name
from harness.oracle import problems_of
from harness.problem_set import load_problem_set
from harness.record.dataset import load_records

HELP = "say which problems and kernels to measure next, given what is recorded"

_EXAMPLES = """\
examples:
  tile-oracle suggest measured.parquet --budget 100
  tile-oracle suggest measured.parquet --problem-set forward_training --budget 500 --csv next.csv
  tile-oracle suggest measured.parquet --simulate --budget 60          are suggestions worth it here?

The kernels are those of the records; the problems those of the records or of a problem set. A pair is
worth measuring when models fitted to resampled records disagree on it and it may be its problem's fastest.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `tile-oracle suggest`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "Pairs that would teach a model most: ensemble disagreement and expected regret."
    parser.epilog = _EXAMPLES
    parser.add_argument("records", nargs="+", metavar="RECORDS", help="what is measured already")
    parser.add_argument("--budget", type=int, default=50, metavar="N", help="pairs (default: %(default)s)")
    parser.add_argument("--problem-set", metavar="NAME", help="set or CSV file of problems to choose from")
    parser.add_argument("--seed", type=int, default=0, help="of the resampling (default: %(default)s)")
    parser.add_argument("--csv", metavar="FILE", help="write the pairs as CSV")
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="pretend to measure instead: what suggested pairs teach, beside as many random ones "
        f"({KNOWN_PROBLEMS} problems known at first, {ROUNDS} rounds of --budget pairs, three starts)",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the pairs. Raises RecordError, ProblemSetError, ModelError."""
    records = load_records(args.records)
    archs = sorted(records["arch"].dropna().unique())
    if len(archs) != 1:
        raise ModelError(
            f"the records are of {len(archs)} architectures: {', '.join(archs) or 'none is named'}"
        )
    if args.simulate:
        return _simulate(records, archs[0], args.budget)
    problems = load_problem_set(args.problem_set).problems if args.problem_set else problems_of(records)
    kernels = [parse_kernel_name(str(name)) for name in sorted(records["kernel"].unique())]
    table = suggest(records, archs[0], problems, kernels, args.budget, args.seed)
    if args.csv:
        try:
            table.to_csv(args.csv, index=False)
        except OSError as error:
            raise ModelError(f"cannot write {args.csv}: {error.strerror}") from None
    print(f"{'disagreement %':>15}{'regret %':>10}  problem and kernel")
    for row in table.to_dict("records"):
        print(
            f"{100 * row['disagreement']:>15.1f}{100 * row['expected_regret']:>10.1f}  "
            f"{row['problem']}  {row['kernel']}"
        )
    return 0


def _simulate(records: pd.DataFrame, arch: str, budget: int) -> int:
    found = simulate(records, arch, budget, report=lambda line: print(line, flush=True))
    for way in WAYS:
        means = [one.mean_percent for one in found if one.way == way]
        print(f"{way}: mean efficiency {sum(means) / len(means):.2f} %")
    return 0
