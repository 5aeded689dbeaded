"""The uncertainty of each pick's efficiency: margins with standard errors, from the measurements.

A pick's *margin* is ln(TFLOPS of the pick / TFLOPS of the fastest other kernel), over the rounds in which
both were timed in turn, so that the machine's drift cancels. Its standard error comes from

1. the scatter of the problem's own margin from round to round (the sweep included); 2. the run's typical
scatter of a margin, a robust scale over all kernels that were measured again; 3. the drift of the machine
between rounds, if the pick and the other kernel were not timed in the same rounds (see below); 4. the scatter
of the samples within a measurement: the median of n samples with interquartile range r has a standard error
of 0.93 r / sqrt(n) (normal samples: 1.253 sigma / sqrt(n), r = 1.349 sigma).

A pick that was timed only in the sweep is compared with leaders that were timed again later. Its margin is
corrected by the median change of the problem's leaders between the two. How well that works is measured on
the leaders themselves: each is predicted from the others of its problem, and the errors of all are compared
with the expected ones. If it does not help (the changes of a problem's leaders have nothing in common), no
margin of the run is corrected, and the errors of such margins include the whole drift.

A copy (tile_oracle.record.twins) is not a measurement: a pick's copy has the timings of its measured twin,
twins are not compared with each other, and copies do not count among the leaders.

A few rounds give a poor estimate of their scatter, so 1 is moderated by the larger of 2 and 4, which count as
PRIOR_DOF degrees of freedom (Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.judge.oracle import first_of_each
from tile_oracle.judge.pair_numbers import pair_numbers
from tile_oracle.judge.selection import COVERED
from tile_oracle.record.schema import ROUND_FINAL
from tile_oracle.record.twins import is_measured, measured_kernels

_NotNegative = Annotated[float, msgspec.Meta(ge=0)]

PRIOR_DOF = 4.0
MEDIAN_ERROR = 0.93
MAD = 1.4826
_SWEEP_DOF = 2.0
"""Degrees of freedom of a margin across rounds. Such errors have long tails: in the shipped recordings, their
99th percentile is 2.6 to 6 times the 90th, as for t with 1.3 to 2.8 degrees of freedom."""
_NORMAL_95, _SWEEP_T_95 = 1.645, 2.920
"""Quantiles of the normal distribution and of Student's t with _SWEEP_DOF, at 95 %."""
_MEDIAN_OF_FEW, _MEDIAN_OF_MANY, _FEW = 1.35, 1.5, 7
"""Variance of a median of normal values over that of their mean: of three to seven values, and of more."""
TYPICAL_NOISE = 0.005
"""Standard deviation of a log latency if a run has no information on its noise: no second round, no
samples."""


_IQR_OF_NORMAL = 1.349
_DOF_OF_IQR = 0.37
"""Efficiency of the interquartile range of normal values as an estimate of their standard deviation."""
_LEAST_NOISE = 1e-6
"""Of a log latency; no clock resolves less."""


@dataclass(frozen=True)
class Margin:
    """ln(TFLOPS of the pick / of the fastest other kernel) of one problem, with its uncertainty.

    log_ratio: above 0 if the pick is the oracle. sigma: standard error; 0: exact. dof: its degrees of
    freedom. rounds: number of interleaved rounds. other: the other kernel, "" if no other kernel is ok.
    drift: if the pick was timed only in the sweep, ln of the latencies of the problem's leaders over those of
    the sweep, which log_ratio is corrected by; the efficiency of the reports is not.
    """

    pick: str
    log_ratio: float
    sigma: _NotNegative
    dof: Annotated[float, msgspec.Meta(gt=0)]
    rounds: Annotated[int, msgspec.Meta(ge=0)]
    pick_latency_ms: _NotNegative
    other: str = ""
    other_latency_ms: _NotNegative = 0.0
    drift: float = 0.0

    @property
    def efficiency(self) -> float:
        """Efficiency, 0 to 1; 1 if the pick is the oracle."""
        return min(1.0, math.exp(self.log_ratio))

    def of_the_same_data(self, other: Margin) -> bool:
        """Returns whether both come from the same measurements, as in a replay of one recording."""
        mine = (self.pick, self.other, self.pick_latency_ms, self.other_latency_ms)
        theirs = (other.pick, other.other, other.pick_latency_ms, other.other_latency_ms)
        return mine[:2] == theirs[:2] and np.allclose(mine[2:], theirs[2:], rtol=1e-9, atol=0)


def margins(records: pd.DataFrame, final: pd.DataFrame, selection: pd.DataFrame) -> dict[str, Margin]:
    """Problem id -> the margin of its pick, for covered problems whose pick is ok.

    records: rows of record.schema, all rounds; final, selection: oracle, selection.
    """
    picked = selection[(selection["coverage"] == COVERED) & (selection["pick_status"] == "ok")]
    if picked.empty:
        return {}
    own = is_measured(final).to_numpy(dtype=bool)
    copies = final[~own]
    measured = _Measured(
        zip(zip(copies["problem"], copies["kernel"], strict=True), measured_kernels(copies), strict=True)
    )
    others = _fastest_others(final.loc[own, list(_FINAL)], picked, measured)
    timings = _timings(_compared(records, picked, measured, others))
    typical = _typical_scatter(timings)
    drift = _Drift.of(timings, typical)
    noisy = _fastest_noisy(final)
    found: dict[str, Margin] = {}
    columns = ("problem", "pick_kernel", "efficiency", "pick_latency_ms", "pick_remeasured", "pick_flattered")
    for problem, pick, efficiency, latency, again, flattered in zip(
        *(picked[name] for name in columns), strict=True
    ):
        other, other_latency = others.get(problem, ("", 0.0))
        if not other:
            found[problem] = Margin(pick, 0.0, 0.0, PRIOR_DOF, 0, float(latency))
            continue
        ratio = math.log(efficiency) if efficiency < 1 else max(0.0, math.log(other_latency / latency))
        of_problem = timings.get(problem, {})
        sigma, dof, rounds = _error(
            of_problem.get(measured[problem, pick], {}), of_problem.get(other, {}), typical
        )
        correction = _Correction()
        if not rounds and not (flattered and efficiency < 1):  # else both values are the sweep's
            if not (again or flattered):
                correction = drift.corrections.get(problem, correction)
            if correction.sigma:
                sigma = drift.sigma_corrected(sigma, correction)
            else:
                sigma = math.hypot(sigma, drift.sigma)
            ratio, dof = ratio - correction.change, _SWEEP_DOF
        doubtful = noisy.get(problem, math.inf)
        best = min(float(latency), other_latency)
        if doubtful < best:  # a noisy kernel that may be faster than the oracle
            sigma = math.hypot(sigma, math.log(best / doubtful))
        timed_ms = float(latency), other, float(other_latency)
        found[problem] = Margin(pick, ratio, sigma, dof, rounds, *timed_ms, correction.change)
    return found


class _Measured(dict[tuple[str, str], str]):
    """Problem and kernel -> the kernel that was measured. Only copies are stored."""

    def __missing__(self, pair: tuple[str, str]) -> str:
        return pair[1]


_FINAL = ("problem", "kernel", "status", "latency_ms", "remeasured")
_TIMED = ("problem", "kernel", "status", "round", "latency_ms", "spread", "samples")
_Timing = tuple[float, float]
"""ln(latency) and its standard error from the samples, NaN if unknown."""


def _compared(
    records: pd.DataFrame,
    picked: pd.DataFrame,
    measured: Mapping[tuple[str, str], str],
    others: Mapping[str, tuple[str, float]],
) -> pd.DataFrame:
    """Returns the ok rows of the picked problems whose rounds are compared: rows of picks, of the other
    kernels, and of all kernels that were measured again."""
    timed = [name for name in _TIMED if name in records]
    ok = (records["status"] == "ok") & is_measured(records) & records["problem"].isin(picked["problem"])
    pairs = [
        (problem, measured[problem, pick])
        for problem, pick in zip(picked["problem"], picked["pick_kernel"], strict=True)
    ]
    pairs += [(problem, other) for problem, (other, _) in others.items()]
    # By number: copies of all rows and their names would take more memory than the rest of a session.
    found, named = pair_numbers(records, pd.DataFrame(pairs, columns=["problem", "kernel"]))
    again = found[(ok & (records["round"] >= ROUND_FINAL)).to_numpy(dtype=bool)]
    compared = ok.to_numpy(dtype=bool) & np.isin(found, np.concatenate([again, named]))
    return records.loc[compared, timed]


def _timings(ok: pd.DataFrame) -> dict[str, dict[str, dict[int, _Timing]]]:
    """Problem -> kernel -> round -> timing, of ok rows."""
    rows = ok[["problem", "kernel", "round", "latency_ms"]].copy()
    for name in ("spread", "samples"):
        rows[name] = ok[name].astype("float64") if name in ok else np.nan
    rows = rows.drop_duplicates(["problem", "kernel", "round"], keep="last")
    error = MEDIAN_ERROR * rows["spread"] / np.sqrt(rows["samples"].where(rows["samples"] > 1))
    found: dict[str, dict[str, dict[int, _Timing]]] = {}
    logs = np.log(rows["latency_ms"].to_numpy(dtype=np.float64))
    columns = (rows["problem"], rows["kernel"], rows["round"].astype("int64"), logs, error)
    for problem, kernel, round_, log, one in zip(*(list(column) for column in columns), strict=True):
        found.setdefault(problem, {}).setdefault(kernel, {})[round_] = (log, one)
    return found


def _typical_scatter(timings: Mapping[str, Mapping[str, Mapping[int, _Timing]]]) -> float:
    """Robust standard deviation of a margin within one round, from the differences between rounds of the
    leaders' log ratios; NaN without repeats. Only interleaved rounds count if at least half of the problems
    have two of them. If few have, they are suspects, which are noisier than the others."""
    interleaved, every = list[float](), list[float]()
    problems_of = {"interleaved": 0, "every": 0}
    for kernels in timings.values():
        again = {kernel: rounds for kernel, rounds in kernels.items() if max(rounds) >= ROUND_FINAL}
        if len(again) < 2:
            continue
        reference = min(again, key=lambda kernel: again[kernel][max(again[kernel])][0])
        before = len(interleaved)
        for kernel, rounds in again.items():
            if kernel == reference:
                continue
            shared = sorted(set(rounds) & set(again[reference]))
            ratios = {one: rounds[one][0] - again[reference][one][0] for one in shared}
            for first, second in pairwise(shared):
                moved = ratios[second] - ratios[first]
                if first == shared[0]:
                    every.append(moved)
                if first >= ROUND_FINAL:
                    interleaved.append(moved)
        problems_of["every"] += 1
        problems_of["interleaved"] += len(interleaved) > before
    found = interleaved if 2 * problems_of["interleaved"] >= problems_of["every"] else every
    return MAD * float(np.median(np.abs(found))) / math.sqrt(2) if found else math.nan


@dataclass(frozen=True)
class _Correction:
    """What is added to the logs of latencies of the sweep of one problem, with its standard error."""

    change: float = 0.0
    sigma: float = 0.0


@dataclass(frozen=True)
class _Drift:
    """The change of log latencies between the sweep and the leaders' further measurements.

    sigma: robust standard deviation of the problems' common changes. corrections: by problem, if correcting
    helps in this run. excess: a factor on the expected errors of such corrections, so that limits of
    Student's t with _SWEEP_DOF at 95 % are those seen, and not less than those of normal errors.
    """

    sigma: float
    corrections: Mapping[str, _Correction]
    excess: float

    @staticmethod
    def of(timings: Mapping[str, Mapping[str, Mapping[int, _Timing]]], typical: float) -> _Drift:
        """typical: of _typical_scatter."""
        changed = {problem: _changes(kernels, typical) for problem, kernels in timings.items()}
        changed = {problem: both for problem, both in changed.items() if len(both[0]) > 1}
        if not changed:
            return _Drift(0.0, {}, 1.0)
        corrections = {
            problem: _Correction(float(np.median(one)), _sigma_of_median(variances))
            for problem, (one, variances) in changed.items()
        }
        plain = np.concatenate([one for one, _ in changed.values()])
        left, expected = np.concatenate([_unlike_the_others(*both) for both in changed.values()], axis=1)
        common = [one.change for one in corrections.values()]
        helps = _long_tailed(left) < _long_tailed(plain)
        excess = max(1.0, _long_tailed(left / expected)) * _NORMAL_95 / _SWEEP_T_95
        return _Drift(_long_tailed(common), corrections if helps else {}, excess)

    def sigma_corrected(self, sigma: float, correction: _Correction) -> float:
        """Returns the standard error of a margin that was corrected. sigma: without the correction's."""
        return self.excess * math.hypot(sigma, correction.sigma)


def _changes(
    kernels: Mapping[str, Mapping[int, _Timing]], typical: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns the changes of one problem's leaders from the sweep to their later rounds, and their
    variances."""
    changes, variances = [], []
    for rounds in kernels.values():
        again = [timing for round_, timing in rounds.items() if round_ >= ROUND_FINAL]
        if again and 0 in rounds:
            changes.append(median(log for log, _ in again) - rounds[0][0])
            known = [one for one in (math.hypot(rounds[0][1], again[0][1]), typical) if not math.isnan(one)]
            variances.append(max(*(known or [math.sqrt(2) * TYPICAL_NOISE]), _LEAST_NOISE) ** 2)
    return np.array(changes), np.array(variances)


def _sigma_of_median(variances: npt.NDArray[np.float64]) -> float:
    """Returns the standard error of the median of a few values with these variances."""
    of_median = _MEDIAN_OF_FEW if len(variances) > 2 else 1.0
    return math.sqrt(of_median * float(np.mean(variances)) / len(variances))


def _unlike_the_others(
    changes: npt.NDArray[np.float64], variances: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Returns each change minus the median of the others', and the standard deviation expected of that, (2,
    n)."""
    rest = [np.arange(len(changes)) != place for place in range(len(changes))]
    left = [change - median(changes[others]) for change, others in zip(changes, rest, strict=True)]
    expected = [
        math.sqrt(variance + _sigma_of_median(variances[others]) ** 2)
        for variance, others in zip(variances, rest, strict=True)
    ]
    return np.array([left, expected])


def _long_tailed(values: npt.ArrayLike) -> float:
    """Robust standard deviation around 0, from the 90th percentile because drift has long tails."""
    return float(np.quantile(np.abs(values), 0.9)) / _NORMAL_95


def _error(
    pick: Mapping[int, _Timing], other: Mapping[int, _Timing], typical: float
) -> tuple[float, float, int]:
    """Returns the standard error of a margin, its degrees of freedom, and the interleaved rounds behind
    it."""
    shared = sorted(set(pick) & set(other))
    again = [one for one in shared if one >= ROUND_FINAL]
    within = [
        timings[one][1] ** 2
        for timings in (pick, other)
        for one in (again or [max(timings, default=-1)])
        if one in timings and not math.isnan(timings[one][1])
    ]
    of_samples = math.sqrt(2 * float(np.mean(within))) if within else math.nan
    known = [value for value in (typical, of_samples) if not math.isnan(value)]
    prior = max(known) if known else math.sqrt(2) * TYPICAL_NOISE
    # Scatter needs at least three interleaved rounds; with fewer, the sweep counts, too.
    seen = again if len(again) >= 3 else shared
    ratios = np.array([pick[one][0] - other[one][0] for one in seen])
    own_dof = float(max(len(ratios) - 1, 0))
    own = float(ratios.var(ddof=1)) if own_dof else 0.0
    if len(ratios) > _FEW:  # the median of many rounds ignores outliers, which the variance does not
        quarter, three = np.quantile(ratios, [0.25, 0.75])
        own, own_dof = float((three - quarter) / _IQR_OF_NORMAL) ** 2, own_dof * _DOF_OF_IQR
    dof = PRIOR_DOF + own_dof
    variance = (PRIOR_DOF * prior**2 + own_dof * own) / dof
    count = max(len(again), 1)
    of_median = 1.0 if count < 3 else _MEDIAN_OF_FEW if count <= _FEW else _MEDIAN_OF_MANY
    return math.sqrt(variance / count * of_median), dof, len(again)


def _fastest_others(
    timed: pd.DataFrame, picked: pd.DataFrame, measured: Mapping[tuple[str, str], str]
) -> dict[str, tuple[str, float]]:
    """Problem -> the oracle if the pick is another kernel, else the fastest other kernel.

    timed: the final records of kernels that were measured themselves. measured: problem and kernel -> the
    kernel that was measured. Of twins it is the one that counts.
    """
    pick_of = {
        problem: measured[problem, pick]
        for problem, pick in zip(picked["problem"], picked["pick_kernel"], strict=True)
    }
    found = {
        problem: (measured[problem, oracle], float(latency))
        for problem, oracle, latency in zip(
            picked["problem"], picked["oracle_kernel"], picked["oracle_latency_ms"], strict=True
        )
        if measured[problem, oracle] != pick_of[problem]
    }
    ok = timed[(timed["status"] == "ok") & timed["problem"].isin([p for p in pick_of if p not in found])]
    picks = pd.DataFrame(list(pick_of.items()), columns=["problem", "kernel"])
    numbers, picked_numbers = pair_numbers(ok, picks)
    ok = ok[~np.isin(numbers, picked_numbers)]
    again = ok["problem"].isin(ok.loc[ok["remeasured"].astype(bool), "problem"])
    ok = ok[~again | ok["remeasured"].astype(bool)]
    first = ok.iloc[first_of_each(ok["problem"], ok["latency_ms"], ok["kernel"])]
    columns = (first[name] for name in ("problem", "kernel", "latency_ms"))
    for problem, kernel, latency in zip(*columns, strict=True):
        found[problem] = (kernel, float(latency))
    return found


def _fastest_noisy(final: pd.DataFrame) -> dict[str, float]:
    noisy = final[(final["status"] == "noisy") & final["latency_ms"].notna()]
    return {
        str(name): float(value)
        for name, value in noisy.groupby("problem", observed=True)["latency_ms"].min().items()
    }


def accepted_margins(
    records: pd.DataFrame, final: pd.DataFrame, selection: pd.DataFrame, accepted: Mapping[str, Margin]
) -> dict[str, Margin]:
    """Problem id -> the margin of the accepted pick in this run, where the run picks another kernel and has
    timed the accepted one in turn with the oracle.

    records, final, selection: as for `margins`. accepted: the picks of a baseline. A replay of the recording
    that the baseline was made from has no further timings of them.
    """
    kernels = selection["problem"].map({problem: margin.pick for problem, margin in accepted.items()})
    other = (selection["coverage"] == COVERED) & kernels.notna() & (kernels != selection["pick_kernel"])
    if not other.any():
        return {}
    wanted = selection.loc[other, ["problem"]].assign(kernel=kernels[other])
    timed = final[(final["status"] == "ok") & final["remeasured"]]
    found = wanted.merge(timed[["problem", "kernel", "latency_ms", "tflops"]], on=["problem", "kernel"])
    if found.empty:
        return {}
    found = found.set_index("problem")
    table = selection.set_index("problem")
    table.loc[found.index, "pick_kernel"] = found["kernel"]
    table.loc[found.index, "pick_latency_ms"] = found["latency_ms"].astype("float64")
    efficiency = found["tflops"] / table.loc[found.index, "oracle_tflops"]
    table.loc[found.index, "efficiency"] = efficiency.clip(upper=1.0).astype("float64")
    table.loc[found.index, ["pick_status", "pick_remeasured", "pick_flattered"]] = ["ok", True, False]
    again = margins(records, final, table.reset_index())
    return {
        problem: again[problem]
        for problem in found.index
        if again[problem].rounds and not again[problem].of_the_same_data(accepted[problem])
    }
