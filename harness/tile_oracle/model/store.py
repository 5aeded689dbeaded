"""The layout of models/ and of each model folder; files are written atomically and checked when read.

    model_{target}.lgbm[.gz]            one LightGBM model; further seeds: model_{target}.N.lgbm.gz
    feature_spec.json                   operation, dtype, arch, features and targets, and how picks are made
    train_manifest.json                 what the model was trained on, and its lineage
    cv_metrics_{target}.json            cross-validated metrics
    feature_importances_{target}.json   total gain of each feature
    physical_time.json                  coefficients of the physical time model, if it has one
    network.json                        weights of the neural networks, if it has them
    code_facts.json                     registers, LDS, ... of the kernels' binaries, if it reads them
    training.parquet                    the rows that it was trained on, if `tile-oracle model train` made it
    other_builds.parquet                rows of other compilers or devices that it was trained on, too
    out_of_fold.parquet                 predictions of its cross-validation (the old one's, if it was grown)
    card.md                             its data, figures and limits for people (evaluation.model_card)
    DEVICE/PROBLEM SET/KERNEL SET.json  a baseline, and beside it (.parquet) the oracle that a replay reads

tile-oracle's manifests list the SHA-256 of every file in the folder and are sealed themselves
(vouched_files): a changed file is an error. Published folders have no digests.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tile_oracle.errors import ModelError
from tile_oracle.files.data_files import data_folder
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.sealed_json import object_in, without_seal
from tile_oracle.files.user_file import read_bytes
from tile_oracle.files.vouched_files import (
    FILES,
    MANIFEST_FILE,
    check_bytes,
    manifest_of,
    sha256_of,
    vouched_manifest,
)
from tile_oracle.terminal.did_you_mean import did_you_mean

SPEC_FILE = "feature_spec.json"
PHYSICAL_FILE = "physical_time.json"
NETWORK_FILE = "network.json"
CODE_FILE = "code_facts.json"
TRAINING_FILE = "training.parquet"
OTHER_BUILDS_FILE = "other_builds.parquet"
OUT_OF_FOLD_FILE = "out_of_fold.parquet"
CARD_FILE = "card.md"

_MAX_JSON_BYTES = 64 << 20

MANY_DEVICES = "cpu"
"""The architecture whose devices differ so much that a model is valid for one of them only."""


def booster_file(target: str, number: int = 0) -> str:
    """Returns the name of the file with a target's LightGBM model; further seeds have numbers from 1."""
    return f"model_{target}.{number}.lgbm.gz" if number else f"model_{target}.lgbm.gz"


def metrics_file(target: str) -> str:
    """Returns the name of the file with the cross-validated metrics of a target."""
    return f"cv_metrics_{target}.json"


def importances_file(target: str) -> str:
    """Returns the name of the file with the gain of each feature of a target's model."""
    return f"feature_importances_{target}.json"


def model_places(own: Path | None, arch: str, replayed: bool = False) -> tuple[Path, ...]:
    """Returns the folders to search for models and their baselines, in order: the user's own, then the
    shipped ones.

    A shipped CPU model is valid for one machine: other machines with that CPU measure other times. It is
    found only for replayed sessions and explicit requests.
    """
    shipped = () if arch == MANY_DEVICES and not replayed else (shipped_models(),)
    return ((own,) if own is not None else ()) + shipped


def shipped_models() -> Path:
    """Returns the folder of the model folders that come with tile-oracle."""
    return data_folder("models")


def is_model_folder(folder: Path) -> bool:
    """Returns whether the folder has a specification, as every model folder does."""
    return (folder / SPEC_FILE).is_file()


def model_folders(models: Path) -> list[Path]:
    """Returns the model folders in a folder, sorted; none if the folder does not exist."""
    return [one for one in sorted(models.iterdir()) if is_model_folder(one)] if models.is_dir() else []


def named_model_folder(text: str, places: Iterable[Path]) -> Path | None:
    """Returns the model folder that a user named, by path or by name in one of the places; else None."""
    found = (Path(text).expanduser(), *(place / text for place in places))
    return next((folder for folder in found if is_model_folder(folder)), None)


def model_names(places: Iterable[Path]) -> list[str]:
    """Returns the names of all models in these places."""
    return sorted({folder.name for place in places for folder in model_folders(place)})


def no_model_there(folder: Path) -> str:
    """Returns the message for a folder that is none."""
    from tile_oracle.foreign.formats import refusal

    if is_file := refusal(folder, "a model folder"):
        return f"{folder} is no model folder{is_file}"
    hint = did_you_mean(folder.name, model_names((Path("models"), shipped_models())))
    return f"no model folder at {folder}{hint and ': '}{hint}"


def folder_of_model(text: str | Path) -> Path:
    """Returns the folder of a model that a user named on the command line: by its path, or by its name in
    models/ or among the shipped ones. The text itself if there is none: what reads it says so."""
    found = named_model_folder(str(text), (Path("models"), shipped_models()))
    return Path(text) if found is None else found


def read_manifest(folder: Path) -> dict[str, Any]:
    """Returns the folder's train_manifest.json, {} if it has none. Raises ModelError for a damaged one."""
    return without_seal(manifest_of(folder, ModelError) or {})


def kernels_trained_on(folder: Path) -> frozenset[str]:
    """Returns the names of a model's training kernels, from its manifest; empty if it does not list them."""
    return frozenset(map(str, read_manifest(folder).get("kernels") or ()))


def baseline_files(folder: Path) -> list[Path]:
    """Returns the baselines that are kept in a model folder, sorted."""
    return sorted(folder.glob("*/*/*.json"))


def oracle_file(baseline: Path) -> Path:
    """Returns the path of the oracle behind a baseline in a model folder: beside it, as parquet."""
    return baseline.with_suffix(".parquet")


def oracle_device(path: Path) -> str:
    """Returns the device, as its folder spells it, of an oracle in a model folder."""
    return path.parent.parent.name


def refuse_other_folder(folder: Path) -> None:
    """Raises ModelError when a file or folder of that name holds something else than a model."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not is_model_folder(folder))):
        raise ModelError(f"{folder} exists and is not a model folder: choose another name")


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes a model folder: complete or not at all; an older one of that name is replaced. Raises
    ModelError."""
    refuse_other_folder(folder)
    with disk_errors_as(ModelError, f"cannot write {folder}"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
            if entry.is_dir():
                shutil.copytree(entry, staging / entry.name)
            elif not _is_ours(entry.name):
                shutil.copyfile(entry, staging / entry.name)
        for name, data in _with_digests(folder, files).items():
            (staging / name).write_bytes(data)
        staging.chmod(0o755)
        if folder.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
            folder.replace(old / "model")
            staging.replace(folder)
            shutil.rmtree(old)
        else:
            staging.replace(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _with_digests(folder: Path, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns the files, with a manifest that has their digests and those of the files that stay in the
    folder."""
    if MANIFEST_FILE not in files:
        return dict(files)
    stay = {
        name: digest
        for name, digest in _listed(folder).items()
        if not _is_ours(name) and (folder / name).is_file()
    }
    own = {name: sha256_of(data) for name, data in files.items() if name != MANIFEST_FILE}
    manifest = vouched_manifest(json.loads(files[MANIFEST_FILE]), stay | own)
    return {**files, MANIFEST_FILE: json_bytes(manifest)}


def _listed(folder: Path) -> dict[str, str]:
    """Returns the digests in the manifest of a folder that is about to be replaced; none if it is damaged."""
    try:
        listed = read_json(folder / MANIFEST_FILE).get(FILES)
    except ModelError:
        return {}
    return listed if isinstance(listed, dict) else {}


def json_bytes(value: object) -> bytes:
    """JSON text as files of a model folder hold it."""
    return (json.dumps(value, indent=2, sort_keys=False, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> dict[str, Any]:
    """Returns a JSON object from a file, without its seal, which is checked.

    Raises ModelError when the file is missing, not an object, or changed since it was digested.
    """
    with disk_errors_as(ModelError, f"cannot read {path}"):
        data = read_bytes(path, _MAX_JSON_BYTES)
    check_bytes(path, data, ModelError)
    return without_seal(object_in(data, path, ModelError))


def _is_ours(name: str) -> bool:
    """Files that training writes; others (baselines, a recorded oracle) stay when a model is replaced."""
    return name in (
        SPEC_FILE,
        MANIFEST_FILE,
        CODE_FILE,
        NETWORK_FILE,
        OUT_OF_FOLD_FILE,
        OTHER_BUILDS_FILE,
        CARD_FILE,
    ) or name.startswith(("model_", "cv_metrics_", "feature_importances_", "physical_"))
