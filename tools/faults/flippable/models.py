"""Files of a model folder: its JSON files, its tree texts, and a shipped oracle with its baseline."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tile_oracle.judge.baseline import load_baseline
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.model.model_folder import read_booster, read_spec
from tile_oracle.model.store import read_json, shipped_models
from tile_oracle.record.dataset import load_records
from tile_oracle.record.final import final_measurements
from tools.faults.flippable.kind import FileKind

_MODEL = "grouped_conv_forward_bf16_gfx950"
_MODEL_WITH_ORACLE = "grouped_conv_forward_bf16_cpu"


def kinds() -> tuple[FileKind, ...]:
    """All kinds of files of a shipped model."""
    return (
        FileKind("model JSON files", _make_json, _read_json),
        FileKind("text of trees", _make_trees, _read_trees, apart=True),
        FileKind("shipped oracle", _make_oracle, _read_oracle),
        FileKind("baseline", _make_baseline, _read_baseline),
    )


def _copied(model: str, folder: Path) -> Path:
    copy = folder / model
    shutil.copytree(shipped_models() / model, copy)
    return copy


def _make_json(folder: Path) -> list[Path]:
    return sorted(_copied(_MODEL, folder).glob("*.json"))


def _read_json(folder: Path) -> Any:
    model = folder / _MODEL
    return read_spec(model), {path.name: read_json(path) for path in sorted(model.glob("*.json"))}


def _make_trees(folder: Path) -> list[Path]:
    return sorted(_copied(_MODEL, folder).glob("*.lgbm.gz"))


def _read_trees(folder: Path) -> Any:
    booster = read_booster(folder / _MODEL, "correction")
    inputs = np.random.default_rng(0).normal(size=(50, booster.num_feature()))
    return np.asarray(booster.predict(inputs, num_threads=1)).tolist()


def _make_oracle(folder: Path) -> list[Path]:
    return sorted(_copied(_MODEL_WITH_ORACLE, folder).glob("*/*/*.parquet"))


def _read_oracle(folder: Path) -> Any:
    (path,) = sorted((folder / _MODEL_WITH_ORACLE).glob("*/*/*.parquet"))
    oracles = find_oracles(final_measurements(load_records(path)))
    return oracles[["problem", "oracle_kernel", "oracle_tflops"]].to_dict("list")


def _make_baseline(folder: Path) -> list[Path]:
    return sorted(_copied(_MODEL_WITH_ORACLE, folder).glob("*/*/*.json"))


def _read_baseline(folder: Path) -> Any:
    (path,) = sorted((folder / _MODEL_WITH_ORACLE).glob("*/*/*.json"))
    return load_baseline(path)
