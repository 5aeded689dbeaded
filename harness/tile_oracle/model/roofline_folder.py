"""Model folders with the roofline model, which needs no measurements.

roofline.json        the constants
feature_spec.json    operation, data type, architecture
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from tile_oracle.arch import load_arch
from tile_oracle.build.cache import default_cache_folder
from tile_oracle.errors import ModelError
from tile_oracle.files.vouched_files import MANIFEST_FILE
from tile_oracle.model.model_folder import ModelSpec
from tile_oracle.model.roofline import NAME, RooflineModel
from tile_oracle.model.store import ROOFLINE_FILE, SPEC_FILE, is_model_folder, json_bytes, write_folder
from tile_oracle.operation import Kind, operation_named

OPERATIONS = ("gemm",)


def roofline_files(op: str, dtype: str, model: RooflineModel, fitted: Sequence[str] = ()) -> dict[str, bytes]:
    """The files of a model folder. fitted: names of the records that its constants were fitted to.

    Raises ModelError for an operation or a data type without a roofline model.
    """
    if op not in OPERATIONS:
        raise ModelError(f"the roofline model is for {' and '.join(OPERATIONS)}, not for {op}")
    peak = load_arch(model.arch).peak
    if peak is None or dtype not in peak.flops_a_cu_and_clock:
        raise ModelError(f"the peak rate of {model.arch} for {dtype} is not in kernels/arch_specs.json")
    features = operation_named(op).for_models
    schema = features.pool or features.own
    spec = ModelSpec(
        op_type=schema.op,
        dtype=dtype,
        arch=model.arch,
        feature_names=schema.names,
        targets=(NAME,),
        schema=schema.name,
        recipe=NAME,
        picks={NAME: 1.0},
    )
    manifest = {"data_rows": 0, "valid_rows": 0, "constants_from": list(fitted)}
    return {
        SPEC_FILE: json_bytes(spec.as_json()),
        ROOFLINE_FILE: json_bytes(model.as_json()),
        MANIFEST_FILE: json_bytes(manifest),
    }


def roofline_folder(kind: Kind, arch: str) -> Path:
    """A model folder for this kind of problem in the cache, written at the first call. Raises ModelError."""
    files = roofline_files(kind.op, kind.dtype, RooflineModel(arch))
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(name.encode() + data)
    folder = default_cache_folder() / NAME / f"{kind.op}_{kind.dtype}_{arch}_{digest.hexdigest()[:12]}"
    if not is_model_folder(folder):
        write_folder(folder, files)
    return folder
