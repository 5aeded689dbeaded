"""Feature schemas: tables of (name, formula), evaluated on whole columns.

A formula is a function of a `FeatureTable`, whose attributes are the input columns, the hardware features and
all other formulas of the schema, by name. Each name is defined together with its formula, so that the two
cannot get out of step. A single pair is a batch of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features import exact_math

Array = npt.NDArray[np.float64]
Formula = Callable[["FeatureTable"], Array]
Shared = TypeVar("Shared")

ELEMENT_BYTES: dict[str, float] = {
    "fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "bf8": 1.0, "int8": 1.0, "int4": 0.5,
}  # fmt: skip
"""Bytes of one element of a data type."""


@dataclass(frozen=True)
class Feature:
    """One column of a schema: its name, its formula, and its meaning with the unit."""

    name: str
    formula: Formula
    meaning: str


@dataclass(frozen=True)
class FeatureSchema:
    """An ordered table of features for one operation.

    features: the columns, in order. intermediates: formulas that others use and that are not columns. words:
    text column -> word -> numeric code. optional: input columns that count as 0 where the rows lack them or
    have nulls. from_names: the formulas read a kernel's configuration from its name, so that kernels of
    every source have features. Raises ModelError on construction if a name is defined twice.
    """

    name: str
    op: str
    features: tuple[Feature, ...]
    intermediates: tuple[Feature, ...] = ()
    words: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    categorical: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    from_names: bool = False

    def __post_init__(self) -> None:
        names = [feature.name for feature in (*self.features, *self.intermediates)]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise ModelError(f"schema {self.name} defines {', '.join(sorted(repeated))} more than once")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(feature.name for feature in self.features)

    def extended(self, name: str, more: Sequence[Feature], optional: tuple[str, ...] = ()) -> FeatureSchema:
        """Returns a schema with further columns after its own, and further optional inputs for them."""
        return replace(
            self, name=name, features=(*self.features, *more), optional=(*self.optional, *optional)
        )

    def compute(
        self,
        rows: Mapping[str, Any] | pd.DataFrame,
        hardware: Mapping[str, float],
        names: Sequence[str] | None = None,
    ) -> Array:
        """Features of every row: float64, shape (rows, features), all finite.

        rows: the columns that the formulas read (problem and kernel fields). hardware: features of the
        architecture (`hardware_features`). names: the wanted columns, in order; default all. Raises
        ModelError for a missing column or a feature that is not finite.
        """
        table = FeatureTable(self, rows, hardware)
        wanted = self.names if names is None else tuple(names)
        out = np.empty((table.length, len(wanted)), dtype=np.float64)
        for index, name in enumerate(wanted):
            out[:, index] = table[name]
        if not np.isfinite(out).all():
            bad = [name for index, name in enumerate(wanted) if not np.isfinite(out[:, index]).all()]
            raise ModelError(f"features {', '.join(bad)} are not finite: the rows hold values out of range")
        return out


class FeatureTable:
    """Evaluates the formulas of a schema on one batch, each at most once. Attributes are columns, (rows,)."""

    def __init__(
        self, schema: FeatureSchema, rows: Mapping[str, Any] | pd.DataFrame, hardware: Mapping[str, float]
    ) -> None:
        self._schema = schema
        self._formulas = {f.name: f.formula for f in (*schema.intermediates, *schema.features)}
        self._rows = rows
        self._hardware = hardware
        self._done: dict[str, Array] = {}
        self._shared: dict[str, Any] = {}
        self.length = len(rows) if isinstance(rows, pd.DataFrame) else _length(rows)

    def __getitem__(self, name: str) -> Array:
        found = self._done.get(name)
        if found is None:
            found = self._done[name] = self._evaluate(name)
        return found

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    @property
    def inputs(self) -> Mapping[str, Any] | pd.DataFrame:
        """The input columns."""
        return self._rows

    @property
    def hardware(self) -> Mapping[str, float]:
        """The features of the architecture."""
        return self._hardware

    def under(self, schema: FeatureSchema) -> FeatureTable:
        """Returns a table of the same rows with the formulas of another schema."""
        return FeatureTable(schema, self._rows, self._hardware)

    def once(self, name: str, make: Callable[[], Shared]) -> Shared:
        """Returns what several formulas share, made at the first call."""
        if name not in self._shared:
            self._shared[name] = make()
        found: Shared = self._shared[name]
        return found

    def _evaluate(self, name: str) -> Array:
        formula = self._formulas.get(name)
        if formula is not None:
            return np.asarray(formula(self), dtype=np.float64)
        return self.given(name)

    def given(self, name: str) -> Array:
        """Returns an input column, with texts as their codes, or a hardware feature."""
        if name not in self._rows:
            if name in self._hardware:
                return np.full(self.length, float(self._hardware[name]))
            if name in self._schema.optional:
                return np.zeros(self.length)
            raise self._lacks(name)
        column = self._rows[name]
        codes = self._schema.words.get(name)
        if codes is not None:
            index, values = self._words_of(name)
            return np.asarray(
                np.array([codes.get(str(value), 0.0) for value in values], dtype=np.float64)[index]
            )
        try:
            values = np.asarray(column, dtype=np.float64)
            return np.nan_to_num(values, nan=0.0) if name in self._schema.optional else values
        except (TypeError, ValueError):
            raise ModelError(f"column {name} holds a value that is not a number") from None

    def _lacks(self, name: str) -> ModelError:
        return ModelError(f"schema {self._schema.name} needs the column {name}, which the rows do not have")

    def word_is(self, name: str, predicate: Callable[[str], bool]) -> Array:
        """1.0 where the text in column `name` satisfies the predicate, else 0.0."""
        return self.number_of(name, lambda word: float(predicate(word)))

    def number_of(self, name: str, number: Callable[[str], float]) -> Array:
        """Returns a number for each text in column `name`; the function is called once for each different
        text."""
        if name not in self._rows:
            raise self._lacks(name)
        index, values = self._words_of(name)
        return np.asarray(np.array([number(str(value)) for value in values], dtype=np.float64)[index])

    def _words_of(self, name: str) -> tuple[npt.NDArray[np.int64], Any]:
        """Returns the number of each row's text in a column, and the different texts."""

        def found() -> tuple[npt.NDArray[np.int64], Any]:
            index, values = pd.factorize(np.asarray(self._rows[name], dtype=object))
            return np.asarray(index, dtype=np.int64), values

        return self.once(f"words of {name}", found)


def _length(rows: Mapping[str, Any]) -> int:
    lengths = {len(column) for column in rows.values()}
    if len(lengths) > 1:
        raise ModelError(f"the columns of a table have different lengths: {sorted(lengths)}")
    return lengths.pop() if lengths else 0


# ---- building blocks of formulas --------------------------------------------------------------


def given(name: str, meaning: str) -> Feature:
    """Returns a feature that is an input column or a hardware feature itself."""
    return Feature(name, lambda t: t.given(name), meaning)


def ratio(a: Array, b: Array) -> Array:
    """a / b, or 0 where b is 0 (a feature that the hardware does not have)."""
    return np.divide(a, b, out=np.zeros_like(a, dtype=np.float64), where=b != 0)


def log2(x: Array) -> Array:
    """Logarithm to base 2, bit-identical on every machine. A symbol (tile_oracle.selector.trace) provides its
    own logarithm while a formula is traced."""
    of_trace = getattr(x, "traced", None)
    return exact_math.log2(x) if of_trace is None else of_trace("log2")


def log(x: Array) -> Array:
    """Natural logarithm, with the properties of `log2`."""
    of_trace = getattr(x, "traced", None)
    return exact_math.log(x) if of_trace is None else of_trace("log")


def log2_of(x: Array) -> Array:
    """log2(max(x, 1)), which is 0 for sizes of 0 and 1."""
    return log2(np.maximum(x, 1.0))


def ceil_div(a: Array, b: Array) -> Array:
    """Returns the number of tiles of size b that cover a."""
    return np.ceil(a / b)


def power_of_two(values: Array) -> Array:
    """Returns the largest power of two that divides each."""
    whole = values.astype(np.int64)
    return (whole & -whole).astype(np.float64)


def tile_fill(size: Array, tile: Array) -> Array:
    """Published tile efficiency: fill of the last tile (remainder / tile; 1 if it is full)."""
    rest = np.mod(size, tile)
    return np.where(rest == 0, 1.0, rest / tile)


# ---- The feature schemas of an operation ---------------------------------------------------------


@dataclass(frozen=True)
class OperationFeatures:
    """The feature schemas of one operation.

    own: the default schema; it has the columns `flops` and `bytes_total` of a problem. others: further
    schemas. fallback: schemas tried, in order, for a model that names none. in_recipes: role
    in a recipe (training.recipe) -> name of the schema, if it is not `own`. time_terms: terms
    of the physical time model; None if there is no such model. kernel_distance: field -> distance between
    kernels that differ in it, on a scale where a doubled tile is 2. pool: the schema that reads a kernel's
    configuration from its name, for pools with kernels of Triton files and libraries; None: models cannot
    rank these.
    """

    own: FeatureSchema
    others: tuple[FeatureSchema, ...] = ()
    fallback: tuple[FeatureSchema, ...] = ()
    in_recipes: Mapping[str, str] = field(default_factory=dict)
    time_terms: FeatureSchema | None = None
    kernel_distance: Mapping[str, float] = field(default_factory=dict)
    pool: FeatureSchema | None = None

    @property
    def all(self) -> tuple[FeatureSchema, ...]:
        """Every schema."""
        return (self.own, *self.others, *(() if self.pool is None else (self.pool,)))
