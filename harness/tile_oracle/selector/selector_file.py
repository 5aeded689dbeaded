"""Writes a model and a pool as one file for the native ranker: `selector_bytes`.

Everything that does not depend on the problem is computed here: aliases, features of the kernels alone,
coefficients of the time model, classes of equal kernels. The file holds the rest as a program
(selector.program) and the forests (tile_oracle.model.model_text). `tile_oracle/selector.hpp` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tile_oracle.errors import ModelError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.features.feature_table import Array, Feature, FeatureTable
from tile_oracle.features.schemas import op_of_model, work_schema
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.aliases import Aliases
from tile_oracle.model.model_folder import ModelSpec, read_forest, read_spec
from tile_oracle.model.model_text import Forest
from tile_oracle.model.network import Inputs, NetworkMember
from tile_oracle.model.physics import PhysicalModel
from tile_oracle.model.predictor import TreeParts, check_feature_count, check_kind, ranker_of
from tile_oracle.model.ranker import Member, Ranker, TreeMember
from tile_oracle.model.roofline import RooflineModel
from tile_oracle.model.store import no_model_there
from tile_oracle.model.trees import Target
from tile_oracle.operation import operation_named
from tile_oracle.problem import Kind, kind_text
from tile_oracle.selector.program import ByteWriter, ProgramMaker
from tile_oracle.selector.trace import Graph, Node, Partition, Pool, partition_by, partition_by_rows

if TYPE_CHECKING:
    import lightgbm as lgb

MAGIC = b"tile-oracle selector 3\n"
_KINDS = ("constant", "kernel", "interaction")
_SAYS = ("log_time", "relative", "latency", "tflops", "bandwidth")
_AS_IT_IS, _LEAST_IS_ZERO, _MEAN_OF_ABSOLUTE = range(3)
_NO_TREES = (1 << 32) - 1


@dataclass(frozen=True)
class NativeModel:
    """The parts of a model folder that `selector_bytes` needs: the ranker without its trees, and the
    trees."""

    folder: Path
    spec: ModelSpec
    ranker: Ranker
    forests: dict[str, tuple[Forest, ...]]

    @classmethod
    def load(cls, folder: Path | str, code: CodeTable | None = None) -> NativeModel:
        """Reads the folder without LightGBM. code: facts of further kernels' binaries, for a model that uses
        them. Raises ModelError like Predictor.load, and for trees that native code does not support.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise ModelError(no_model_there(folder))
        spec = read_spec(folder)
        forests: dict[str, tuple[Forest, ...]] = {}

        def keep(folder: Path, parts: TreeParts) -> tuple[lgb.Booster, ...]:
            numbers = range(parts.count)
            forests[parts.name] = tuple(read_forest(folder, parts.name, number) for number in numbers)
            for forest in forests[parts.name]:
                check_feature_count(folder, parts, len(forest.feature_names))
            return ()

        ranker = ranker_of(folder, spec, keep)
        return cls(folder, spec, ranker if code is None else ranker.of_binaries(code), forests)


def problem_fields(op: str) -> tuple[str, ...]:
    """Returns the fields of an operation's problems that vary within one kind."""
    return operation_named(op).free_fields


def shared_words(kind: Kind) -> dict[str, str | int]:
    """Field -> value, of the fields that are the same for all problems of a kind and their kernels."""
    return dict(kind.fields)


def kind_of(kernels: Sequence[Kernel]) -> Kind:
    """Returns the kind of problem that all these kernels are candidates for. Raises ModelError for
    several."""
    kinds = {kernel.kind: kernel for kernel in kernels}
    if len(kinds) != 1:
        named = " and ".join(kernel.name for kernel in list(kinds.values())[:2]) or "none"
        raise ModelError(
            f"the kernels of a selector must be of one kind of problem, these are of several: {named}"
        )
    return next(iter(kinds))


def selector_bytes(model: NativeModel, kernels: Sequence[Kernel]) -> bytes:
    """Returns the content of a selector file for a model and its candidates, which are of one kind of
    problem.

    Raises ModelError for kernels of another kind than the model's, and for features that native code does not
    support (the message names feature and operation).
    """
    kind = kind_of(kernels)
    op = op_of_model(model.spec.op_type)
    wrong = next((kernel for kernel in kernels if kernel.op != op), None)
    if wrong is not None:
        raise ModelError(f"{model.folder} is for {op}: {wrong.name} is not such a kernel")
    check_kind(model.folder, model.spec, kind)
    for member in model.ranker.members:
        if isinstance(member, RooflineModel):
            raise ModelError(
                f"{model.folder}: exported C++ cannot compute the {member.name} model; tile-oracle's "
                "commands and sessions can"
            )
    return _Maker(model, kernels, kind, op).made()


@dataclass(frozen=True)
class _Standing:
    """The distinct kernels that are predicted, and for each candidate its kernel's index and ln(time)
    offset."""

    names: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    of: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.float64] | None

    @classmethod
    def of_pool(cls, aliases: Aliases, kernels: Sequence[Kernel]) -> _Standing:
        if not aliases.change_scores:
            found = [(kernel.name, 0.0) for kernel in kernels]
        else:
            found = [aliases.stand_in(kernel.name, kernel) for kernel in kernels]
        by_name = {kernel.name: kernel for kernel in kernels}
        numbers: dict[str, int] = {}
        of = [numbers.setdefault(name, len(numbers)) for name, _ in found]
        standing = tuple(by_name.get(name) or parse_kernel_name(name) for name in numbers)
        offsets = np.array([offset for _, offset in found]) if aliases.change_scores else None
        return cls(tuple(numbers), standing, np.array(of), offsets)


class _Maker:
    """Builds one file."""

    def __init__(self, model: NativeModel, kernels: Sequence[Kernel], kind: Kind, op: str) -> None:
        self.model, self.kernels, self.kind, self.op = model, kernels, kind, op
        self.ranker = model.ranker
        self.standing = _Standing.of_pool(self.ranker.aliases, kernels)
        self.pool = Pool(self.standing.kernels, shared_words(kind), problem_fields(op), self.ranker.hardware)
        self.graph: Graph = self.pool.graph
        self.program = ProgramMaker(self.pool.problem_fields)
        self.all_alike = partition_by(np.zeros(len(self.standing.kernels), dtype=np.int64))

    def made(self) -> bytes:
        used = [member for member in self.ranker.members if self.ranker.uses(member)]
        trees = [member for member in used if isinstance(member, TreeMember)]
        physical = next((one for member in used if (one := _physical_of(member)) is not None), None)
        body = ByteWriter()
        body.u32(len(trees))
        rows_of_trees = [self._write_trees(body, member) for member in trees]
        body.u32(int(physical is not None))
        rows_of_physical = self.all_alike if physical is None else self._write_physical(body, physical)
        networks = next((member for member in used if isinstance(member, NetworkMember)), None)
        body.u32(0 if networks is None else len(networks.networks))
        rows_of_networks = self.all_alike if networks is None else self._write_networks(body, networks)
        distinct = self.all_alike
        for rows in (*rows_of_trees, rows_of_physical, rows_of_networks):
            distinct = distinct.refined_by(rows)
        body.u32(distinct.count, len(used))
        for member in used:
            number = trees.index(member) if isinstance(member, TreeMember) else _NO_TREES
            timed = _physical_of(member) is not None
            body.u32(number, int(timed), int(member is networks))
            body.u32s([] if number == _NO_TREES else rows_of_trees[number].of[distinct.first])
            body.u32s(rows_of_physical.of[distinct.first] if timed else [])
            body.u32s(rows_of_networks.of[distinct.first] if member is networks else [])
        self._write_sum(body, used)
        body.u32s(distinct.of[self.standing.of])
        body.f64s([] if self.standing.offsets is None else self.standing.offsets)
        return self._written_head() + body.written()

    def _written_head(self) -> bytes:
        """Returns the header: kind of problem, candidates, and the program. Call it after all values are
        placed."""
        work = [self.program.place(node).operand for node in self.pool.trace(*work_schema(self.op))]
        head = ByteWriter()
        for text in (self.op, kind_text(self.kind), self.ranker.arch):
            head.text(text)
        head.texts(self.pool.problem_fields)
        head.texts(kernel.name for kernel in self.kernels)
        self.program.write(head)
        head.u32(*work)
        return MAGIC + bytes(-len(MAGIC) % 4) + head.written()

    def _write_trees(self, to: ByteWriter, member: TreeMember) -> Partition:
        """Writes a tree member; returns the classes of kernels that its trees distinguish."""
        forests = self.model.forests[member.name]
        split_on = {int(number) for forest in forests for number in np.unique(forest.split_feature)}
        numbers = sorted(split_on)
        names = [member.feature_names[number] for number in numbers]
        code = member.code.columns(self.standing.names) if member.schema.optional else None
        nodes = dict(zip(numbers, self.pool.trace(member.schema, names, code), strict=True))
        rows = self._rows(nodes.values())
        to.u32(_SAYS.index(_says(member.target)), int(member.target.logged), rows.count)
        to.u32(len(member.feature_names))
        unread = self.graph.fixed(0.0)
        for number in range(len(member.feature_names)):
            self._write_column(to, nodes.get(number, unread), rows)
        to.u32(len(forests))
        for forest in forests:
            to.data(forest.to_bytes())
        return rows

    def _write_physical(self, to: ByteWriter, physical: PhysicalModel) -> Partition:
        """Writes the time model; returns the classes of kernels that it distinguishes."""
        coefficients = physical.coefficients_of(self.standing.names, self.standing.kernels)
        nodes = self.pool.trace(physical.schema, physical.terms)
        rows = self._rows(nodes)
        for column in coefficients.T:
            rows = rows.refined_by(partition_by(np.ascontiguousarray(column).view(np.int64)))
        to.u32(rows.count, len(nodes))
        for node in nodes:
            self._write_column(to, node, rows)
        to.f64s(coefficients[rows.first].T)
        return rows

    def _write_networks(self, to: ByteWriter, member: NetworkMember) -> Partition:
        """Writes the networks; returns the classes of kernels that they distinguish."""
        inputs = member.inputs
        formulas = [
            Feature(f"input {name}", partial(_input, inputs, place), "standardised")
            for place, name in enumerate(inputs.columns)
        ]
        schema = member.schema.extended(member.schema.name, formulas)
        names = [one.name for one in formulas]
        nodes = self.pool.trace(schema, [*names, *inputs.kernel_columns, *filter(None, [member.prior])])
        numbers, prior = nodes[: len(names)], nodes[len(names) + len(inputs.kernel_columns) :]
        categories = nodes[len(names) : len(nodes) - len(prior)]
        places = {kind: [i for i, node in enumerate(numbers) if node.kind == kind] for kind in _KINDS}
        own = self._of_kernels([numbers[place] for place in places["kernel"]])
        marks = inputs.marks(self._of_kernels(categories))
        joint = [numbers[place] for place in places["interaction"]]
        classes = self._rows(joint)
        rows = self._rows([*joint, *prior]).refined_by(partition_by_rows(np.hstack([own, marks])))
        to.u32(rows.count, len(prior))
        for node in prior:
            self._write_column(to, node, rows)
        for network, sums in zip(
            member.networks, member.of_kernels(own, places["kernel"], marks), strict=True
        ):
            to.u32(rows.count)
            to.u32s(classes.of[rows.first])
            for of_kind, of_rows in (("constant", rows), ("interaction", classes)):
                to.u32(len(places[of_kind]))
                for place in places[of_kind]:
                    self._write_column(to, numbers[place], of_rows)
            first, *others = network
            to.u32(len(network), len(first.bias))
            to.f32s(first.weights[places["constant"]])
            to.f32s(first.weights[places["interaction"]])
            to.f32s(sums[rows.first])
            for layer in others:
                to.u32(len(layer.bias))
                to.f32s(layer.weights)
                to.f32s(layer.bias)
        return rows

    def _of_kernels(self, nodes: Sequence[Node]) -> Array:
        """Returns the values of columns that depend on the kernel alone, (kernels, columns)."""
        found = np.empty((len(self.standing.kernels), len(nodes)))
        for place, node in enumerate(nodes):
            found[:, place] = node.values
        return found

    def _rows(self, nodes: Iterable[Node]) -> Partition:
        rows = self.all_alike
        for node in nodes:
            partition = self.graph.partition_of(node)
            rows = rows if partition is None else rows.refined_by(partition)
        return rows

    def _write_column(self, to: ByteWriter, node: Node, rows: Partition) -> None:
        """Writes the location of a node's value: a single one, or one for each class of rows."""
        partition = self.graph.partition_of(node)
        if node.kind == "kernel" and node.values is not None and partition is not None:
            operand = self.program.constant(node.values[partition.first])
        else:
            operand = self.program.place(node).operand
        to.u32(_KINDS.index(node.kind), operand, 1 if partition is None else partition.count)
        to.u32s([] if partition is None else partition.of[rows.first])

    def _write_sum(self, to: ByteWriter, used: Sequence[Member]) -> None:
        """Writes the weights with which the members' scores are added; see Ranker.log_time."""
        names = [member.name for member in used]
        weights = self.ranker.weights
        total = sum(weights.values())
        to.u32s([names.index(name) for name in weights])
        to.f64s([weight / total for weight in weights.values()])
        absolute = [number for number, member in enumerate(used) if not member.relative]
        if not any(self.ranker.member(name).relative for name in weights):
            to.u32(_AS_IT_IS)
        else:
            to.u32(_MEAN_OF_ABSOLUTE if absolute else _LEAST_IS_ZERO)
        to.u32s(absolute)


def _input(inputs: Inputs, place: int, table: FeatureTable) -> Array:
    return inputs.number(place, table[inputs.columns[place]])


def _says(target: Target) -> str:
    """Returns the number in `tile_oracle::Says` of the quantity that a target's trees predict."""
    if target.relative:
        return "relative"
    says = "log_time" if target.name == "correction" else target.name
    if says not in _SAYS:
        raise ModelError(f"native code does not support the target {target.name}")
    return says


def _physical_of(member: Member) -> PhysicalModel | None:
    """Returns the time model that a member is, or corrects."""
    return getattr(member, "physical", member if isinstance(member, PhysicalModel) else None)
