"""Traces the formulas of a feature schema: each is evaluated once, on symbols, to get its expression.

So features are defined only in the schemas. During tracing a problem column is a symbol, and a kernel column
holds the values of the given pool. The operations of the formula are recorded in numpy's order, so evaluating
the expression gives the same bits as numpy. The expression shows what a feature depends on:

    constant      the problem alone (or nothing): one value per problem
    kernel        the kernels alone: computed at once, for the whole pool
    interaction   both: one value per class of kernels that have equal values in every kernel column, or
                  expression of kernel columns, that is combined with the problem in the formula
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from tile_oracle.errors import ModelError
from tile_oracle.features import exact_math
from tile_oracle.features.columns import Column, field_columns
from tile_oracle.features.feature_table import Array, FeatureSchema, FeatureTable
from tile_oracle.kernel import Kernel

Classes = npt.NDArray[np.int64]

NUMPY_OF: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "less": np.less,
    "less_equal": np.less_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_not": np.logical_not,
    "negative": np.negative,
    "absolute": np.absolute,
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "rint": np.rint,
    "sqrt": np.sqrt,
    "log2": exact_math.log2,
    "log": exact_math.log,
    "exp": exact_math.exp,
    "expm1": exact_math.expm1,
    "common_bits": lambda a, b: _as_int64(a) & _as_int64(b),
    "where": lambda condition, a, b: np.where(np.asarray(condition) != 0, a, b),
}
"""Operation -> its evaluation, for all operations of expressions. All values are float64; true is 1.0."""

_COMPARED_BACKWARDS = {"greater": "less", "greater_equal": "less_equal"}
_OF_FLAGS = {
    "bitwise_and": "logical_and", "bitwise_or": "logical_or", "invert": "logical_not",
    "logical_and": "logical_and", "logical_or": "logical_or", "logical_not": "logical_not",
    "multiply": "logical_and",
}  # fmt: skip
_MAKES_FLAGS = ("less", "less_equal", "equal", "not_equal", "logical_and", "logical_or", "logical_not")
_NOT_NUMPYS_OWN = ("log2", "log", "exp", "expm1")  # numpy's own differ between processors
_OF_INTEGERS = {"bitwise_and": "common_bits", "negative": "negative", "trunc": "trunc"}


def _as_int64(values: Any) -> npt.NDArray[np.int64]:
    """Truncates to 64-bit integers; NaN and values out of range give the smallest integer.

    numpy's result for these depends on the processor.
    """
    given = np.asarray(values)
    if given.dtype.kind in "iub":
        return given.astype(np.int64)
    held = (given >= -(2.0**63)) & (given < 2.0**63)
    return np.where(held, given, -(2.0**63)).astype(np.int64)


@dataclass(frozen=True)
class Partition:
    """A partition of the kernels into classes. of: each kernel's class, (kernels,); classes are numbered in
    the order of their first kernels."""

    of: Classes
    first: Classes

    @property
    def count(self) -> int:
        return len(self.first)

    def refined_by(self, other: Partition) -> Partition:
        """Returns the common refinement: two kernels share a class if they share one in both partitions."""
        return partition_by(self.of * other.count + other.of)


def partition_by(keys: npt.NDArray[Any]) -> Partition:
    """Returns the partition in which kernels with equal keys share a class."""
    _, first, of = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return Partition(rank[of.reshape(-1)], first[order])


def partition_by_rows(table: npt.NDArray[Any]) -> Partition:
    """Returns the partition in which kernels with equal rows of a table share a class."""
    return partition_by(np.unique(table, axis=0, return_inverse=True)[1].reshape(-1))


@dataclass(frozen=True, eq=False)
class Node:
    """One value of an expression.

    values: if it does not depend on the problem, (kernels,), or (1,) if it is equal for all kernels; else
    None. field: the problem field that it is, if any. operation, operands: how it is computed. partition: the
    classes of kernels of an interaction; None if all kernels share the value.
    """

    number: int
    values: Array | None = None
    field: str = ""
    operation: str = ""
    operands: tuple[Node, ...] = ()
    partition: Partition | None = None

    @property
    def kind(self) -> str:
        """constant, kernel or interaction."""
        if self.values is not None:
            return "constant" if len(self.values) == 1 else "kernel"
        return "constant" if self.partition is None else "interaction"


class Graph:
    """The expressions over one pool; equal subexpressions are one node. kernels: how many the pool has."""

    def __init__(self, kernels: int = 1) -> None:
        self.kernels = kernels
        self._nodes: dict[Any, Node] = {}
        self._partitions: dict[bytes, Partition] = {}
        self._of_columns: dict[int, Partition] = {}

    def fixed(self, values: Any) -> Node:
        """Returns a node that does not depend on the problem: one value, or one per kernel."""
        array = np.asarray(values, dtype=np.float64).reshape(-1)
        bits = array.view(np.int64)
        if len(array) and (bits == bits[0]).all():
            array = array[:1]
        array = array if array.flags.owndata else array.copy()
        return self._node(("fixed", array.tobytes()), values=array)

    def of_problem(self, name: str) -> Node:
        """Returns a field of the problem."""
        return self._node(("field", name), field=name)

    def apply(self, operation: str, *operands: Node) -> Node:
        """Returns the operation on these operands; evaluated at once if it does not depend on the problem."""
        if all(operand.values is not None for operand in operands):
            with np.errstate(all="ignore"):
                return self.fixed(NUMPY_OF[operation](*(operand.values for operand in operands)))
        if operation == "where":
            condition = operands[0].values
            if condition is not None and len(condition) == 1:
                return operands[1] if condition[0] != 0 else operands[2]
        partition: Partition | None = None
        for operand in operands:
            of_operand = self.partition_of(operand)
            if of_operand is not None and of_operand is not partition:
                partition = of_operand if partition is None else self._known(partition.refined_by(of_operand))
        key = (operation, *(operand.number for operand in operands))
        return self._node(key, operation=operation, operands=operands, partition=partition)

    def partition_of(self, node: Node) -> Partition | None:
        """Returns the classes of kernels that may have different values of this node; None if all share
        it."""
        if node.values is None or len(node.values) == 1:
            return node.partition
        found = self._of_columns.get(node.number)
        if found is None:
            found = self._known(partition_by(node.values.view(np.int64)))
            self._of_columns[node.number] = found
        return found

    def _known(self, partition: Partition) -> Partition:
        return self._partitions.setdefault(partition.of.tobytes(), partition)

    def _node(self, key: Any, **parts: Any) -> Node:
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Node(len(self._nodes), **parts)
        return found


@dataclass(frozen=True, eq=False)
class Symbol(NDArrayOperatorsMixin):
    """The placeholder of a column in a traced formula. It behaves like a numpy array of float64, of booleans
    (after a comparison) or of integers (after `astype(np.int64)`). Raises ModelError for operations that
    expressions do not support."""

    graph: Graph
    node: Node
    type: str = "float"

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Symbol:
        where, out = options.pop("where", True), options.pop("out", (None,))[0]
        if method != "__call__" or options:
            raise ModelError(f"numpy.{ufunc.__name__} with {method} or options cannot be traced")
        found = self._applied(ufunc.__name__, [self._symbol(value) for value in inputs])
        if where is True:
            return found
        condition, other = self._symbol(where), self._symbol(out)
        return Symbol(self.graph, self.graph.apply("where", condition.node, found.node, other.node))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Symbol:
        name = function.__name__
        if name == "where" and len(args) == 3 and not kwargs:
            condition, a, b = (self._symbol(value) for value in args)
            if {a.type, b.type} == {"float"}:
                truth = (
                    condition
                    if condition.type == "flag"
                    else self._applied("not_equal", [condition, self._symbol(0.0)])
                )
                return Symbol(self.graph, self.graph.apply("where", truth.node, a.node, b.node))
        elif name in ("zeros_like", "ones_like"):
            return self._symbol(float(name == "ones_like"))
        raise ModelError(f"numpy.{name} cannot be traced")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise ModelError("a formula turns a column into a plain array, which cannot be traced")

    def __bool__(self) -> bool:
        raise ModelError(
            "a formula branches on a column's value in Python, which cannot be traced: use numpy.where"
        )

    def astype(self, dtype: Any) -> Symbol:
        """Converts to float64 or int64. Raises ModelError for other types."""
        kind = np.dtype(dtype)
        if kind == np.float64:
            return Symbol(self.graph, self.node)
        if kind == np.int64:
            return Symbol(self.graph, self.graph.apply("trunc", self.node), "integer")
        raise ModelError(f"astype({kind}) cannot be traced")

    def traced(self, logarithm: str) -> Symbol:
        """log or log2 of this (tile_oracle.features.feature_table)."""
        return Symbol(self.graph, self.graph.apply(logarithm, self.node))

    def _symbol(self, value: Any) -> Symbol:
        if isinstance(value, Symbol):
            return value
        array = np.asarray(value)
        if array.size not in (1, self.graph.kernels) or array.dtype.kind not in "fiub":
            raise ModelError("a formula creates an array, which cannot be traced")
        kind = "flag" if array.dtype.kind == "b" else "float"
        return Symbol(self.graph, self.graph.fixed(array.astype(np.float64)), kind)

    def _applied(self, name: str, operands: Sequence[Symbol]) -> Symbol:
        types = {operand.type for operand in operands}
        if name in _COMPARED_BACKWARDS:
            name, operands = _COMPARED_BACKWARDS[name], operands[::-1]
        if types == {"flag"} and name not in ("equal", "not_equal"):
            operation = _OF_FLAGS.get(name)  # numpy adds booleans as logical or
        elif types == {"integer"}:
            operation = _OF_INTEGERS.get(name)  # integer overflow and rounding differ from float64
        elif name in ("bitwise_and", "bitwise_or", "invert"):
            operation = None
        else:
            operation = name if name in NUMPY_OF and name not in _NOT_NUMPYS_OWN else None
        if operation is None:
            raise ModelError(f"numpy.{name} of {' and '.join(sorted(types))} columns cannot be traced")
        nodes = [operand.node for operand in operands]
        if operation.startswith("logical_") and types != {"flag"}:
            zero = self.graph.fixed(0.0)
            nodes = [self.graph.apply("not_equal", node, zero) for node in nodes]
        kind = "flag" if operation in _MAKES_FLAGS else "integer" if types == {"integer"} else "float"
        return Symbol(self.graph, self.graph.apply(operation, *nodes), kind)


@dataclass
class Pool:
    """The candidates as inputs of formulas: columns of the kernels' fields, the fields that problem and
    kernels share (`shared`: direction, data type, rank or layout), and the problem's numeric fields."""

    kernels: Sequence[Kernel]
    shared: Mapping[str, str | int]
    problem_fields: tuple[str, ...]
    hardware: Mapping[str, float]

    def __post_init__(self) -> None:
        self.graph = Graph(len(self.kernels))
        self.columns = field_columns(self.kernels)
        self.columns["kernel"] = np.array([kernel.name for kernel in self.kernels], dtype=object)
        for name, value in self.shared.items():
            self.columns[name] = np.array(
                [value] * len(self.kernels), dtype=object if isinstance(value, str) else None
            )
        for name in self.problem_fields:
            self.columns.pop(name, None)

    def trace(
        self, schema: FeatureSchema, names: Sequence[str], more: Mapping[str, Column] | None = None
    ) -> list[Node]:
        """Returns the expressions of these features of the schema. more: further columns of the kernels.

        Raises ModelError, which names the feature, for an operation that expressions do not support, or for a
        column that neither problem nor kernel has.
        """
        table = _TracedTable(schema, self, {**self.columns, **(more or {})})
        return [table.node(name) for name in names]


class _TracedTable(FeatureTable):
    """A feature table whose columns are symbols."""

    def __init__(self, schema: FeatureSchema, pool: Pool, columns: Mapping[str, Column]) -> None:
        super().__init__(schema, columns, pool.hardware)
        self._pool, self._columns = pool, columns
        self._symbols: dict[str, Symbol] = {}
        self.length = 1  # an array that a formula makes of it (numpy.ones) has one value for all rows

    def under(self, schema: FeatureSchema) -> FeatureTable:
        return _TracedTable(schema, self._pool, self._columns)

    def node(self, name: str) -> Node:
        return self._symbol(name).node

    def __getitem__(self, name: str) -> Any:
        return self._symbol(name)

    def _symbol(self, name: str) -> Symbol:
        found = self._symbols.get(name)
        if found is None:
            formula = self._formulas.get(name)
            if formula is None:
                made = self.given(name)
            else:
                try:
                    made = formula(self)
                except ModelError as error:
                    raise ModelError(_within(name, str(error))) from None
            found = self._symbols[name] = self._whole(name, made)
        return found

    def _whole(self, name: str, made: Any) -> Symbol:
        """Returns a formula's result as float64, as in FeatureTable; an array that the formula made is a
        constant."""
        symbol = made if isinstance(made, Symbol) else self._constant(name, made)
        return symbol.astype(np.float64)

    def _constant(self, name: str, made: Any) -> Symbol:
        array = np.asarray(made, dtype=np.float64)
        if array.size not in (1, self._pool.graph.kernels):
            raise ModelError(_within(name, "the formula creates an array, which cannot be traced"))
        return Symbol(self._pool.graph, self._pool.graph.fixed(array))

    def given(self, name: str) -> Any:
        graph = self._pool.graph
        if name in self._pool.problem_fields:
            return Symbol(graph, graph.of_problem(name))
        self.length = len(self._pool.kernels)
        try:
            return Symbol(graph, graph.fixed(super().given(name)))
        finally:
            self.length = 1

    def number_of(self, name: str, number: Callable[[str], float]) -> Any:
        if name in self._pool.problem_fields:
            raise ModelError(f"{name} of a problem is a number, not a text")
        return Symbol(self._pool.graph, self._pool.graph.fixed(super().number_of(name, number)))


def _within(name: str, message: str) -> str:
    return message if message.startswith("feature ") else f"feature {name}: {message}"
