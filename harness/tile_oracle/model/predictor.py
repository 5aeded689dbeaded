"""Predictions from a model folder, published or own: `Predictor.load(folder).rank(problem, kernels)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tile_oracle.errors import ModelError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.features.columns import own_pair_columns, pair_columns, shared_fields
from tile_oracle.features.feature_table import Array, FeatureSchema
from tile_oracle.features.hardware import hardware_features, stated_hardware
from tile_oracle.features.schemas import op_of_model, schema_with, schemas_of_model, work_of
from tile_oracle.judge.ranking import best_first
from tile_oracle.kernel import Kernel
from tile_oracle.model.model_folder import ModelSpec, read_booster, read_spec
from tile_oracle.model.network import NAME as NETWORK
from tile_oracle.model.network import NetworkMember
from tile_oracle.model.physics import PhysicalModel
from tile_oracle.model.ranker import Member, Ranker, TreeMember
from tile_oracle.model.roofline import NAME as ROOFLINE
from tile_oracle.model.roofline import RooflineModel
from tile_oracle.model.store import CODE_FILE, NETWORK_FILE, PHYSICAL_FILE, kernels_trained_on, read_json
from tile_oracle.model.trees import Target, target_named
from tile_oracle.operation import operation_named
from tile_oracle.problem import Kind, Problem

if TYPE_CHECKING:
    import lightgbm as lgb


@dataclass(frozen=True)
class Predictor:
    """A loaded model. Methods take problems and kernels of the kind that it was trained for."""

    folder: Path
    spec: ModelSpec
    ranker: Ranker
    threads: int = 1

    @classmethod
    def load(cls, folder: Path | str, threads: int = 1) -> Predictor:
        """Returns the model in a folder. A model with fewer features reads only its columns of the schema.

        Raises ModelError when a file is missing or damaged, or when no schema has one of the model's
        features.
        """
        folder = Path(folder)
        spec = read_spec(folder)
        return cls(folder, spec, ranker_of(folder, spec, _boosters), threads)

    def predict(
        self, problems: Problem | Sequence[Problem], kernels: Sequence[Kernel], target: str | None = None
    ) -> Array:
        """Returns predicted TFLOPS: (kernels,) for one problem, (problems, kernels) for several.

        With `target` (tflops, latency, bandwidth, ...), that member's own prediction, in TFLOPS, GB/s or ms.
        """
        one = not isinstance(problems, Sequence)
        listed = problems if isinstance(problems, Sequence) else [problems]
        if target is None or not (listed and kernels):
            found = np.concatenate([np.zeros(0), *self.predict_each(listed, [kernels] * len(listed))])
        else:
            self._check(listed, kernels)
            rows, member = pair_columns(listed, kernels), self.ranker.member(target)
            if self.ranker.aliases.representative:
                rows, _ = self.ranker.aliases.canonical(rows)
            found = _in_units(target, member.log_time(rows, self.ranker.hardware, self.threads), rows)
        values: Array = found.reshape(len(listed), len(kernels))
        return values[0] if one else values

    def predict_each(self, problems: Sequence[Problem], pools: Sequence[Sequence[Kernel]]) -> list[Array]:
        """Returns the predicted TFLOPS of each problem's own kernels, (kernels,) for each problem.

        The numbers are those of `predict`. LightGBM and each formula are called a few times, not once for
        each problem.
        """
        alike: dict[frozenset[str], list[int]] = {}
        for place, (problem, pool) in enumerate(zip(problems, pools, strict=True)):
            self._check([problem], pool)
            # A formula may read a field where all kernels of a table have it.
            alike.setdefault(shared_fields(pool), []).append(place)
        found: list[Array] = [np.zeros(0)] * len(problems)
        for places in alike.values():
            some, own = [problems[place] for place in places], [pools[place] for place in places]
            sizes = [len(pool) for pool in own]
            if not sum(sizes):
                continue
            groups = np.repeat(np.arange(len(some), dtype=np.int64), sizes)
            values = self.ranker.tflops(own_pair_columns(some, own), groups, self.threads)
            for place, part in zip(places, np.split(values, np.cumsum(sizes)[:-1]), strict=True):
                found[place] = part
        return found

    def rank(self, problem: Problem, kernels: Sequence[Kernel]) -> list[tuple[Kernel, float]]:
        """Kernels with their predicted TFLOPS, best first (tile_oracle.judge.ranking)."""
        tflops = self.predict(problem, kernels).tolist()
        order = best_first(tflops, [kernel.name for kernel in kernels])
        return [(kernels[place], tflops[place]) for place in order]

    def select(self, problem: Problem, kernels: Sequence[Kernel]) -> Kernel:
        """Returns the pick. Raises ModelError for an empty pool."""
        if not kernels:
            raise ModelError(f"no kernel to choose from for {problem.id}")
        return self.rank(problem, kernels)[0][0]

    @property
    def ranks_named(self) -> bool:
        """Whether kernels of Triton files and libraries have features, too."""
        return self.spec.ranks_named

    @property
    def reads_code(self) -> bool:
        """Whether the model reads metrics of binaries."""
        return any(member.schema.optional for member in self.ranker.trees)

    def knowing(self, code: CodeTable) -> Predictor:
        """Returns the predictor with the metrics of the binaries at hand, which replace those of its folder:
        another compiler gives a kernel other registers and spills."""
        return replace(self, ranker=self.ranker.of_binaries(code)) if self.reads_code else self

    @cached_property
    def measured_kernels(self) -> frozenset[str]:
        """Names of the kernels that the model was trained on; empty if its folder does not list them."""
        return kernels_trained_on(self.folder) | frozenset(self.ranker.aliases.representative)

    def _check(self, problems: Sequence[Problem], kernels: Sequence[Kernel]) -> None:
        kinds = {kernel.kind: kernel for kernel in kernels}
        for problem in problems:
            check_problem(self.folder, self.spec, problem)
            for kernel in kinds.values():
                if not kernel.matches(problem):
                    raise ModelError(f"kernel {kernel.name} is not a candidate for {problem.id}")


def check_problem(folder: Path, spec: ModelSpec, problem: Problem) -> None:
    """Raises ModelError unless the folder's model was trained for problems like this one."""
    op = op_of_model(spec.op_type)
    if problem.op != op:
        raise ModelError(f"the model predicts {operation_named(op).plural}, not {type(problem).__name__}")
    check_kind(folder, spec, problem.kind)


def check_kind(folder: Path, spec: ModelSpec, kind: Kind) -> None:
    """Raises ModelError unless the folder's model was trained for problems of this kind. The operation is not
    checked."""
    against = kind_refusal(spec, kind)
    if against is not None:
        raise ModelError(f"{folder} {against}")


def kind_refusal(spec: ModelSpec, kind: Kind) -> str | None:
    """Returns why a model does not predict problems of this kind of its operation; None if it does."""
    trained_for: dict[str, tuple[str, tuple[object, ...]]] = {
        "direction": ("", (spec.direction,) if spec.direction else ()),
        "dtype": ("", (spec.dtype,)),
        "ndim": ("rank ", spec.ndims),
    }
    for name, have in kind.fields:
        what, wanted = trained_for.get(name, ("", ()))
        if wanted and have not in wanted:
            return f"was trained for {what}{' and '.join(map(str, wanted))}, not {have}"
    return None


@dataclass(frozen=True)
class TreeParts:
    """A tree member as its folder describes it, without its `count` boosters."""

    name: str
    target: Target
    schema: FeatureSchema
    feature_names: tuple[str, ...]
    count: int


ReadBoosters = Callable[[Path, TreeParts], "tuple[lgb.Booster, ...]"]


def ranker_of(folder: Path, spec: ModelSpec, read_boosters: ReadBoosters) -> Ranker:
    """Returns the ranker of a model folder. `read_boosters` reads a member's trees; it may return none if the
    ranker does not have to predict. Raises ModelError like `Predictor.load`."""
    hardware_features(spec.arch)
    picks = dict(spec.picks) or {("tflops" if "tflops" in spec.targets else spec.targets[0]): 1.0}
    members = _members(folder, spec, read_boosters)
    return Ranker(spec.arch, members, picks, spec.aliases, stated_hardware(spec.hardware))


def _members(folder: Path, spec: ModelSpec, read_boosters: ReadBoosters) -> tuple[Member, ...]:
    members: list[Member] = []

    def tree_member(name: str, corrected: PhysicalModel | None = None) -> TreeMember:
        parts = _tree_parts(spec, name)
        code = CodeTable()
        if parts.schema.optional and (folder / CODE_FILE).is_file():
            code = CodeTable.from_json(read_json(folder / CODE_FILE), folder / CODE_FILE)
        boosters = read_boosters(folder, parts)
        return TreeMember(parts.target, parts.schema, parts.feature_names, boosters, code, corrected)

    physical = None
    if {"physical", "correction"} & set(spec.targets):
        physical = PhysicalModel.from_json(read_json(folder / PHYSICAL_FILE))
    for name in spec.targets:
        if name == "physical" and physical is not None:
            members.append(physical)
        elif name == "correction" and physical is not None:
            members.append(tree_member(name, physical))
        elif name == NETWORK:
            schemas = schemas_of_model(spec.op_type)
            members.append(NetworkMember.from_json(read_json(folder / NETWORK_FILE), schemas))
        elif name == ROOFLINE:
            members.append(RooflineModel(spec.arch))
        else:
            members.append(tree_member(name))
    return tuple(members)


def _tree_parts(spec: ModelSpec, name: str) -> TreeParts:
    target = target_named(name)
    names = spec.feature_names_of.get(name, spec.feature_names)
    known = {one.name: one for one in schemas_of_model(spec.op_type)}
    own = known.get(spec.schema or "")
    schema = own if own is not None and set(names) <= set(own.names) else schema_with(spec.op_type, names)
    if target.logged and name not in spec.log_targets:
        target = target.unlogged()
    return TreeParts(name, target, schema, names, max(1, spec.members.get(name, 1)))


def _boosters(folder: Path, parts: TreeParts) -> tuple[lgb.Booster, ...]:
    boosters = tuple(read_booster(folder, parts.name, number) for number in range(parts.count))
    for booster in boosters:
        check_feature_count(folder, parts, booster.num_feature())
    return boosters


def check_feature_count(folder: Path, parts: TreeParts, count: int) -> None:
    """Raises ModelError unless a booster has as many features as the folder names."""
    if count != len(parts.feature_names):
        raise ModelError(
            f"{folder}: model_{parts.name} was trained on {count} features, "
            f"feature_spec.json names {len(parts.feature_names)}"
        )


def _in_units(target: str, log_time: Array, rows: dict[str, np.ndarray]) -> Array:
    if target == "tflops":
        return np.asarray(work_of(rows).flops / (np.exp(log_time) * 1e9))
    if target == "bandwidth":
        return np.asarray(work_of(rows).bytes / (np.exp(log_time) * 1e6))
    return np.asarray(np.exp(log_time))
