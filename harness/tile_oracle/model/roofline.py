"""An analytic model of a GEMM kernel's time: no measurement of a kernel is needed.

It extends the roofline (Williams, Waterman and Patterson, 2009) by what tiles cost. A compute unit runs its
share of the tiles in rounds; a step of a tile takes as long as the slowest of

- its matrix instructions: the tile's operations / (peak rate x the engine's efficiency);
- its traffic to LDS (shared memory), at 128 bytes a clock: the tiles are written once and read by all waves;
- its loads, at the bandwidth of a compute unit to the caches, and at the rate at which threads issue them;
  workgroups of a cluster load what they share once;
- the latency of a load / the steps that are loaded ahead (Little's law),

softened, since they overlap imperfectly: the eighth root of the sum of eighth powers. Partial tiles, partial
rounds and partial steps cost as much as full ones. All loads pass the shared cache. Matrices that fit half of
it stay there from one run to the next, as they do while a kernel is measured; larger ones move through the
memory, or more often where an operand is larger than the cache. A launch, a workgroup's start, writing its
tile, and split-K's second pass are added. The peak rates are those of kernels/arch_specs.json; all other
constants are in features.schemas.roofline_time. Those of engines that have run on an H200 were fitted
(`model.roofline_fit`) to times there, those of the 1,129 products that the model gemm_bf16_sm_90 learnt;
fitted constants also make up for what the formula lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.arch import load_arch
from tile_oracle.errors import ModelError
from tile_oracle.features import exact_math
from tile_oracle.features.columns import Columns
from tile_oracle.features.feature_table import Array
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas.roofline_time import Constants, Engine, Roofline, default_engines
from tile_oracle.features.schemas.roofline_work import Machine, Work
from tile_oracle.features.schemas.tile_work import ENGINES
from tile_oracle.model.physics import LEAST_MS

NAME = "roofline"


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
        time_us = self._formulas.time(self.work(rows)).total_us
        return exact_math.log(np.maximum(time_us / 1000.0, LEAST_MS))

    def work(self, rows: Columns) -> Work:
        """What the formulas read of each row. Raises ModelError for an architecture or a data type whose peak
        rates are not known."""
        machine = self._machine
        for word in pd.unique(np.asarray(rows["dtype"], dtype=object)):
            if str(word) not in machine.rates:
                raise ModelError(
                    f"the peak rate of {word} is not known: it has those of {', '.join(machine.rates)}"
                )
        return Work.of({str(name): np.asarray(rows[name]) for name in rows}, machine)

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
