"""Evaluates rankings against recorded measurements: metrics, intervals, slices, reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.evaluation.prediction_metrics import TargetMetrics, r2_of, target_metrics
from tile_oracle.features.feature_table import Array
from tile_oracle.judge.bootstrap import Interval, Statistic, interval, mean_of, quantile_of
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.selection import COVERED, TOP_K_COLUMNS, Efficiency, ranked_pairs, select, summarise
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.aliases import find_aliases
from tile_oracle.model.noise import NoiseModel, enough_repeats, measured_noise
from tile_oracle.model.predictor import Predictor
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem
from tile_oracle.record.final import final_measurements, problems_of, records_op
from tile_oracle.training.training_rows import pair_columns_of, training_rows

WORST = 10
_CEILING_DRAWS = 50
_BINS = 5
_TIE_SIGMAS = 2.0
_GFLOP = 1e9

HEADLINES: dict[str, Statistic] = {
    "mean": mean_of,
    "median": quantile_of(0.5),
    "P10": quantile_of(0.1),
    "P90": quantile_of(0.9),
    "min": lambda values: np.asarray(values.min(axis=1)),
}
"""The headline metrics of efficiency."""


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of one model's rankings.

    selection: one row per problem (judge.selection), with `reason`: why the pick is not the oracle.
    headlines: efficiency in percent with bootstrap intervals. ceiling: mean and P10 (percent) that a perfect
    predictor of noise-free times would reach, given the noise. regression: r2 and rmse of TFLOPS and
    ln(TFLOPS), `bias` exp(mean error) - 1, and the share of pairs predicted within 10 % and 25 %. targets: r2
    and rmse of every quantity that the model predicts. noise: of one measurement, used for ties and the
    ceiling; noise_measured: whether it comes from these records. calibration: predicted and measured TFLOPS
    in five bins. aliases: names that the records show to be one kernel. slices: one row per slice. top: mean
    efficiency (percent) of the best of the first k picks, k = 1 to 10.
    """

    name: str
    selection: pd.DataFrame
    efficiency: Efficiency
    headlines: dict[str, Interval]
    top: dict[str, Interval]
    ndcg: dict[str, float]
    regression: dict[str, float]
    targets: tuple[TargetMetrics, ...]
    calibration: list[dict[str, float]]
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
            "ndcg": self.ndcg,
            "regression": self.regression,
            "targets": [one.as_json() for one in self.targets],
            "calibration": self.calibration,
            "aliases": self.aliases,
            "noise_ceiling_percent": self.ceiling,
            "noise": {**self.noise.as_json(), "measured": self.noise_measured},
            "slices": self.slices.to_dict("records"),
            "worst": self.worst().to_dict("records"),
        }

    def figures(self) -> pd.DataFrame:
        """All metrics as a long table: section, name, figure (the metric), value, and the interval's low and
        high if it has one."""
        rows: list[tuple[str, str, str, float | None, float | None, float | None]] = []
        intervals = {"efficiency_percent": self.headlines, "measure_top_k_percent": self.top}
        for section, found in intervals.items():
            rows += [(section, name, "", one.value, one.low, one.high) for name, one in found.items()]
        plain: dict[str, Mapping[str, float | None]] = {
            "coverage": {"problems": self.efficiency.problems, "covered": self.efficiency.covered},
            "hits_percent": {
                "top_1": self.efficiency.top_1_percent, "top_5": self.efficiency.top_5_percent
            },
            "noise_ceiling_percent": self.ceiling, "ndcg": self.ndcg, "regression": self.regression,
        }  # fmt: skip
        for section, values in plain.items():
            rows += [(section, name, "", value, None, None) for name, value in values.items()]
        for one in self.targets:
            for figure in ("r2", "rmse", "rank_correlation"):
                rows.append((f"target {one.of}", one.quantity, figure, getattr(one, figure), None, None))
        for number, step in enumerate(self.calibration, 1):
            rows += [("calibration", str(number), name, value, None, None) for name, value in step.items()]
        for row in self.slices.to_dict("records"):
            for figure in ("problems", "mean", "P10", "min"):
                rows.append(("slice_percent", str(row["slice"]), figure, row[figure], None, None))
        table = pd.DataFrame(rows, columns=["section", "name", "figure", "value", "low", "high"])
        return table.astype(dict.fromkeys(("value", "low", "high"), "float64"))


def evaluate(
    name: str,
    records: pd.DataFrame,
    rankings: pd.DataFrame,
    trained_on: pd.DataFrame | None = None,
    seed: int = 0,
    predictor: Predictor | None = None,
) -> Evaluation:
    """Evaluates rankings (problem, kernel, predicted_tflops) against records.

    trained_on: the training records, if available, to mark problems outside of their range. predictor: the
    model, to evaluate its members, too. Raises ModelError if no problem is covered.
    """
    final = final_measurements(records)
    problems = problems_of(records)
    selection = select(problems, final, find_oracles(final), rankings)
    covered = selection[selection["coverage"] == COVERED]
    if covered.empty:
        raise ModelError(f"{name}: no problem has both an ok measurement and a measured pick")
    noise = measured_noise(records)
    selection["reason"] = _reasons(selection, noise, records, trained_on)
    percent = 100.0 * covered["efficiency"].to_numpy(dtype=np.float64)
    ranked = ranked_pairs(rankings, final, selection)
    ok = ranked[ranked["status"] == "ok"]
    # Scores that only order kernels are not TFLOPS, so regression metrics do not apply.
    scores = predictor is not None and predictor.ranker.orders_only
    return Evaluation(
        name,
        selection,
        summarise(selection),
        {key: interval(percent, statistic, seed) for key, statistic in HEADLINES.items()},
        {
            column.removeprefix("efficiency_"): interval(
                100.0 * covered[column].to_numpy(dtype=np.float64), mean_of, seed
            )
            for column in TOP_K_COLUMNS
        },
        {f"ndcg_{k}": _ndcg(ok, k) for k in (1, 3, 5, 10)},
        {} if scores else _regression(ok),
        target_metrics(_pairs(ok, final), predictor),
        [] if scores else _calibration(ok),
        noise_ceiling(records, noise, seed),
        _slices(problems, selection),
        find_aliases(training_rows(records).table, noise).groups(),
        len(ok),
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


def _reasons(
    selection: pd.DataFrame, noise: NoiseModel, records: pd.DataFrame, trained_on: pd.DataFrame | None
) -> pd.Series:
    """Why a pick was not the oracle: wrong kernel, tie within noise, outside the training range, or ''."""
    outside = (
        _outside(selection, trained_on) if trained_on is not None else pd.Series("", index=selection.index)
    )
    reasons = []
    for index, row in selection.iterrows():
        if row["coverage"] != COVERED or row["efficiency"] >= 1.0:
            reasons.append("")
        elif row["pick_status"] != "ok":
            reasons.append(f"the pick is {row['pick_status']}")
        else:
            sigma = float(noise.sigma(row["oracle_latency_ms"]))
            gap = -float(np.log(row["efficiency"]))
            if gap <= _TIE_SIGMAS * np.sqrt(2.0) * sigma:
                reasons.append("tie within noise")
            else:
                reasons.append(str(outside[index]))
    return pd.Series(reasons, index=selection.index, dtype=object)


def _outside(selection: pd.DataFrame, trained_on: pd.DataFrame) -> pd.Series:
    """The dimension in which a problem is outside the range of the training problems, "" if there is none."""
    seen = trained_on.drop_duplicates("problem")
    texts = pd.Series("", index=selection.index, dtype=object)
    names = [n for n in ("M", "N", "C", "K", "G", "Hi", "Wi", "Y", "X") if n in selection and n in seen]
    for name in names:
        for side, mask in (
            ("under", selection[name] < seen[name].min()),
            ("over", selection[name] > seen[name].max()),
        ):
            limit = seen[name].min() if side == "under" else seen[name].max()
            texts = texts.where(~mask | (texts != ""), f"outside training: {name} {side} {limit}")
    for name in [n for n in ("C", "K") if n in names]:
        unit = int(np.gcd.reduce(seen[name].to_numpy(dtype=np.int64)))
        texts = texts.where(
            ~(selection[name] % unit > 0) | (texts != ""), f"outside training: {name} no multiple of {unit}"
        )
    return texts


def _pairs(ok: pd.DataFrame, final: pd.DataFrame) -> pd.DataFrame:
    """The ranked ok pairs with all the columns of problem and kernel."""
    names = ["problem", "kernel", *pair_columns_of(records_op(final)), "latency_ms"]
    found = ok[["problem", "kernel", "predicted_tflops"]]
    return found.merge(final[list(dict.fromkeys(names))], on=["problem", "kernel"], how="left")


def _regression(ok: pd.DataFrame) -> dict[str, float]:
    """The accuracy of the predicted TFLOPS of ok pairs."""
    truth = np.log(ok["tflops"].to_numpy(dtype=np.float64))
    error = np.log(np.maximum(ok["predicted_tflops"].to_numpy(dtype=np.float64), 1e-12)) - truth
    spread = float(((truth - truth.mean()) ** 2).sum())
    return {
        "r2_tflops": r2_of(*(ok[name].to_numpy(dtype=np.float64) for name in ("tflops", "predicted_tflops"))),
        "rmse_tflops": float(np.sqrt(((ok["predicted_tflops"] - ok["tflops"]) ** 2).mean())),
        "r2_log_tflops": 1.0 - float((error**2).sum()) / spread if spread > 0 else 0.0,
        "rmse_log_tflops": float(np.sqrt((error**2).mean())),
        "bias_percent": 100.0 * float(np.expm1(error.mean())),
        "within_10_percent": 100.0 * float((np.abs(np.expm1(error)) <= 0.10).mean()),
        "within_25_percent": 100.0 * float((np.abs(np.expm1(error)) <= 0.25).mean()),
    }


def _calibration(ok: pd.DataFrame) -> list[dict[str, float]]:
    """Mean predicted and mean measured TFLOPS in five bins of equal size, from the lowest predictions on."""
    ordered = ok.sort_values(["predicted_tflops", "problem", "kernel"])
    bins = [part for part in np.array_split(np.arange(len(ordered)), _BINS) if len(part)]
    return [
        {
            "predicted_tflops": float(ordered["predicted_tflops"].iloc[part].mean()),
            "measured_tflops": float(ordered["tflops"].iloc[part].mean()),
        }
        for part in bins
    ]


def _ndcg(ok: pd.DataFrame, k: int) -> float:
    """Mean NDCG@k; a kernel's gain is its efficiency."""
    gain = (ok["tflops"] / ok.groupby("problem")["tflops"].transform("max")).to_numpy(dtype=np.float64)
    table = pd.DataFrame({"problem": ok["problem"].to_numpy(), "gain": gain})
    table["place"] = table.groupby("problem").cumcount()
    ideal = table.sort_values("gain", ascending=False, kind="stable").assign(
        place=lambda t: t.groupby("problem").cumcount()
    )
    found = [
        (t[t["place"] < k]["gain"] / np.log2(t[t["place"] < k]["place"] + 2)).groupby(t["problem"]).sum()
        for t in (table, ideal)
    ]
    return float((found[0] / found[1]).mean())


def _slices(problems: Sequence[Problem], selection: pd.DataFrame) -> pd.DataFrame:
    """Efficiency by slice: name, problems, mean, P10, min (percent)."""
    covered = (selection["coverage"] == COVERED).to_numpy()
    efficiency = 100.0 * selection["efficiency"].to_numpy(dtype=np.float64)
    rows = []
    pipeline = selection["oracle_kernel"].map(
        lambda n: getattr(parse_kernel_name(n), "pipeline", "") if isinstance(n, str) else ""
    )
    operation = operation_named(problems[0].op)
    masks: dict[str, Array] = {
        name: np.array([belongs(problem) for problem in problems])
        for name, belongs in {**operation.slices, **operation.bands}.items()
    }
    masks |= {f"oracle {word}": (pipeline == word).to_numpy() for word in sorted(set(pipeline) - {""})}
    for name, mask in masks.items():
        values = efficiency[mask.astype(bool) & covered]
        if len(values):
            rows.append(
                {
                    "slice": name,
                    "problems": len(values),
                    "mean": float(values.mean()),
                    "P10": float(np.quantile(values, 0.1)),
                    "min": float(values.min()),
                }
            )
    return pd.DataFrame(rows, columns=["slice", "problems", "mean", "P10", "min"])
