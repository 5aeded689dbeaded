"""Records of every pair, on which a cold start can be played."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tile_oracle.exploration.cold_start import ColdStart
from tile_oracle.features.feature_table import Array
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.record.final import problems_of


@dataclass(frozen=True)
class Exhaustive:
    """A cold start and the latency of each of its pairs."""

    start: ColdStart
    latency_ms: Array

    @classmethod
    def of(cls, records: pd.DataFrame) -> Exhaustive:
        kernels = [parse_kernel_name(name) for name in sorted(records["kernel"].unique())]
        start = ColdStart.of(problems_of(records), kernels, records["arch"].iloc[0])
        return cls(start, start.latency_ms(records))

    def regret(self, per_problem: int) -> float:
        """What the best measured kernels lose, on average, after so many measurements a problem."""
        known = np.full(len(self.latency_ms), np.nan)
        for _ in range(per_problem):
            chosen, _ = self.start.choose(known, self.start.problems)
            known[chosen] = self.latency_ms[chosen]
        return self._lost(~np.isnan(known))

    def random_regret(self, per_problem: int) -> float:
        drawn = pd.Series(np.random.default_rng(0).random(len(self.latency_ms)))
        return self._lost((drawn.groupby(self.start.problem_of).rank() <= per_problem).to_numpy())

    def _lost(self, known: np.ndarray) -> float:
        measured = pd.Series(np.where(known, self.latency_ms, np.inf)).groupby(self.start.problem_of).min()
        return float((1 - pd.Series(self.latency_ms).groupby(self.start.problem_of).min() / measured).mean())
