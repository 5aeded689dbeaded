"""The order of a model's predictions: higher ones first, of equal ones the kernel whose name sorts first.

All that picks or judges has this order: sessions, replays, `evaluate` and `pick`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

_Codes = npt.NDArray[np.int64]


def best_first(predicted: Sequence[float] | npt.NDArray[np.float64], names: Sequence[str]) -> list[int]:
    """Returns the places of one problem's kernels in order."""
    return sorted(range(len(names)), key=lambda place: (-predicted[place], names[place]))


@dataclass(frozen=True)
class Ranking:
    """Rankings (problem, kernel, predicted_tflops), by problem id, best first. Sorts numbers, not names:
    there is one for every pair.

    problems, kernels: the distinct names, sorted. problem, kernel: of each row of the rankings, the place of
    its name. rows: the rankings' rows in order.
    """

    problems: npt.NDArray[np.object_]
    kernels: npt.NDArray[np.object_]
    problem: _Codes
    kernel: _Codes
    predicted: npt.NDArray[np.float64]
    rows: _Codes

    @classmethod
    def of(cls, rankings: pd.DataFrame) -> Ranking:
        problem, problems = _places(rankings["problem"])
        kernel, kernels = _places(rankings["kernel"])
        predicted = rankings["predicted_tflops"].to_numpy(dtype=np.float64)
        return cls(problems, kernels, problem, kernel, predicted, np.lexsort((kernel, -predicted, problem)))

    @cached_property
    def counts(self) -> _Codes:
        """The number of ranked kernels of each of `problems`."""
        return np.bincount(self.problem, minlength=len(self.problems))

    @cached_property
    def ranks(self) -> _Codes:
        """The rank, from 1, of each of `rows`."""
        starts = np.cumsum(self.counts) - self.counts
        return np.arange(len(self.rows)) - starts[self.problem[self.rows]] + 1

    @property
    def has_duplicates(self) -> bool:
        """Whether a pair is ranked twice."""
        return bool(pd.Index(self.problem * max(len(self.kernels), 1) + self.kernel).has_duplicates)

    def best(self, most: int, oracle_of: Mapping[str, str]) -> pd.DataFrame:
        """Returns the first `most` rows of each problem of `oracle_of` and that of its oracle: `problem`,
        `kernel`, `predicted_tflops`, `rank`."""
        place = {name: number for number, name in enumerate(self.kernels)}
        known = np.array([name in oracle_of for name in self.problems], dtype=bool)
        oracles = np.array([place.get(oracle_of.get(name, ""), -1) for name in self.problems], dtype=np.int64)
        problem, kernel = self.problem[self.rows], self.kernel[self.rows]
        chosen = np.flatnonzero(known[problem] & ((self.ranks <= most) | (kernel == oracles[problem])))
        return pd.DataFrame(
            {
                "problem": self.problems[problem[chosen]],
                "kernel": self.kernels[kernel[chosen]],
                "predicted_tflops": self.predicted[self.rows[chosen]],
                "rank": self.ranks[chosen],
            }
        )

    def of_problems(self) -> Iterator[tuple[str, list[str], list[float]]]:
        """Problem id, its kernels, best first, and their predictions."""
        ends = np.cumsum(self.counts)
        for name, start, end in zip(self.problems, ends - self.counts, ends, strict=True):
            rows = self.rows[start:end]
            yield str(name), self.kernels[self.kernel[rows]].tolist(), self.predicted[rows].tolist()


def _places(column: pd.Series) -> tuple[_Codes, npt.NDArray[np.object_]]:
    """Returns the place of each name among the sorted distinct names, and these."""
    codes, found = pd.factorize(column)
    names = np.asarray(found, dtype=object)
    order = np.argsort(names)
    return np.argsort(order)[codes], names[order]
