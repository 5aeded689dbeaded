"""The model folder: the published files, read and written.

    model_{target}.lgbm[.gz]            one LightGBM model; further seeds: model_{target}.N.lgbm.gz
    feature_spec.json                   operation, dtype, arch, features and targets, and how picks are made
    train_manifest.json                 what the model was trained on, and its lineage
    cv_metrics_{target}.json            cross-validated figures
    feature_importances_{target}.json   total gain of each feature
    physical_time.json                  coefficients of the physical time model, where there is one
    code_facts.json                     registers, LDS, ... of the kernels' binaries, where it reads them
    study.json                          figures of its recipe on held-out problems; of this model alone
    size_tradeoff.json                  what smaller models would reach, where that was looked at

A manifest of ours lists the SHA-256 of every file in the folder and is sealed itself
(vouched_files): a file that changed since is an error. Published folders and those of older versions
have no digests.

Compressed models are read into memory, never unpacked beside the original, so that any number of
processes may read one folder. The same model always gives the same bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.data_files import data_folder
from tile_oracle.errors import ModelError
from tile_oracle.sealed_json import check_seal, without_seal
from tile_oracle.selector.model_text import check_model_text
from tile_oracle.user_file import read_bytes
from tile_oracle.vouched_files import FILES, MANIFEST_FILE, check_bytes, sha256_of, vouched_manifest

if TYPE_CHECKING:
    import lightgbm as lgb

SPEC_FILE = "feature_spec.json"
PHYSICAL_FILE = "physical_time.json"
CODE_FILE = "code_facts.json"
STUDY_FILE = "study.json"

_TARGET_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_THREADS = re.compile(r"\[num_threads: -?[0-9]+\]")
_MAX_PACKED_BYTES = 64 << 20
_MAX_MODEL_BYTES = 256 << 20
_MAX_JSON_BYTES = 64 << 20


MANY_DEVICES = "cpu"
"""The architecture whose devices are so unlike that a model of one says nothing of another."""


@dataclass(frozen=True)
class ModelSpec:
    """feature_spec.json. The published keys, and after them our own, which published models lack.

    `direction` is None for a model that does not say one. `picks` weighs the members for the pick;
    `members` says how many boosters each target has; `feature_names_of` holds the features of targets
    that read others than `feature_names`; `aliases` which names are one kernel; `devices` whose measurements
    it was trained on.
    """

    op_type: str
    dtype: str
    arch: str
    feature_names: tuple[str, ...]
    categorical_features: tuple[str, ...] = ()
    targets: tuple[str, ...] = ("tflops",)
    log_targets: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    direction: str | None = None
    ndims: tuple[int, ...] = ()
    schema: str | None = None
    recipe: str | None = None
    picks: Mapping[str, float] = field(default_factory=dict)
    members: Mapping[str, int] = field(default_factory=dict)
    feature_names_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    aliases: Mapping[str, Any] = field(default_factory=dict)
    devices: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "op_type": self.op_type,
            "dtype": self.dtype,
            "arch": self.arch,
            "feature_names": list(self.feature_names),
            "categorical_features": list(self.categorical_features),
            "targets": list(self.targets),
            "log_targets": list(self.log_targets),
            "params": dict(self.params),
            "direction": self.direction,
            "ndims": list(self.ndims),
            "schema": self.schema,
            "recipe": self.recipe,
            "picks": dict(self.picks),
            "members": dict(self.members),
            "feature_names_of": {name: list(value) for name, value in self.feature_names_of.items()},
            "aliases": dict(self.aliases),
            "devices": list(self.devices),
        }


def model_places(own: Path | None, arch: str, replayed: bool = False) -> tuple[Path, ...]:
    """Where models and their baselines are looked for, in order: the user's own folder, then shipped ones.

    A shipped model of a CPU is of one machine, and others of that CPU measure otherwise: it is for replayed
    sessions, and for who names it.
    """
    shipped = () if arch == MANY_DEVICES and not replayed else (data_folder("models"),)
    return ((own,) if own is not None else ()) + shipped


def read_spec(folder: Path) -> ModelSpec:
    """The folder's feature_spec.json. Raises ModelError when it is missing or not one."""
    path = folder / SPEC_FILE
    raw = read_json(path)

    def texts(key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        value = raw.get(key, default)
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise ModelError(f"{path}: {key} is not a list of names")
        return tuple(value)

    def mapping(key: str) -> dict[str, Any]:
        value = raw.get(key) or {}
        if not isinstance(value, dict):
            raise ModelError(f"{path}: {key} is not an object")
        return value

    def text(key: str) -> str | None:
        value = raw.get(key)
        if value is not None and not isinstance(value, str):
            raise ModelError(f"{path}: {key} is not a text")
        return value

    names = texts("feature_names")
    if not names:
        raise ModelError(f"{path}: feature_names is missing or empty; without it no column can be chosen")
    targets = texts("targets", ("tflops",))
    for target in targets:
        if not _TARGET_NAME.fullmatch(target):
            raise ModelError(f"{path}: {target!r} is not a target's name")
    try:
        members = {str(name): int(count) for name, count in mapping("members").items()}
        picks = {str(name): float(weight) for name, weight in mapping("picks").items()}
        ndims = tuple(int(value) for value in raw.get("ndims") or ())
        names_of = {str(name): tuple(map(str, value)) for name, value in mapping("feature_names_of").items()}
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"{path}: members, picks, ndims or feature_names_of cannot be read ({error})"
        ) from None
    return ModelSpec(
        op_type=text("op_type") or "grouped_conv",
        dtype=text("dtype") or "bf16",
        arch=text("arch") or "gfx950",
        feature_names=names,
        categorical_features=texts("categorical_features"),
        targets=targets,
        log_targets=texts("log_targets"),
        params=mapping("params"),
        direction=text("direction") or text("variant"),
        ndims=ndims,
        schema=text("schema"),
        recipe=text("recipe"),
        picks=picks,
        members=members,
        feature_names_of=names_of,
        aliases=mapping("aliases"),
        devices=texts("devices"),
    )


def read_booster(folder: Path, target: str, number: int = 0) -> lgb.Booster:
    """The model of a target, compressed or not. Raises ModelError when there is none or it is damaged."""
    # A machine that only measures, or replays without a model, has no LightGBM.
    import lightgbm as lgb

    path, text = read_booster_text(folder, target, number)
    try:
        return lgb.Booster(model_str=text)
    except (lgb.basic.LightGBMError, ValueError, KeyError, TypeError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{path} cannot be read by LightGBM: {first}") from None


def read_booster_text(folder: Path, target: str, number: int = 0) -> tuple[Path, str]:
    """The file of a target's model, and LightGBM's text in it. Raises ModelError like `read_booster`."""
    stem = f"model_{target}" if number == 0 else f"model_{target}.{number}"
    plain, packed = folder / f"{stem}.lgbm", folder / f"{stem}.lgbm.gz"
    path = plain if plain.exists() else packed
    try:
        data = read_bytes(path, _MAX_PACKED_BYTES if path == packed else _MAX_MODEL_BYTES)
    except FileNotFoundError as error:
        raise ModelError(f"{folder} has no {plain.name} or {packed.name} ({error.strerror})") from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    check_bytes(path, data, ModelError)
    if path == packed:
        data = _unpacked(path, data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not a LightGBM model: byte {error.start:,} is not UTF-8") from None
    check_model_text(text, str(path))
    return path, text


def packed_booster(booster: lgb.Booster) -> bytes:
    """The booster as gzip bytes that depend on nothing but its trees and settings (how many threads grew
    it is no part of it)."""
    text = _THREADS.sub("[num_threads: 0]", booster.model_to_string(num_iteration=-1))
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=0) as stream:
        stream.write(text.encode())
    return buffer.getvalue()


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes a model folder: complete or not at all; an older one of that name is replaced.

    Raises ModelError when a folder of that name holds something else than a model.
    """
    folder = Path(folder)
    if folder.exists() and (
        not folder.is_dir() or (any(folder.iterdir()) and not (folder / SPEC_FILE).is_file())
    ):
        raise ModelError(f"{folder} exists and is not a model folder: choose another name")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise ModelError(f"cannot write {folder}: {error.strerror}") from None
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
    """The files with their digests in the manifest among them, and those of files that stay in the folder."""
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
    """The digests in the manifest of a folder that is about to be replaced; none where it is damaged."""
    try:
        listed = read_json(folder / MANIFEST_FILE).get(FILES)
    except ModelError:
        return {}
    return listed if isinstance(listed, dict) else {}


def json_bytes(value: object) -> bytes:
    """JSON text as files of a model folder hold it."""
    return (json.dumps(value, indent=2, sort_keys=False, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, its seal checked and left out.

    Raises ModelError when it is missing, not an object, or not what was digested.
    """
    try:
        data = read_bytes(path, _MAX_JSON_BYTES)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    check_bytes(path, data, ModelError)
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} does not hold a JSON object")
    check_seal(value, path, ModelError)
    return without_seal(value)


def _is_ours(name: str) -> bool:
    """Files that training writes; others (baselines, a recorded oracle) stay when a model is replaced."""
    return name in (SPEC_FILE, MANIFEST_FILE, CODE_FILE, STUDY_FILE) or name.startswith(
        ("model_", "cv_metrics_", "feature_importances_", "physical_", "out_of_fold", "size_tradeoff")
    )


def _unpacked(path: Path, data: bytes) -> bytes:
    unzip = zlib.decompressobj(wbits=31)
    try:
        text = unzip.decompress(data, _MAX_MODEL_BYTES)
    except zlib.error as error:
        raise ModelError(f"{path} is not a whole gzip file ({error}): copy it again") from None
    if unzip.unconsumed_tail:
        raise ModelError(f"{path} unpacks to more than {_MAX_MODEL_BYTES >> 20} MiB: not a model")
    if unzip.unused_data:
        raise ModelError(f"{path} goes on after its end: copy it again")
    if not unzip.eof:
        raise ModelError(f"{path} is cut off: copy it again")
    return text
