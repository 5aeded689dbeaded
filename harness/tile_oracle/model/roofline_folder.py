"""Model folders with the roofline model: what it predicts, and which measurements its constants come from."""

from __future__ import annotations

from pathlib import Path

from tile_oracle.arch import load_arch
from tile_oracle.compiling.cache import default_cache_folder
from tile_oracle.errors import ModelError
from tile_oracle.features.schemas.roofline import FITTED_TO
from tile_oracle.files.vouched_files import MANIFEST_FILE, sha256_of
from tile_oracle.model.made_by import CONSTANTS_KEY
from tile_oracle.model.model_folder import ModelSpec
from tile_oracle.model.roofline import NAME
from tile_oracle.model.store import SPEC_FILE, is_model_folder, json_bytes, write_folder
from tile_oracle.operation import Kind, operation_named

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
    files = {
        SPEC_FILE: json_bytes(spec.as_json()),
        MANIFEST_FILE: json_bytes({CONSTANTS_KEY: [FITTED_TO]}),
    }
    digest = sha256_of(b"".join(files.values()))[:12]
    folder = default_cache_folder() / NAME / f"{kind.op}_{kind.dtype}_{arch}_{digest}"
    if not is_model_folder(folder):
        write_folder(folder, files)
    return folder
