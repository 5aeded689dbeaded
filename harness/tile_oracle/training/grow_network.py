"""Training rows -> a network member (model.network), by Adam with decoupled weight decay.

A step takes a few whole problems. The loss is the squared error of ln(time) with more weight for rows near
the best of their problem; the weighted mean error of each problem is taken out first, since only the order
within a problem counts. (Kingma and Ba, 2015; Loshchilov and Hutter, 2019; Srivastava et al., 2014.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd
from threadpoolctl import threadpool_limits

from tile_oracle.errors import ModelError
from tile_oracle.features.feature_table import Array, FeatureSchema
from tile_oracle.features.schemas.configuration import CONFIGURATION
from tile_oracle.model.network import LEAK, Category, Inputs, Layer, Network, NetworkMember, stored
from tile_oracle.process.cores import usable_cores

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Floats = npt.NDArray[np.float32]

PRIOR = "roofline"
"""The column that the output corrects, where the schema has it."""
_OF_BINARIES = "code_"
"""Columns of binaries' metrics begin so: a network reads none, so that it can rank kernels without them."""
_CODES = ("kernel_source", "kernel_function", "kernel_rest")
"""Columns that stand for words and have no order."""
_CATEGORIES = (
    *((name,) for name in (*_CODES, "kernel_variant", "kernel_cluster")),
    ("kernel_function", "kernel_tile_m", "kernel_tile_n"),
    tuple(f"kernel_{name}" for name in CONFIGURATION),
)
_FEWEST_ROWS = 30
"""Fewest training rows of a category of kernels that has a weight of its own."""
_LARGE = 64.0
"""Largest value of a column without negative values that is not read by its logarithm."""
_FIRST_DECAY, _SECOND_DECAY, _TINY = 0.9, 0.99, 1e-8
_WARM_UP = 50
_MOST_ERROR = 1.0
_FURTHER_EPOCHS, _FURTHER_RATE = 20, 0.0005


@dataclass(frozen=True)
class NetworkSettings:
    """hidden: units of each hidden layer. count: networks in the average. epochs: how often each problem is
    seen. problems: of a step. rate: of learning, at its highest. decay: of the weights, for each unit of the
    rate. dropout: share of hidden units that a step leaves out. near: power of the weights of rows near the
    best."""

    hidden: tuple[int, ...] = (512, 256)
    count: int = 4
    epochs: int = 80
    problems: int = 8
    rate: float = 0.002
    decay: float = 0.5
    dropout: float = 0.1
    near: float = 1.5

    @classmethod
    def further(cls, member: NetworkMember) -> NetworkSettings:
        """Returns those by which a member's networks go on learning: few epochs at a low rate, so that they
        forget little."""
        first = member.networks[0]
        hidden = tuple(len(layer.bias) for layer in first[:-1])
        return cls(hidden, len(member.networks), epochs=_FURTHER_EPOCHS, rate=_FURTHER_RATE)


def grow_network(
    schema: FeatureSchema,
    rows: pd.DataFrame,
    log_time: Array,
    weight: Array,
    groups: npt.NDArray[np.int64],
    hardware: Mapping[str, float],
    settings: NetworkSettings,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
    old: NetworkMember | None = None,
) -> NetworkMember:
    """Returns a member fitted to all rows. weight: of each row. groups: the problem number of each row.

    old: a member of this schema, whose networks go on learning with the inputs that they have.

    The same rows and seed give the same networks on one machine, with any number of threads. Between kinds of
    processors the last digits of sums differ. Raises ModelError for a schema without kernels' configurations.
    """
    if not schema.from_names:
        raise ModelError(f"a network reads kernels' configurations, which {schema.name} does not have")
    names = list(schema.names)
    features = schema.compute(rows, hardware)
    inputs = _inputs(names, features) if old is None else old.inputs
    numbers = inputs.numbers(features[:, [names.index(name) for name in inputs.columns]]).astype(np.float32)
    prior = (PRIOR if PRIOR in names else "") if old is None else old.prior
    goal = log_time - (features[:, names.index(prior)] if prior else 0.0)
    order = np.argsort(groups, kind="stable")
    data = _Data(
        numbers[order],
        _marks(inputs, names, features)[order],
        goal[order].astype(np.float32),
        weight[order].astype(np.float32),
        np.flatnonzero(np.r_[True, np.diff(groups[order]) > 0, True]),
    )
    seeds = range(seed, seed + settings.count)
    if say is not None:
        for one in seeds:
            say(f"  network: {settings.epochs} epochs (seed {one})")
    stop = threading.Event()
    # A product that is divided over threads has other last digits in some sums: each network has one thread.
    with (
        threadpool_limits(limits=1, user_api="blas"),
        ThreadPoolExecutor(min(settings.count, usable_cores())) as threads,
    ):
        try:
            starts = [None] * settings.count if old is None else old.networks
            networks = tuple(threads.map(partial(_grown, data, settings, stop), seeds, starts))
        except BaseException:
            stop.set()  # else Ctrl-C would wait for the last epoch
            raise
    return NetworkMember(schema, inputs, networks, prior)


def _inputs(names: list[str], features: Array) -> Inputs:
    columns, logged = [], []
    for index, name in enumerate(names):
        values = features[:, index]
        if name in _CODES or name.startswith(_OF_BINARIES) or np.ptp(values) == 0:
            continue
        columns.append(name)
        if values.min() >= 0 and values.max() > _LARGE:
            logged.append(name)
    categories = tuple(_category(wanted, names, features) for wanted in _CATEGORIES)
    chosen = features[:, [names.index(name) for name in columns]]
    log_of = [name in logged for name in columns]
    chosen[:, log_of] = np.log2(1.0 + chosen[:, log_of])
    return Inputs(tuple(columns), tuple(logged), chosen.mean(axis=0), chosen.std(axis=0), categories)


def _category(wanted: tuple[str, ...], names: list[str], features: Array) -> Category:
    """Returns the values of these columns that enough rows have."""
    found, count = np.unique(features[:, [names.index(name) for name in wanted]], axis=0, return_counts=True)
    return Category(wanted, tuple(map(tuple, found[count >= _FEWEST_ROWS].tolist())))


def _marks(inputs: Inputs, names: list[str], features: Array) -> csr_matrix:
    """Returns the inputs of every row that are categories, few of which are 1: (rows, categories)."""
    from scipy.sparse import csr_matrix  # not at the top: it is slow to import

    own = features[:, [names.index(name) for name in inputs.kernel_columns]]
    kernels, of = np.unique(own, axis=0, return_inverse=True)
    marks = inputs.marks(kernels)[of.ravel()] - len(inputs.columns)
    known = marks >= 0
    starts = np.r_[0, np.cumsum(known.sum(axis=1))]
    ones = np.ones(starts[-1], dtype=np.float32)
    return csr_matrix((ones, marks[known], starts), shape=(len(features), inputs.width - len(inputs.columns)))


@dataclass(frozen=True)
class _Data:
    """Training rows, sorted by problem. numbers: inputs that are numbers. marks: inputs that are categories.
    starts: the first row of each problem, and the number of rows."""

    numbers: Floats
    marks: csr_matrix
    goal: Floats
    weight: Floats
    starts: npt.NDArray[np.int64]


def _grown(
    data: _Data, settings: NetworkSettings, stop: threading.Event, seed: int, old: Network | None
) -> Network:
    generator = np.random.default_rng(seed)
    if old is None:
        sizes = [data.numbers.shape[1] + data.marks.shape[1], *settings.hidden, 1]
        weights = [
            generator.normal(0.0, np.sqrt(2.0 / inputs), (inputs, outputs)).astype(np.float32)
            for inputs, outputs in pairwise(sizes)
        ]
        weights[-1] *= np.float32(0.1)
        biases = [np.zeros(size, dtype=np.float32) for size in sizes[1:]]
    else:
        weights = [layer.weights.astype(np.float32) for layer in old]
        biases = [layer.bias.astype(np.float32) for layer in old]
    problems = len(data.starts) - 1
    adam = _Adam(weights, biases, settings, settings.epochs * -(-problems // settings.problems))
    for _ in range(settings.epochs):
        order = generator.permutation(problems)
        for first in range(0, problems, settings.problems):
            if stop.is_set():
                raise ModelError("the training was interrupted")
            adam.step(*_gradients(data, order[first : first + settings.problems], adam, settings, generator))
    return tuple(
        Layer(stored(weight), stored(bias)) for weight, bias in zip(adam.weights, adam.biases, strict=True)
    )


class _Adam:
    """The weights, with the moments of their gradients."""

    def __init__(
        self, weights: list[Floats], biases: list[Floats], settings: NetworkSettings, steps: int
    ) -> None:
        self.weights, self.biases = weights, biases
        self._rate, self._decay, self._steps = settings.rate, settings.decay, steps
        self._first = [np.zeros_like(one) for one in (*weights, *biases)]
        self._second = [np.zeros_like(one) for one in (*weights, *biases)]
        self._done = 0

    def step(self, weights: list[Floats], biases: list[Floats]) -> None:
        """Takes a step against the gradients, at a rate that rises and then falls as a cosine does."""
        self._done += 1
        share = min(1.0, self._done / _WARM_UP) * (0.5 + 0.5 * np.cos(np.pi * self._done / self._steps))
        rate = np.float32(self._rate * share)
        one = 1.0 - _FIRST_DECAY**self._done
        two = 1.0 - _SECOND_DECAY**self._done
        for place, (value, gradient) in enumerate(
            zip((*self.weights, *self.biases), (*weights, *biases), strict=True)
        ):
            first, second = self._first[place], self._second[place]
            first += np.float32(1.0 - _FIRST_DECAY) * (gradient - first)
            second += np.float32(1.0 - _SECOND_DECAY) * (gradient * gradient - second)
            change = (first / np.float32(one)) / (np.sqrt(second / np.float32(two)) + np.float32(_TINY))
            if place < len(self.weights):
                change += np.float32(self._decay) * value
            value -= rate * change


def _gradients(
    data: _Data,
    problems: npt.NDArray[np.int64],
    adam: _Adam,
    settings: NetworkSettings,
    generator: np.random.Generator,
) -> tuple[list[Floats], list[Floats]]:
    """Returns the gradients of weights and biases for some problems."""
    spans = [np.arange(data.starts[one], data.starts[one + 1]) for one in problems]
    rows = np.concatenate(spans)
    groups = np.repeat(np.arange(len(spans)), [len(one) for one in spans])
    numbers, marks = data.numbers[rows], data.marks[rows]
    count = numbers.shape[1]
    values, kept = list[Floats](), list[Floats]()
    keep = np.float32(1.0 - settings.dropout)
    for weight, bias in zip(adam.weights[:-1], adam.biases[:-1], strict=True):
        sums = values[-1] @ weight if values else numbers @ weight[:count] + marks @ weight[count:]
        sums += bias
        mask = np.where(sums > 0, np.float32(1.0) / keep, np.float32(LEAK) / keep)
        mask *= generator.random(sums.shape, dtype=np.float32) < keep
        kept.append(mask)
        values.append(sums * mask)
    output = (values[-1] @ adam.weights[-1] + adam.biases[-1])[:, 0]
    slope = _error(output - data.goal[rows], data.weight[rows], groups)[:, None]
    of_weights, of_biases = [], []
    for place in range(len(adam.weights) - 1, -1, -1):
        of_biases.append(slope.sum(axis=0))
        if place:
            of_weights.append(values[place - 1].T @ slope)
            slope = (slope @ adam.weights[place].T) * kept[place - 1]
        else:
            of_weights.append(np.vstack([numbers.T @ slope, marks.T @ slope]))
    return of_weights[::-1], of_biases[::-1]


def _error(error: Floats, weight: Floats, groups: npt.NDArray[np.int64]) -> Floats:
    """Returns the slope of the loss by each output: the weighted error without its mean over the problem."""
    mean = np.bincount(groups, weight * error) / np.bincount(groups, weight)
    centred = np.clip(error - mean[groups].astype(np.float32), -_MOST_ERROR, _MOST_ERROR)
    return np.asarray(weight * centred / weight.sum(), dtype=np.float32)
