"""`python -m tools.adaptation`: what `model train --adapt` gains, by replay.

A model is adapted by some measurements of one recording and judged on the problems of another one: by the
model's first ten kernels of random problems, by the pairs that `runs suggest --adapt` chooses (`chosen`), and
by pairs drawn at random (`random`).
Metrics of all binaries of both recordings are known, as with `train --adapt --build-dir`.

    python -m tools.adaptation models/mine --adapt training.parquet --judge oracle.parquet
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tile_oracle.exploration.suggest import PICKS, covering_problems
from tile_oracle.features.code_table import CodeTable
from tile_oracle.features.feature_table import Array
from tile_oracle.features.groups import group_codes
from tile_oracle.model.predictor import Predictor
from tile_oracle.process.cores import usable_cores
from tile_oracle.record.dataset import load_records
from tile_oracle.record.final import final_measurements
from tile_oracle.training.adapt import Codes, loop_changes, remembered, safe_shifts, stated_scale
from tools.command_line import run_tool


@dataclass(frozen=True)
class Scored:
    """The ok pairs of a recording: `problem` numbers, `kernel` names, the model's `score`, `log_time`."""

    problem: Codes
    kernel: pd.Series
    score: Array
    log_time: Array

    @classmethod
    def of(cls, rows: pd.DataFrame, predictor: Predictor) -> Scored:
        rows = rows.reset_index(drop=True)
        groups = group_codes(rows)
        columns = {str(name): rows[name].to_numpy() for name in rows}
        score = predictor.ranker.log_time(columns, groups, predictor.threads)
        return cls(
            groups, rows["kernel"].astype(str), score, np.log(rows["latency_ms"].to_numpy(dtype=float))
        )

    def efficiency(self, change: Array | float = 0.0) -> tuple[float, float]:
        """Mean and P10 of the picks' efficiency, in percent. change: of the scores, (pairs,)."""
        table = pd.DataFrame({"problem": self.problem, "score": self.score + change, "time": self.log_time})
        pick = table.loc[table.groupby("problem")["score"].idxmin()].set_index("problem")["time"]
        found = 100 * np.exp(table.groupby("problem")["time"].min() - pick)
        return float(found.mean()), float(found.quantile(0.1))

    def first_picks(self, count: int, seed: int) -> Codes:
        """Which pairs to measure: the model's first ones of random problems, `count` in all."""
        problems = np.random.default_rng(seed).permutation(self.problem.max() + 1)[: -(-count // PICKS)]
        return self.first(problems)[:count]

    def chosen(self, count: int) -> Codes:
        """Which pairs to measure: those that `runs suggest --adapt` chooses."""
        rows = self.first(np.arange(self.problem.max() + 1))
        picks = [group.tolist() for _, group in self.kernel[rows].groupby(self.problem[rows])]
        return self.first(np.array(covering_problems(picks, count)))[:count]

    def first(self, problems: Codes, most: int = PICKS) -> Codes:
        """The pairs of these problems that the model ranks first."""
        rank = pd.Series(self.score).groupby(self.problem).rank(method="first").to_numpy()
        return np.flatnonzero(np.isin(self.problem, problems) & (rank <= most))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the study."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = __doc__
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("--adapt", type=Path, required=True, metavar="RECORDS", help="records to adapt by")
    parser.add_argument("--judge", type=Path, required=True, metavar="RECORDS", help="records to judge by")
    parser.add_argument("--problems", type=int, default=0, metavar="N", help="judge on the first N problems")
    parser.add_argument("--counts", default="200,1000", metavar="N,...", help="(default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="(default: %(default)s)")


def main(words: Sequence[str] | None = None) -> int:
    """Prints a line for every seed, and one of their means."""
    return run_tool("adaptation", add_arguments, _study, words)


def _study(args: argparse.Namespace) -> int:
    new, judge = (_ok(path) for path in (args.adapt, args.judge))
    if args.problems:
        judge = judge[judge["problem"].isin(judge["problem"].unique()[: args.problems])]
    new = new[~new["problem"].isin(judge["problem"].unique())]
    names = sorted({*new["kernel"].astype(str), *judge["kernel"].astype(str)})
    code = CodeTable.of(new).over(CodeTable.of(judge))
    loaded = Predictor.load(args.model, usable_cores())
    predictor = loaded.knowing(code)
    here, judged = (Scored.of(rows, predictor) for rows in (new, judge))
    adaptation = Adaptation(
        tuple(names),
        stated_scale(args.model) if predictor.ranker.orders_only else 1.0,
        loop_changes(remembered(loaded), code),
    )
    counts = [int(count) for count in args.counts.split(",")]
    lines = []
    for seed in range(args.seeds):
        lines.append(adaptation.cells(here, judged, counts, seed))
        print(f"seed {seed}  {_said(lines[-1])}", flush=True)
    mean = {name: tuple(np.mean([line[name] for line in lines], axis=0)) for name in lines[0]}
    spread = {name: float(np.std([line[name][0] for line in lines])) for name in lines[0]}
    print(f"mean    {_said(mean, spread)}", flush=True)
    return 0


@dataclass(frozen=True)
class Adaptation:
    """How the model is adapted: the kernels' names, the scale of its scores, the changes of the binaries."""

    names: tuple[str, ...]
    scale: float | None
    loop: Mapping[str, float]

    def cells(
        self, here: Scored, judged: Scored, counts: Sequence[int], seed: int
    ) -> dict[str, tuple[float, ...]]:
        """What was measured -> mean and P10 of the judged problems."""
        found: dict[str, tuple[float, ...]] = {"as it is": judged.efficiency()}
        for count in counts:
            found[f"{count:,}"] = self._adapted(here, judged, here.first_picks(count, seed))
            chosen = here.chosen(count)
            found[f"{len(chosen):,} chosen"] = self._adapted(here, judged, chosen)
            drawn = np.random.default_rng(seed).permutation(len(here.kernel))[:count]
            found[f"{len(drawn):,} random"] = self._adapted(here, judged, np.sort(drawn))
        return found

    def _adapted(self, here: Scored, judged: Scored, rows: Codes) -> tuple[float, float]:
        numbers, problems = pd.factorize(here.problem[rows])
        leaders = here.first(problems, 1)
        by_problem = dict(zip(here.problem[leaders], here.kernel[leaders], strict=True))
        found = safe_shifts(
            numbers,
            here.kernel[rows],
            here.score[rows],
            here.log_time[rows],
            {place: by_problem[problem] for place, problem in enumerate(problems)},
            self.names,
            scale=self.scale,
            loop=self.loop,
        )
        return judged.efficiency(judged.kernel.map(found.shift).to_numpy(dtype=float))


def _ok(path: Path) -> pd.DataFrame:
    final = final_measurements(load_records([path]))
    return final[final["status"] == "ok"]


def _said(cells: Mapping[str, tuple[float, ...]], spread: Mapping[str, float] | None = None) -> str:
    """Mean and P10 of each, and the standard deviation of the means, if given."""
    return "   ".join(
        f"{name} {mean:.2f}, {low:.2f}" + (f" (sd {spread[name]:.2f})" if spread else "")
        for name, (mean, low) in cells.items()
    )


if __name__ == "__main__":
    raise SystemExit(main())
