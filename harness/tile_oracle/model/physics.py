"""A physical time model: per distinct kernel, non-negative coefficients of the terms of its time.

It needs few problems and extrapolates, because every coefficient is the time of one activity. It cannot
express what the terms do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features import exact_math
from tile_oracle.features.columns import Columns
from tile_oracle.features.feature_table import Array, FeatureSchema
from tile_oracle.features.groups import group_codes, group_minimum
from tile_oracle.features.schemas.grouped_conv_own import GROUPED_CONV_TERMS, is_step_term
from tile_oracle.kernel import Kernel, parse_kernel_name, tiled
from tile_oracle.model.aliases import Aliases, merge, noise_of, own_fields
from tile_oracle.operation import operation_named, operations
from tile_oracle.record.final import records_op

_MODEL_ERROR = 0.03
_ROBUST_FROM = 1.5
_REWEIGHTINGS = 6
LEAST_MS = 1e-6
"""The lower limit of predicted times."""
_MOST_ERROR = 0.3
_STEP_GROWTH = 0.75
"""A step's time grows with the tile's volume to this power. With each public gfx950 kernel left out in turn,
its times are predicted within 16 % on average; without growth within 36 %, with the full volume within 20
%."""


@dataclass(frozen=True)
class PhysicalModel:
    """`coefficients`: kernel name -> milliseconds per unit of each term, in the order of `terms`, which are
    columns of `schema`."""

    terms: tuple[str, ...]
    coefficients: Mapping[str, tuple[float, ...]]
    schema: FeatureSchema = GROUPED_CONV_TERMS

    name = "physical"
    relative = False

    def log_time(self, rows: Columns, hardware: Mapping[str, float], threads: int = 1) -> Array:
        """ln(latency in ms) of every row. A kernel without coefficients of its own has those of the
        nearest one (`_nearest`), with its own tile counts, a step's time growing with its volume."""
        terms = self.schema.compute(rows, hardware, self.terms)
        codes, names = pd.factorize(np.asarray(rows["kernel"], dtype=object))
        table = self.coefficients_of([str(name) for name in names])
        time_ms = np.zeros(len(codes))
        for index in range(len(self.terms)):  # term by term, so that every machine gives the same sum
            time_ms += terms[:, index] * table[codes, index]
        return exact_math.log(np.maximum(time_ms, LEAST_MS))

    def coefficients_of(self, names: Sequence[str], kernels: Sequence[Kernel] = ()) -> Array:
        """Returns the coefficients of each of these kernels, its own or the nearest kernel's with its steps
        scaled to
        this tile: (names, terms). kernels: the parsed names, if available."""
        found = np.empty((len(names), len(self.terms)))
        alike: dict[tuple[Any, ...], tuple[Kernel, list[int]]] = {}
        for row, name in enumerate(names):
            if name in self.coefficients:
                found[row] = self.coefficients[name]
            else:
                kernel = kernels[row] if kernels else parse_kernel_name(name)
                alike.setdefault(_nearness_fields(kernel), (kernel, []))[1].append(row)
        nearest = _nearest([kernel for kernel, _ in alike.values()], sorted(self.coefficients))
        for (kernel, rows), other in zip(alike.values(), nearest, strict=True):
            found[rows] = self._grown(kernel, other)
        return found

    def _grown(self, kernel: Kernel, other: str) -> Array:
        """Returns another kernel's coefficients with its steps scaled to this kernel's tile."""
        volumes = [
            float(math.prod(tile)) for tile in (tiled(kernel).tile, tiled(parse_kernel_name(other)).tile)
        ]
        growth = (volumes[0] / volumes[1]) ** _STEP_GROWTH
        scale = np.array([growth if is_step_term(term) else 1.0 for term in self.terms])
        return np.asarray(np.array(self.coefficients[other]) * scale)

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": self.schema.name,
            "terms": list(self.terms),
            "unit": "milliseconds per unit of the term",
            "coefficients": {name: list(values) for name, values in self.coefficients.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PhysicalModel:
        """Returns the inverse of `as_json`. Raises ModelError for anything else."""
        try:
            named = str(value.get("schema", GROUPED_CONV_TERMS.name))
            terms = tuple(str(term) for term in value["terms"])
            found = {str(k): tuple(float(x) for x in v) for k, v in value["coefficients"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"the physical model cannot be read: {error!r}") from None
        offered = (one.for_models.time_terms for one in operations() if one.features is not None)
        schema = next((one for one in offered if one is not None and one.name == named), None)
        if schema is None:
            raise ModelError(f"the physical model has terms of {named!r}, which are not known")
        unknown = set(terms) - set(schema.names)
        if unknown:
            raise ModelError(f"the physical model has unknown terms: {', '.join(sorted(unknown))}")
        if not found or any(len(v) != len(terms) or not np.isfinite(v).all() for v in found.values()):
            raise ModelError("the physical model does not have one finite coefficient per kernel and term")
        return cls(terms, found, schema)


def fit_physical(rows: pd.DataFrame, weight: Array, hardware: Mapping[str, float]) -> PhysicalModel:
    """Coefficients for every kernel of a training table, by non-negative least squares on the relative error,
    robust against outliers.

    `weight`: weight of each row, (rows,); see `nearness`. Raises ModelError for an operation without terms.
    """
    op = records_op(rows)
    schema = operation_named(op).for_models.time_terms
    if schema is None:
        raise ModelError(
            f"there is no physical time model of {operation_named(op).plural}: train trees alone"
        )
    terms = schema.compute(rows, hardware)
    latency = rows["latency_ms"].to_numpy(dtype=np.float64)
    repeats = rows["measurements"].to_numpy(dtype=np.float64)
    sigma = np.sqrt(noise_of(latency) ** 2 / repeats + _MODEL_ERROR**2)
    found = {}
    for kernel, index in sorted(rows.groupby("kernel").indices.items()):
        found[str(kernel)] = _coefficients(terms[index], latency[index], weight[index] / sigma[index])
    return PhysicalModel(schema.names, found, schema)


def _coefficients(terms: Array, latency: Array, importance: Array) -> tuple[float, ...]:
    from scipy.optimize import nnls  # not at the top: it is slow to import

    relative = terms / latency[:, None]
    scale = np.sqrt((relative**2).mean(axis=0)) + 1e-30
    matrix = relative / scale * importance[:, None]
    found = nnls(matrix, importance, maxiter=50 * matrix.shape[1])[0]
    for _ in range(_REWEIGHTINGS):
        residual = np.abs(matrix @ found - importance)
        trust = 1 / np.sqrt(np.maximum(1.0, residual / _ROBUST_FROM))
        found = nnls(matrix * trust[:, None], importance * trust, maxiter=50 * matrix.shape[1])[0]
    return tuple(float(value) for value in found / scale)


def explain_aliases(rows: pd.DataFrame, aliases: Aliases, hardware: Mapping[str, float]) -> Aliases:
    """Returns the aliases, each group represented by the name whose tile explains the group's times best.

    At most one of the names describes the kernel. The measure is the error of a physical model fitted to the
    group's merged rows with the fields of each name in turn.
    """
    merged = merge(rows, aliases)
    near = nearness(np.log(merged["latency_ms"].to_numpy(dtype=np.float64)), group_codes(merged))
    chosen: dict[str, str] = {}
    for stands, names in aliases.groups().items():
        mask = (merged["kernel"] == stands).to_numpy()
        group = merged[mask]
        errors = []
        for name in names:
            kernel = parse_kernel_name(name)
            fields = kernel.as_row()
            as_named = group.assign(kernel=name, **{f: fields[f] for f in own_fields(kernel)})
            model = fit_physical(as_named, near[mask], hardware)
            error = np.abs(model.log_time(as_named, hardware) - np.log(as_named["latency_ms"].to_numpy()))
            errors.append((float((np.minimum(error, _MOST_ERROR) * near[mask]).mean()), name))
        chosen[stands] = min(errors)[1]
    return aliases.represented_by(chosen)


def nearness(log_time: Array, groups: npt.NDArray[np.int64]) -> Array:
    """Sample weights: 1 for the fastest kernel of a problem, falling as exp(-gap / 0.6) with the gap in
    ln(time), at least 0.1. Slow kernels need no exact prediction."""
    gap = log_time - group_minimum(log_time, groups)
    return np.asarray(np.maximum(np.exp(-gap / 0.6), 0.1))


def _nearness_fields(kernel: Kernel) -> tuple[Any, ...]:
    """Returns the fields that `_nearest` and the scaling of a step read."""
    others = tuple(getattr(kernel, name) for name in operation_named(kernel.op).for_models.kernel_distance)
    return (kernel.op, tiled(kernel).tile, tiled(kernel).waves, *others)


def _nearest(wanted: Sequence[Kernel], names: Sequence[str]) -> list[str]:
    """For each kernel the most similar of the names; ties go to the first."""
    if not wanted:
        return []
    others = [parse_kernel_name(name) for name in names]
    distance = np.zeros((len(wanted), len(others)))
    for field, much in operation_named(wanted[0].op).for_models.kernel_distance.items():
        ours = np.array([getattr(kernel, field) for kernel in wanted])
        theirs = np.array([getattr(kernel, field) for kernel in others])
        distance += much * (ours[:, None] != theirs[None, :])
    for field, much in (("tile", 2.0), ("waves", 0.5)):
        sizes = [np.log2([getattr(kernel, field) for kernel in side]) for side in (wanted, others)]
        distance += much * np.abs(sizes[0][:, None, :] - sizes[1][None, :, :]).sum(axis=2)
    return [names[index] for index in distance.argmin(axis=1)]
