"""An analytic model of a GEMM kernel's time: no measurement of a kernel is needed.

It extends the roofline (Williams, Waterman and Patterson, 2009) by what tiles cost. A compute unit runs its
share of the tiles in rounds; a step of a tile takes as long as the slowest of

- its matrix instructions: the tile's operations / (peak rate x the engine's efficiency);
- its traffic to LDS (shared memory), at 128 bytes a clock: the tiles are written once and read by all waves;
- its loads, at the bandwidth of a compute unit to the caches, and at the rate at which threads issue them;
- the latency of a load / the steps that are loaded ahead (Little's law),

softened, since they overlap imperfectly: the eighth root of the sum of eighth powers. Partial tiles, partial
rounds and partial steps cost as much as full ones. The matrices move once through the memory, or more often
where they do not stay in the cache. A launch, a workgroup's start and end, and split-K's second pass are
added. The peak rates are those of kernels/arch_specs.json; all other constants are in
features.schemas.roofline_time. Those of engines that have run on an H200 were fitted (`fit_roofline`) to
times there, on half of 342 problems of gemm_training; fitted constants also make up for what the formula
lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from tile_oracle.arch import load_arch
from tile_oracle.errors import ModelError
from tile_oracle.features import exact_math
from tile_oracle.features.columns import Columns
from tile_oracle.features.feature_table import Array
from tile_oracle.features.groups import group_codes
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas.roofline_time import Constants, Engine, Roofline, default_engines
from tile_oracle.features.schemas.roofline_work import Machine, Work
from tile_oracle.features.schemas.tile_work import ENGINES
from tile_oracle.model.physics import LEAST_MS, nearness

NAME = "roofline"
_PRIOR = 0.03
"""Weight of a constant's distance from its default, so that one that no time depends on stays."""
_SLOWEST = 12.0
"""Slower kernels than that, relative to a problem's fastest, are not fitted to."""
_SHARES = ("efficiency", "clock_share", "memory_share")
"""Constants that are at most 1."""
_RANGE = 20.0
"""A fitted constant stays within this factor of its default."""


@dataclass(frozen=True)
class RooflineModel:
    """A member of a model (model.ranker.Member) for GEMM. arch: the architecture whose peak rates hold."""

    arch: str
    shared: Constants = field(default_factory=Constants)
    engines: Mapping[str, Engine] = field(default_factory=default_engines)

    name = NAME
    relative = False

    def log_time(self, rows: Columns, hardware: Mapping[str, float], threads: int = 1) -> Array:
        """ln(latency in ms) of every row."""
        time_us = self._formulas.time(self._work(rows)).total_us
        return exact_math.log(np.maximum(time_us / 1000.0, LEAST_MS))

    def _work(self, rows: Columns) -> Work:
        """Raises ModelError for an architecture or a data type whose peak rates are not known."""
        machine = self._machine
        for word in pd.unique(np.asarray(rows["dtype"], dtype=object)):
            if str(word) not in machine.rates:
                raise ModelError(
                    f"the peak rate of {word} is not known: it has those of {', '.join(machine.rates)}"
                )
        return Work.of(rows, machine)

    @cached_property
    def _machine(self) -> Machine:
        if load_arch(self.arch).peak is None:
            raise ModelError(f"the peak rates of {self.arch} are not in kernels/arch_specs.json")
        return Machine.of(hardware_features(self.arch))

    @cached_property
    def _formulas(self) -> Roofline:
        return Roofline(self.shared, self.engines)

    def as_json(self) -> dict[str, Any]:
        """The constants; the inverse of `from_json`."""
        engines = {name: asdict(engine) for name, engine in self.engines.items()}
        return {"arch": self.arch, "shared": asdict(self.shared), "engines": engines}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RooflineModel:
        """Raises ModelError for what `as_json` cannot have returned."""
        try:
            shared = Constants(**{key: _positive(number) for key, number in value["shared"].items()})
            engines = {
                str(name): Engine(**{key: _positive(number) for key, number in one.items()})
                for name, one in value["engines"].items()
            }
            arch = str(value["arch"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"the roofline model cannot be read: {error!r}") from None
        if set(engines) != set(ENGINES):
            raise ModelError(
                f"the roofline model has constants for {', '.join(engines)}, not {', '.join(ENGINES)}"
            )
        return cls(arch, shared, engines)


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        raise ValueError(f"{value!r} is not a positive number")
    return float(value)


# ---- fitting the constants ----------------------------------------------------------------------


def fit_roofline(rows: pd.DataFrame, arch: str, start: RooflineModel | None = None) -> RooflineModel:
    """The constants that explain the times of a training table best, most of all those of fast kernels.

    rows: one row a pair, with the fields of the problem, `kernel` and `latency_ms`. The constants of engines
    without rows stay those of `start` (by default the shipped ones). Raises ModelError.
    """
    model = start or RooflineModel(arch)
    best_ms = rows.groupby("problem")["latency_ms"].transform("min")
    rows = rows[rows["latency_ms"] < _SLOWEST * best_ms]
    work = model._work({name: rows[name].to_numpy() for name in rows})
    goal = np.log(1000.0 * rows["latency_ms"].to_numpy(dtype=np.float64))
    weight = np.sqrt(nearness(goal, group_codes(rows)))
    there = {ENGINES[place] for place in np.unique(work.engine)}
    before = _numbers(model)
    free = [place for place, (owner, _) in enumerate(_places()) if owner == "" or owner in there]

    from scipy.optimize import least_squares  # not at the top: it is slow to import

    def residual(changed: Array) -> Array:
        numbers = before.copy()
        numbers[free] = changed
        error = weight * (np.log(_with_numbers(model, numbers)._formulas.time(work).total_us) - goal)
        return np.concatenate([error, _PRIOR * (changed - before[free])])

    shares = np.array([name in _SHARES for _, name in _places()])[free]
    highest = np.where(shares, 1e-9, before[free] + np.log(_RANGE))
    limits = (before[free] - np.log(_RANGE), highest)
    found = least_squares(residual, before[free], loss="soft_l1", f_scale=0.1, bounds=limits, max_nfev=60)
    numbers = before.copy()
    numbers[free] = found.x
    fitted = _with_numbers(model, numbers)
    engines = {
        name: _rounded(one) if name in there else model.engines[name] for name, one in fitted.engines.items()
    }
    return replace(fitted, shared=_rounded(fitted.shared), engines=engines)


_Group = TypeVar("_Group", Constants, Engine)


def _rounded(constants: _Group) -> _Group:
    """The constants with six digits."""
    return replace(constants, **{name: float(f"{value:.6g}") for name, value in asdict(constants).items()})


def _places() -> list[tuple[str, str]]:
    """(engine, or "" for the shared constants; name) of every constant, in order."""
    shared = [("", one.name) for one in fields(Constants)]
    return [*shared, *((engine, one.name) for engine in ENGINES for one in fields(Engine))]


def _numbers(model: RooflineModel) -> Array:
    """The logarithms of all constants."""
    owners = {"": model.shared, **model.engines}
    return np.asarray(np.log(np.array([getattr(owners[owner], name) for owner, name in _places()])))


def _with_numbers(model: RooflineModel, numbers: Array) -> RooflineModel:
    values: dict[str, dict[str, float]] = {}
    for (owner, name), number in zip(_places(), np.exp(numbers), strict=True):
        values.setdefault(owner, {})[name] = float(number)
    engines = {name: Engine(**values[name]) for name in ENGINES}
    return replace(model, shared=Constants(**values[""]), engines=engines)
