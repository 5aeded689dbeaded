"""A trained model in memory: members that each predict the ln(time) of a kernel, and their weights.

Members are LightGBM ensembles of one target and optionally a physical time model. The pick is the kernel with
the lowest weighted mean of the members' scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tile_oracle.errors import ModelError
from tile_oracle.features import exact_math
from tile_oracle.features.code_table import CodeTable
from tile_oracle.features.columns import Columns
from tile_oracle.features.feature_table import Array, FeatureSchema
from tile_oracle.features.groups import group_minimum
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import flops_of
from tile_oracle.model.aliases import Aliases
from tile_oracle.model.network import NetworkMember
from tile_oracle.model.physics import PhysicalModel
from tile_oracle.model.roofline import RooflineModel
from tile_oracle.model.trees import Target, log_time_of, mean_predictions

if TYPE_CHECKING:
    import lightgbm as lgb


@dataclass(frozen=True)
class TreeMember:
    """Boosters of one target, whose predictions are averaged, and their features. `code`: metrics of
    binaries, for schemas that read them. `physical`: the time model whose ln(time) the trees correct."""

    target: Target
    schema: FeatureSchema
    feature_names: tuple[str, ...]
    boosters: tuple[lgb.Booster, ...]
    code: CodeTable = field(default_factory=CodeTable)
    physical: PhysicalModel | None = None

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def relative(self) -> bool:
        return self.target.relative

    def log_time(self, rows: Columns, hardware: Mapping[str, float], threads: int) -> Array:
        if self.schema.optional:
            rows = {**{str(name): rows[name] for name in rows}, **self.code.columns(rows["kernel"])}
        features = self.schema.compute(rows, hardware, self.feature_names)
        score = log_time_of(self.target, mean_predictions(self.boosters, features, threads), rows)
        return score if self.physical is None else self.physical.log_time(rows, hardware, threads) + score


Member = TreeMember | PhysicalModel | NetworkMember | RooflineModel
"""One part of a ranker. name: of what it predicts. relative: whether its scores only order the kernels of one
problem. log_time: ln(latency in ms) of every row; for a relative member up to a constant per problem."""


@dataclass(frozen=True)
class Ranker:
    """`weights`: weight of each member in the pick; other members only predict. `aliases`: names that are
    predicted as one kernel. `stated`: hardware features that replace the architecture's."""

    arch: str
    members: tuple[Member, ...]
    weights: Mapping[str, float] = field(default_factory=dict)
    aliases: Aliases = field(default_factory=Aliases)
    stated: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = set(self.weights) - {member.name for member in self.members}
        good = all(np.isfinite(weight) and weight >= 0 for weight in self.weights.values())
        if unknown or not good or not sum(self.weights.values()) > 0:
            raise ModelError(f"the picks' weights {dict(self.weights)} do not name members of the model")

    @cached_property
    def hardware(self) -> Mapping[str, float]:
        """The hardware features that its members read."""
        return {**hardware_features(self.arch), **self.stated}

    @property
    def trees(self) -> list[TreeMember]:
        """Its tree members."""
        return [member for member in self.members if isinstance(member, TreeMember)]

    @property
    def physical(self) -> PhysicalModel | None:
        """Its physical time model, if it has one."""
        return next((member for member in self.members if isinstance(member, PhysicalModel)), None)

    @property
    def network(self) -> NetworkMember | None:
        """Its networks, if it has some."""
        return next((member for member in self.members if isinstance(member, NetworkMember)), None)

    def member(self, name: str) -> Member:
        """Raises ModelError listing what the model predicts."""
        for member in self.members:
            if member.name == name:
                return member
        raise ModelError(
            f"the model does not predict {name}; it has {', '.join(m.name for m in self.members)}"
        )

    @property
    def orders_only(self) -> bool:
        """Whether predictions only order kernels within a problem: scores decide the picks
        (LambdaRank, pairs), or no member knows a time."""
        picking = [member.target for member in self.trees if self.weights.get(member.name, 0.0) > 0]
        absolute = any(not member.relative for member in self.members)
        return any(target.is_score for target in picking) or not absolute

    def knowing(self, code: CodeTable) -> Ranker:
        """Returns the ranker with metrics of further binaries; those that it already has take precedence."""
        return self._with_code(lambda own: own.over(code))

    def of_binaries(self, code: CodeTable) -> Ranker:
        """Returns the ranker with the metrics of the binaries at hand in place of those that it remembers."""
        return self._with_code(code.over)

    def _with_code(self, changed: Callable[[CodeTable], CodeTable]) -> Ranker:
        return replace(
            self,
            members=tuple(
                replace(one, code=changed(one.code)) if isinstance(one, TreeMember) else one
                for one in self.members
            ),
        )

    def log_time(self, rows: Columns, groups: npt.NDArray[np.int64], threads: int = 1) -> Array:
        """Returns predicted ln(latency in ms) of every row, in the order of the picks within each problem.

        `rows`: the fields of problem and kernel, and `kernel`, the names. `groups`: the problem number (0, 1,
        ...) of each row. If a relative member decides the order, each problem's mean level comes from the
        absolute members; without any, the fastest kernel of a problem is set to ln(1 ms).
        """
        if self.aliases.change_scores:
            rows, offset = self.aliases.canonical(rows)
            return np.asarray(self._log_time(rows, groups, threads) + offset)
        return self._log_time(rows, groups, threads)

    def _log_time(self, rows: Columns, groups: npt.NDArray[np.int64], threads: int) -> Array:
        scores = {m.name: m.log_time(rows, self.hardware, threads) for m in self.members if self.uses(m)}
        total = sum(self.weights.values())
        score: Array = sum(
            (self.weights[name] / total * scores[name] for name in self.weights), start=np.zeros(len(groups))
        )
        if not any(self.member(name).relative for name in self.weights):
            return score
        absolute = [scores[m.name] for m in self.members if not m.relative]
        if not absolute:
            return np.asarray(score - group_minimum(score, groups))
        level = sum(absolute, start=np.zeros(len(groups))) / len(absolute)
        return np.asarray(score + _group_mean(level - score, groups))

    def tflops(self, rows: Columns, groups: npt.NDArray[np.int64], threads: int = 1) -> Array:
        """Returns predicted TFLOPS of every row; within a problem a higher value is the better pick."""
        return tflops_at(rows, self.log_time(rows, groups, threads))

    def uses(self, member: Member) -> bool:
        """Returns whether picks depend on this member; the others only predict."""
        needs_level = any(m.relative for m in self.members if m.name in self.weights)
        return member.name in self.weights or (needs_level and not member.relative)


MOST_LOG_TIME = 50.0
"""The limit of |predicted ln(time)| in the conversion to TFLOPS."""


def tflops_at(rows: Columns, log_time: Array) -> Array:
    """TFLOPS of every row's problem at a predicted ln(latency in ms)."""
    inside = np.clip(log_time, -MOST_LOG_TIME, MOST_LOG_TIME)
    return np.asarray(flops_of(rows) / (exact_math.exp(inside) * 1e9))


def _group_mean(values: Array, groups: npt.NDArray[np.int64]) -> Array:
    size = np.bincount(groups)
    return np.asarray((np.bincount(groups, values) / np.maximum(size, 1))[groups])


def constant_groups(problems: int, kernels: int) -> npt.NDArray[np.int64]:
    """Problem numbers of a problems x kernels product in the order of `pair_columns`."""
    return np.repeat(np.arange(problems, dtype=np.int64), kernels)
