"""A picker: whatever orders the kernels of a problem, a model or another program, behind one protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.kernel import Kernel
from tile_oracle.problem import Kind, Problem

if TYPE_CHECKING:
    import pandas as pd

FOLDER = "folder"
OUT_OF_FOLD = "out_of_fold"
HELD = "held"
PICKS = "picks"
VENDOR = "vendor"
PICKER = "picker"
NO_MODEL = "none"

_SENTENCES = {
    FOLDER: "ranked by the trained model {name}",
    VENDOR: "the own choice of {name}",
    PICKER: "picks of {name}",
    PICKS: "picks from the file {name}",
    OUT_OF_FOLD: "no trained model fits this target: ranked by out-of-fold predictions of {name} "
    "cross-validated on this run's own records",
    HELD: "no trained model fits this target: the picks of the baseline are judged again (--repick ranks the "
    "kernels again)",
}
"""What is said of each kind of origin."""

COLUMNS = ("problem", "kernel", "predicted_tflops")
"""The columns of rankings, one row a pair: problem id, kernel name, prediction or score. Their order is that
of tile_oracle.judge.ranking.Ranking."""

Pool = Callable[[Problem], Sequence[Kernel]]
"""The candidates for a problem."""


@dataclass(frozen=True)
class Origin:
    """The model that ranked the kernels. kind: "folder" (a trained model folder), "out_of_fold" (models
    cross-validated on this run's own records, each problem ranked by one that never saw it), "held" (the
    picks that the baseline holds, judged again), "picks" (a CSV file of picks), "vendor" (a library's own
    choice), "picker" (another maker's: tile_oracle.pickers) or "none".
    detail: one more sentence, such as the folds or the training data. order_only: its predictions are scores,
    not TFLOPS. considered: the models among which `auto` chose, a kind of problem at a time.

    identity: its version and the digests of its files. us_per_pick: its own time for one
    problem, in microseconds, on this machine. mapped: problem id -> what it chose, where the nearest
    kernel of the pool stands for it, by `rule`; same_tile: those of them whose tile and split-K are as
    chosen. lacking: problem id -> what it chose, which the pool lacks.
    fallback: the problems for which it has no choice of its own, but that for another shape, or a default."""

    kind: str = NO_MODEL
    name: str = ""
    detail: str = ""
    order_only: bool = False
    considered: tuple[Mapping[str, Any], ...] = ()
    identity: str = ""
    us_per_pick: float | None = None
    rule: str = ""
    mapped: Mapping[str, str] = field(default_factory=dict)
    same_tile: tuple[str, ...] = ()
    lacking: Mapping[str, str] = field(default_factory=dict)
    fallback: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """A sentence on the model's origin."""
        text = _SENTENCES.get(self.kind, "no model ranked the kernels: oracles only")
        text = text.format(name=self.name or "a model")
        return f"{text} ({self.detail})" if self.detail else text


@dataclass(frozen=True)
class Picker(ABC):
    """Whatever orders the kernels of a problem.

    name: in baselines and tables. folders: the model folder of each kind of problem, of a trained model.
    known: whether what it was trained on can be known.
    """

    name: str
    folders: Mapping[Kind, Path] = field(default_factory=dict, kw_only=True)
    known: bool = field(default=True, kw_only=True)

    @abstractmethod
    def rank(
        self, problems: Sequence[Problem], pool: Pool, records: pd.DataFrame | None = None
    ) -> tuple[pd.DataFrame | None, Origin]:
        """Rankings of the problems' candidates (COLUMNS), None where it ranks none of them, and their
        origin. records: the measurements of the problems, None before they exist. Raises ModelError for a
        picker that cannot be used."""
