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
constants are in features.schemas.roofline. Those of engines that have run on an H200 were fitted to
times there of 1,129 products; fitted constants also make up for what the formula lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from tile_oracle.arch import load_arch
from tile_oracle.compiling.cache import default_cache_folder
from tile_oracle.errors import ModelError
from tile_oracle.features import exact_math
from tile_oracle.features.columns import Columns
from tile_oracle.features.feature_table import ELEMENT_BYTES, Array
from tile_oracle.features.hardware import RATE, hardware_features
from tile_oracle.features.schemas.roofline import FITTED_TO, ROOFLINE
from tile_oracle.files.vouched_files import MANIFEST_FILE, sha256_of
from tile_oracle.model.made_by import CONSTANTS_KEY
from tile_oracle.model.model_folder import ModelSpec
from tile_oracle.model.physics import LEAST_MS
from tile_oracle.model.store import SPEC_FILE, is_model_folder, json_bytes, write_folder
from tile_oracle.operation import Kind, operation_named

NAME = "roofline"


@dataclass(frozen=True)
class RooflineModel:
    """A member of a model (model.ranker.Member) for GEMM."""

    arch: str
    """The architecture whose peak rates hold."""

    name = NAME
    relative = False

    def log_time(self, rows: Columns, hardware: Mapping[str, float], threads: int = 1) -> Array:
        """ln(latency in ms) of every row. Raises ModelError for an architecture or a data type whose peak
        rates are not known."""
        known = [name for name in ELEMENT_BYTES if self._hardware.get(RATE + name, 0.0) > 0]
        for word in pd.unique(np.asarray(rows["dtype"], dtype=object)):
            if word not in known:
                raise ModelError(f"the peak rate of {word} is not known: it has those of {', '.join(known)}")
        time_us = ROOFLINE.compute(rows, self._hardware, ("total_us",))[:, 0]
        return exact_math.log(np.maximum(time_us / 1000.0, LEAST_MS))

    @cached_property
    def _hardware(self) -> Mapping[str, float]:
        if load_arch(self.arch).peak is None:
            raise ModelError(f"the peak rates of {self.arch} are not in kernels/arch_specs.json")
        return hardware_features(self.arch)


# ---- Model folders with the roofline model: what it predicts, and which measurements its constants come from

OPERATIONS = ("gemm",)


def roofline_folder(kind: Kind, arch: str) -> Path:
    """Returns a model folder for this kind of problem in the cache, written at the first call.

    Raises ModelError for an operation, a data type or an architecture without a roofline model.
    """
    if kind.op not in OPERATIONS:
        raise ModelError(f"the roofline model is for {' and '.join(OPERATIONS)}, not for {kind.op}")
    peak = load_arch(arch).peak
    if peak is None or kind.dtype not in peak.flops_a_cu_and_clock:
        raise ModelError(f"the peak rate of {arch} for {kind.dtype} is not in kernels/arch_specs.json")
    features = operation_named(kind.op).for_models
    schema = features.pool or features.own
    spec = ModelSpec(
        op_type=schema.op,
        dtype=kind.dtype,
        arch=arch,
        feature_names=schema.names,
        targets=(NAME,),
        schema=schema.name,
        recipe=NAME,
        picks={NAME: 1.0},
    )
    files = {SPEC_FILE: json_bytes(spec.as_json()), MANIFEST_FILE: json_bytes({CONSTANTS_KEY: [FITTED_TO]})}
    digest = sha256_of(b"".join(files.values()))[:12]
    folder = default_cache_folder() / NAME / f"{kind.op}_{kind.dtype}_{arch}_{digest}"
    if not is_model_folder(folder):
        write_folder(folder, files)
    return folder
