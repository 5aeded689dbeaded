"""A small neural network that orders the kernels of a problem: fully connected, a few in an average.

It reads columns of a feature schema, standardised, and knows categories of kernels (the function, the tile of
a function, a whole configuration) by weights of their own. Its output is a correction of the roofline's
ln(time), where the schema has it. The hidden layers are leaky rectifiers. Predictions are computed in double
precision and rounded, so that machines agree.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.columns import Columns
from tile_oracle.features.feature_table import Array, FeatureSchema, log2

NAME = "network"
LEAK = 0.01
"""The slope of a hidden unit below 0."""
KERNEL = "the kernel itself"
"""The name under which the weights of a kernel's categories count as one feature."""

_FURTHEST = 4.0
"""Standardised inputs are cut off here, so that no prediction extrapolates far."""
_DIGITS = 9
_STORED = "<f2"
_MOST_WEIGHTS = 1 << 24
_ROWS_AT_ONCE = 4096
"""Rows whose hidden units are computed together: those of a large replay would take hundreds of megabytes."""
_STRETCHES, _AT_ONCE = 256, 32
"""Of the line along which gradients are integrated: a gradient jumps where a hidden unit passes 0. The
second: how many are computed together, because products of few rows take far longer a row."""


@dataclass(frozen=True)
class Category:
    """Values of some columns that have an input of their own: 1 where a kernel has these values, else 0."""

    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]

    @cached_property
    def places(self) -> Mapping[tuple[float, ...], int]:
        return {value: place for place, value in enumerate(self.values)}


@dataclass(frozen=True)
class Inputs:
    """How features become inputs. columns: those of the schema that are read as numbers. logged: those of
    them that are read as log2(1 + x). mean, scale: (columns,), of the training rows. categories: of columns
    that depend on the kernel alone."""

    columns: tuple[str, ...]
    logged: tuple[str, ...]
    mean: Array
    scale: Array
    categories: tuple[Category, ...]

    def __post_init__(self) -> None:
        if not self.mean.shape == self.scale.shape == (len(self.columns),) or not (self.scale > 0).all():
            raise ValueError("mean and scale do not have one number for each column")
        if any(len(one) != len(c.columns) for c in self.categories for one in c.values):
            raise ValueError("a category does not have one value for each of its columns")

    @property
    def width(self) -> int:
        """Inputs in all: the numbers, then the categories."""
        return len(self.columns) + sum(len(one.values) for one in self.categories)

    @property
    def kernel_columns(self) -> tuple[str, ...]:
        """The columns that categories read."""
        return tuple(dict.fromkeys(name for one in self.categories for name in one.columns))

    def number(self, place: int, values: Array) -> Array:
        """Returns the standardised input of a column. Native code computes it by the same formula."""
        if self.columns[place] in self.logged:
            values = log2(1.0 + np.maximum(values, 0.0))
        found: Array = (values - self.mean[place]) / self.scale[place]
        found = np.minimum(np.maximum(found, -_FURTHEST), _FURTHEST)
        return found

    def numbers(self, features: Array) -> Array:
        """Standardised inputs, from features in the order of `columns`."""
        out = np.empty_like(features)
        for place in range(len(self.columns)):
            out[:, place] = self.number(place, features[:, place])
        return out

    def marks(self, kernels: Array) -> npt.NDArray[np.int64]:
        """Returns the input of each category that is 1, or -1: (rows, categories). kernels: features in the
        order of `kernel_columns`."""
        found = np.full((len(kernels), len(self.categories)), -1, dtype=np.int64)
        offset = len(self.columns)
        for place, one in enumerate(self.categories):
            chosen = [self.kernel_columns.index(name) for name in one.columns]
            for row, values in enumerate(map(tuple, kernels[:, chosen].tolist())):
                index = one.places.get(values)
                if index is not None:
                    found[row, place] = offset + index
            offset += len(one.values)
        return found


@dataclass(frozen=True)
class Layer:
    """weights: (inputs, outputs). bias: (outputs,)."""

    weights: Array
    bias: Array


Network = tuple[Layer, ...]


@dataclass(frozen=True)
class NetworkMember:
    """A member of a model (model.ranker.Member). prior: the column of the schema that its output corrects,
    or "". Its scores only order the kernels of a problem."""

    schema: FeatureSchema
    inputs: Inputs
    networks: tuple[Network, ...]
    prior: str = ""

    name = NAME
    relative = True

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The columns of the schema that it reads."""
        more = (*self.inputs.kernel_columns, *((self.prior,) if self.prior else ()))
        return tuple(dict.fromkeys((*self.inputs.columns, *more)))

    def log_time(self, rows: Columns, hardware: Mapping[str, float], threads: int = 1) -> Array:
        """Returns a score in units of ln(time) for every row, up to a constant per problem."""
        numbers, prior, own, kernel = self._read(rows, hardware)
        total = np.zeros(len(numbers))
        for begin in range(0, len(numbers), _ROWS_AT_ONCE):
            some = slice(begin, begin + _ROWS_AT_ONCE)
            for network, of_kernel in zip(self.networks, own, strict=True):
                first = numbers[some] @ network[0].weights[: numbers.shape[1]] + of_kernel[kernel[some]]
                total[some] += _output(network, first)
        return np.asarray(np.round(prior + total / len(self.networks), _DIGITS))

    def of_kernels(self, numbers: Array, places: Sequence[int], marks: npt.NDArray[np.int64]) -> list[Array]:
        """Returns what kernels add to the sums of each network's first layer: the bias, the categories and
        the numbers of these places. Each (kernels, units)."""
        found = []
        for first, *_ in self.networks:
            table = np.vstack([first.weights, np.zeros_like(first.bias)])
            found.append(table[marks].sum(axis=1) + first.bias + numbers @ first.weights[list(places)])
        return found

    def _read(
        self, rows: Columns, hardware: Mapping[str, float]
    ) -> tuple[Array, Array, list[Array], npt.NDArray[np.int64]]:
        """Returns the rows' numbers and prior; for each network the sum of the first layer's weights of the
        categories of each different kernel; and the number of each row's kernel."""
        wanted = self.feature_names
        features = self.schema.compute(rows, hardware, wanted)
        place = {name: index for index, name in enumerate(wanted)}
        numbers = self.inputs.numbers(features[:, [place[name] for name in self.inputs.columns]])
        prior = features[:, place[self.prior]] if self.prior else np.zeros(len(features))
        kernel, names = pd.factorize(np.asarray(rows["kernel"], dtype=object))
        first = np.zeros(len(names), dtype=np.int64)
        first[kernel[::-1]] = np.arange(len(kernel))[::-1]
        marks = self.inputs.marks(features[first][:, [place[name] for name in self.inputs.kernel_columns]])
        own = self.of_kernels(np.zeros((len(names), 0)), (), marks)
        return numbers, prior, own, np.asarray(kernel, dtype=np.int64)

    def shares(
        self, picks: Columns, others: Columns, hardware: Mapping[str, float]
    ) -> Iterator[tuple[str, Array, Array | None, Array | None]]:
        """Yields what each input adds to the advantage of `picks` over `others`: (name, share, value of the
        pick, value of the other), by the integral of the gradient along the straight line between their
        inputs (integrated gradients: Sundararajan, Taly and Yan, 2017)."""
        both = {str(name): np.concatenate([picks[name], others[name]]) for name in picks if name in others}
        count = len(picks["kernel"])
        numbers, prior, own, kernel = self._read(both, hardware)
        step = numbers[count:] - numbers[:count]
        by_number, by_kernel = np.zeros_like(step), np.zeros(count)
        for network, of_kernel in zip(self.networks, own, strict=True):
            weights = network[0].weights[: numbers.shape[1]]
            start = numbers[:count] @ weights + of_kernel[kernel[:count]]
            change = of_kernel[kernel[count:]] - of_kernel[kernel[:count]]
            whole, mean = step @ weights + change, np.zeros_like(change)
            for begin in range(0, _STRETCHES, _AT_ONCE):
                middles = (np.arange(begin, begin + _AT_ONCE) + 0.5) / _STRETCHES
                points = start + middles[:, None, None] * whole
                slopes = _slope(network, points.reshape(-1, points.shape[-1])).reshape(points.shape)
                for slope in slopes:  # in order: sums of all at once end in other digits
                    mean += slope
            mean /= _STRETCHES * len(self.networks)
            by_number += step * (mean @ weights.T)
            by_kernel += (mean * change).sum(axis=1)
        features = self.schema.compute(both, hardware, self.inputs.columns)
        for index, name in enumerate(self.inputs.columns):
            yield name, by_number[:, index], features[:count, index], features[count:, index]
        if self.prior:
            yield self.prior, prior[count:] - prior[:count], prior[:count], prior[count:]
        yield KERNEL, by_kernel, None, None

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": self.schema.name,
            "prior": self.prior,
            "inputs": msgspec.to_builtins(self.inputs, enc_hook=np.ndarray.tolist),
            "networks": [
                [{"outputs": len(layer.bias), "weights": _text(layer)} for layer in network]
                for network in self.networks
            ],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], schemas: Sequence[FeatureSchema]) -> NetworkMember:
        """Returns the inverse of `as_json`. Raises ModelError for anything else."""
        try:
            named, prior = str(value["schema"]), str(value["prior"])
            inputs = msgspec.convert(value["inputs"], Inputs, dec_hook=_numbers)
            networks = tuple(_network(layers, inputs.width) for layers in value["networks"])
        except (KeyError, TypeError, ValueError, msgspec.ValidationError, zlib.error) as error:
            raise ModelError(f"the network cannot be read: {error!r}") from None
        schema = next((one for one in schemas if one.name == named), None)
        if schema is None:
            raise ModelError(f"the network has features of {named!r}, which are not known")
        member = cls(schema, inputs, networks, prior)
        unknown = set(member.feature_names) - set(schema.names)
        if unknown or not networks:
            raise ModelError(f"the network has no layers or unknown features: {', '.join(sorted(unknown))}")
        return member


def _numbers(kind: type, value: Any) -> Array:
    """Returns an array of a file. Raises ValueError or TypeError for what is no list of numbers."""
    return np.array(value, dtype=np.float64)


def stored(weights: npt.NDArray[Any]) -> Array:
    """Returns the weights as a file holds them: with the precision of half floats."""
    return weights.astype(_STORED).astype(np.float64)


def _text(layer: Layer) -> str:
    """Returns the weights and the bias as text: all high bytes, then all low ones, which compress better."""
    values = np.vstack([layer.weights, layer.bias]).astype(_STORED)
    planes = values.view(np.uint8).reshape(-1, 2)[:, ::-1].T.tobytes()
    return base64.b64encode(zlib.compress(planes, 9)).decode("ascii")


def _values(text: str) -> Array:
    """Returns the inverse of `_text`. Raises ValueError or zlib.error for what is not its
    result."""
    unpacked = zlib.decompressobj()
    planes = unpacked.decompress(base64.b64decode(text, validate=True), 2 * _MOST_WEIGHTS)
    if not unpacked.eof or unpacked.unused_data or len(planes) % 2:
        raise ValueError("the weights of a layer are cut off, or too many")
    both = np.frombuffer(planes, dtype=np.uint8).reshape(2, -1)[::-1].T
    return np.asarray(np.ascontiguousarray(both).view(_STORED)[:, 0].astype(np.float64))


def _network(layers: Sequence[Mapping[str, Any]], width: int) -> Network:
    found = []
    for one in layers:
        outputs = int(one["outputs"])
        values = _values(str(one["weights"]))
        if outputs < 1 or len(values) != (width + 1) * outputs:
            raise ValueError(f"a layer does not have {width} inputs and {outputs} outputs")
        table = values.reshape(width + 1, outputs)
        if not np.isfinite(table).all():
            raise ValueError("a weight is not finite")
        found.append(Layer(table[:-1], table[-1]))
        width = outputs
    if width != 1:
        raise ValueError("the last layer does not have one output")
    return tuple(found)


def _output(network: Network, first: Array) -> Array:
    """Returns the output for sums of the first layer, (rows,)."""
    values = first
    for layer in network[1:]:
        values = np.maximum(values, LEAK * values) @ layer.weights + layer.bias
    return np.asarray(values[:, 0])


def _slope(network: Network, first: Array) -> Array:
    """Returns the derivative of the output by the sums of the first layer, (rows, units)."""
    sums, values = [first], first
    for layer in network[1:]:
        values = np.maximum(values, LEAK * values) @ layer.weights + layer.bias
        sums.append(values)
    slope = np.ones_like(sums[-1])
    for layer, at in zip(reversed(network[1:]), reversed(sums[:-1]), strict=True):
        slope = (slope @ layer.weights.T) * np.maximum(at > 0, LEAK)
    return np.asarray(slope)
