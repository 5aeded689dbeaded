"""Evaluates rankings against recorded measurements: metrics, intervals, slices, reasons."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.evaluation.prediction_metrics import TargetMetrics, target_metrics
from tile_oracle.judge.bootstrap import Interval, Statistic, interval, mean, median, p10
from tile_oracle.judge.model import COLUMNS
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.selection import COVERED, TOP_K_COLUMNS, Efficiency, select, summarise
from tile_oracle.judge.slices import slice_table
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.aliases import find_aliases
from tile_oracle.model.noise import NoiseModel, enough_repeats, measured_noise
from tile_oracle.model.predictor import Predictor
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem
from tile_oracle.record.final import final_measurements, is_censored, problems_of, records_op
from tile_oracle.training.training_rows import pair_columns_of, training_rows

WORST = 10
_CEILING_DRAWS = 50
_TIE_SIGMAS = 2.0

HEADLINES: dict[str, Statistic] = {
    "mean": mean,
    "median": median,
    "P10": p10,
    "P90": lambda values: np.asarray(np.percentile(values, 90, axis=-1)),
    "min": lambda values: np.asarray(values.min(axis=-1)),
}
"""The headline metrics of efficiency."""


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of one model's rankings.

    selection: one row per problem (judge.selection), with `reason`: why the pick is not the oracle.
    headlines: efficiency in percent with bootstrap intervals. ceiling: mean and P10 (percent) that a perfect
    predictor of noise-free times would reach, given the noise. targets: r2 and rmse of every quantity that
    the model predicts. noise: of one measurement, used for ties and the ceiling; noise_measured: whether it
    comes from these records. aliases: names that the records show to be one kernel. slices: one row per
    slice. top: mean efficiency (percent) of the best of the first k picks, k = 1 to 10.
    """

    name: str
    selection: pd.DataFrame
    efficiency: Efficiency
    headlines: dict[str, Interval]
    top: dict[str, Interval]
    targets: tuple[TargetMetrics, ...]
    ceiling: dict[str, float]
    slices: pd.DataFrame
    aliases: dict[str, list[str]]
    pairs: int
    noise: NoiseModel
    noise_measured: bool

    def worst(self, count: int = WORST) -> pd.DataFrame:
        """The problems with the lowest efficiency, with the reason if known."""
        covered = self.selection[self.selection["coverage"] == COVERED]
        columns = ["problem", "efficiency", "pick_kernel", "oracle_kernel", "oracle_latency_ms", "reason"]
        return covered.sort_values(["efficiency", "problem"])[columns].head(count)

    def as_json(self) -> dict[str, Any]:
        """The content of --json: plain numbers and texts."""
        return {
            "name": self.name,
            "pairs": self.pairs,
            "efficiency": asdict(self.efficiency),
            "headlines_percent": {key: asdict(value) for key, value in self.headlines.items()},
            "measure_top_k_percent": {key: asdict(value) for key, value in self.top.items()},
            "targets": [one.as_json() for one in self.targets],
            "aliases": self.aliases,
            "noise_ceiling_percent": self.ceiling,
            "noise": {**self.noise.as_json(), "measured": self.noise_measured},
            "slices": self.slices.to_dict("records"),
            "worst": self.worst().to_dict("records"),
        }


def evaluate(
    name: str,
    records: pd.DataFrame,
    rankings: pd.DataFrame,
    seed: int = 0,
    predictor: Predictor | None = None,
    outside: Mapping[str, Sequence[str]] | None = None,
) -> Evaluation:
    """Evaluates rankings (problem, kernel, predicted_tflops) against records.

    predictor: the model, to evaluate its members, too. outside: problem id -> why the problem is outside of
    what the model was trained on. Raises ModelError if no problem is covered.
    """
    final = final_measurements(records)
    problems = problems_of(records)
    selection = select(problems, final, find_oracles(final), rankings)
    covered = selection[selection["coverage"] == COVERED]
    if covered.empty:
        raise ModelError(f"{name}: no problem has both an ok measurement and a measured pick")
    noise = measured_noise(records)
    selection["reason"] = [_reason(row, noise, outside or {}) for row in selection.to_dict("records")]
    percent = 100.0 * covered["efficiency"].to_numpy(dtype=np.float64)
    pairs = _pairs(rankings, final)
    return Evaluation(
        name,
        selection,
        summarise(selection),
        {key: interval(percent, statistic, seed) for key, statistic in HEADLINES.items()},
        {
            column.removeprefix("efficiency_"): interval(
                100.0 * covered[column].to_numpy(dtype=np.float64), mean, seed
            )
            for column in TOP_K_COLUMNS
        },
        target_metrics(pairs, predictor),
        noise_ceiling(records, noise, seed),
        _slices(problems, selection),
        find_aliases(training_rows(records).table, noise).groups(),
        len(pairs),
        noise,
        enough_repeats(records),
    )


def noise_ceiling(records: pd.DataFrame, noise: NoiseModel, seed: int = 0) -> dict[str, float]:
    """Efficiency of always picking the truly fastest kernel, given oracles that are the best of noisy
    measurements.

    The measured times, with aliases merged, serve as true times (they still contain noise, so the ceiling may
    be slightly too high); measurements are simulated around them. Returns means over the draws, in percent.
    """
    rows = training_rows(records).table
    aliases = find_aliases(rows, noise)
    log_time = np.log(rows["latency_ms"].to_numpy(dtype=np.float64))
    table = pd.DataFrame(
        {"problem": rows["problem"], "stands": rows["kernel"].map(aliases.representative), "log": log_time}
    )
    truth = table.groupby(["problem", "stands"])["log"].transform("median").to_numpy()
    codes = pd.factorize(rows["problem"])[0]
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    sigma = noise.sigma(np.exp(truth))
    random = np.random.default_rng(seed)
    best = np.minimum.reduceat(truth, starts)
    place = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(truth)]))
    first_best = (
        pd.Series(np.flatnonzero(truth <= best[place]))
        .groupby(place[truth <= best[place]])
        .first()
        .to_numpy()
    )
    means, tenths = [], []
    for _ in range(_CEILING_DRAWS):
        seen = truth + sigma * random.standard_normal(len(truth))
        efficiency = np.exp(np.minimum.reduceat(seen, starts) - seen[first_best])
        means.append(efficiency.mean())
        tenths.append(np.quantile(efficiency, 0.1))
    return {"mean": 100.0 * float(np.mean(means)), "P10": 100.0 * float(np.mean(tenths))}


def _reason(row: Mapping[Hashable, Any], noise: NoiseModel, outside: Mapping[str, Sequence[str]]) -> str:
    """Why a pick was not the oracle: wrong kernel, tie within noise, outside the training range, or ""."""
    if row["coverage"] != COVERED or row["efficiency"] >= 1.0:
        return ""
    if row["pick_status"] != "ok":
        return f"the pick is {row['pick_status']}"
    sigma = float(noise.sigma(row["oracle_latency_ms"]))
    if -float(np.log(row["efficiency"])) <= _TIE_SIGMAS * np.sqrt(2.0) * sigma:
        return "tie within noise"
    reasons = outside.get(str(row["problem"]), ())
    return f"outside training: {'; '.join(reasons)}" if reasons else ""


def _pairs(rankings: pd.DataFrame, final: pd.DataFrame) -> pd.DataFrame:
    """The ranked ok pairs of known time with all the columns of problem and kernel, in order."""
    names = ["problem", "kernel", *pair_columns_of(records_op(final)), "latency_ms"]
    ok = final.loc[(final["status"] == "ok") & ~is_censored(final), list(dict.fromkeys(names))]
    return rankings[list(COLUMNS)].merge(ok, on=["problem", "kernel"])


def _slices(problems: Sequence[Problem], selection: pd.DataFrame) -> pd.DataFrame:
    """Efficiency by slice, by the operation's bands, and by the oracle's pipeline: name, problems, mean, P10,
    min (percent)."""
    operation = operation_named(problems[0].op)
    classes = {
        name: [belongs(problem) for problem in problems]
        for name, belongs in {**operation.slices, **operation.bands}.items()
    }
    pipeline = selection["oracle_kernel"].map(
        lambda n: getattr(parse_kernel_name(n), "pipeline", "") if isinstance(n, str) else ""
    )
    classes |= {f"oracle {word}": (pipeline == word).tolist() for word in sorted(set(pipeline) - {""})}
    table = slice_table(selection, classes)
    table = table[table["covered"] > 0][["slice", "covered", "mean_percent", "p10_percent", "min_percent"]]
    return table.set_axis(["slice", "problems", "mean", "P10", "min"], axis=1).reset_index(drop=True)
