"""The contents of a model folder: its specification and its LightGBM models.

Compressed models are unpacked in memory only, so that any number of processes may read one folder. The same
model always gives the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from tile_oracle.errors import ModelError, first_line
from tile_oracle.files.sealed_json import typed
from tile_oracle.files.user_file import read_bytes
from tile_oracle.files.vouched_files import FILES, check_bytes
from tile_oracle.model.aliases import Aliases
from tile_oracle.model.model_text import Forest, read_model_text, why_not_a_sum, without_footer
from tile_oracle.model.store import SPEC_FILE, booster_file, no_model_there, read_json, read_manifest
from tile_oracle.operation import operations

if TYPE_CHECKING:
    import lightgbm as lgb

_PUBLISHED = ("tflops", "latency", "bandwidth")
"""The targets of published folders, some of which are not published."""
_LATER = ("layouts", "hardware", "feature_encoding_version")
"""Keys that are written only where they say something."""
_THREADS = re.compile(r"\[num_threads: -?[0-9]+\]")
_MAX_PACKED_BYTES = 64 << 20
_MAX_MODEL_BYTES = 256 << 20


@dataclass(frozen=True)
class ModelSpec:
    """feature_spec.json: the published keys, followed by tile-oracle's own.

    `direction`: None if the model states none. `picks`: weights of the members in the pick. `members`: number
    of boosters per target. `feature_names_of`: features of targets that do not read `feature_names`.
    `aliases`: names that are one kernel. `devices`: the devices of its measurements. `layouts`: those of its
    problems, for operations that have them; empty for older models. `hardware`: constants of the device that
    it was trained with, where they are not the architecture's. `feature_encoding_version`: CK Tile's; 1 knows
    that a vector width of 0 is the tile's.
    """

    op_type: str
    dtype: str
    arch: str
    feature_names: tuple[str, ...]
    categorical_features: tuple[str, ...] = ()
    targets: tuple[Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,40}\Z")], ...] = ("tflops",)
    log_targets: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    direction: str | None = None
    ndims: tuple[int, ...] = ()
    schema: str | None = None
    recipe: str | None = None
    picks: Mapping[str, float] = field(default_factory=dict)
    members: Mapping[str, int] = field(default_factory=dict)
    feature_names_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    aliases: Aliases = field(default_factory=Aliases)
    devices: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    hardware: Mapping[str, float] = field(default_factory=dict)
    feature_encoding_version: Annotated[int, msgspec.Meta(ge=0, le=1)] = 0

    @property
    def ranks_named(self) -> bool:
        """Whether kernels of Triton files and libraries have features, too."""
        known = (one.for_models for one in operations() if one.model_type == self.op_type and one.features)
        return any(one.from_names and one.name == self.schema for features in known for one in features.all)

    def as_json(self) -> dict[str, Any]:
        """As JSON values, in the order of the fields."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        values["aliases"] = self.aliases.as_json() if self.aliases.change_scores else {}
        return {name: value for name, value in values.items() if name not in _LATER or value}


def is_of_another(folder: Path, op_type: str) -> bool:
    """Returns whether the feature_spec.json of a folder, unchecked, names another operation that is known: to
    check the digests of all models takes longer than to read one."""
    found = None
    with suppress(OSError, ValueError):  # read_spec says what is wrong
        found = re.search(rb'"op_type": *"(\w+)"', read_bytes(folder / SPEC_FILE, _MAX_PACKED_BYTES))
    named = op_type if found is None else found[1].decode(errors="replace")
    return named != op_type and named in [one.model_type for one in operations()]


def read_spec(folder: Path) -> ModelSpec:
    """Returns the folder's feature_spec.json. Raises ModelError when it is missing or invalid."""
    path = folder / SPEC_FILE
    if not folder.is_dir():
        raise ModelError(no_model_there(folder))
    if not path.is_file() and (models := sorted(one.name for one in folder.glob("model_*.lgbm*"))):
        raise ModelError(
            f"{folder} has {', '.join(models)} but no {SPEC_FILE}, which names the features in their order: "
            "copy it from where the model was trained"
        )
    given = {name: value for name, value in read_json(path).items() if value is not None}
    defaults = {"op_type": "grouped_conv", "dtype": "bf16", "arch": "gfx950"}
    if "variant" in given:
        defaults["direction"] = given["variant"]
    spec = typed(defaults | given, ModelSpec, path, ModelError)
    if not spec.feature_names:
        raise ModelError(f"{path}: feature_names is empty; without it no column can be chosen")
    _check_indices(given, spec.feature_names, path)
    if FILES not in read_manifest(folder):
        spec = replace(spec, targets=_there(folder, spec.targets))
    return replace(spec, log_targets=_log_targets(given, spec.log_targets, path))


def _there(folder: Path, targets: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the targets that a published folder has a model of: it may list more. Raises ModelError for
    none."""
    published = {name: Path(booster_file(name)) for name in targets if name in _PUBLISHED}
    absent = {
        name: file.stem
        for name, file in published.items()
        if not any((folder / one).is_file() for one in (file, file.stem))
    }
    if published and len(absent) == len(targets):
        raise ModelError(f"{folder} has no {' or '.join(absent.values())}, which {SPEC_FILE} lists")
    return tuple(name for name in targets if name not in absent)


def _check_indices(raw: Mapping[str, Any], names: tuple[str, ...], path: Path) -> None:
    """Models of CK DSL also have each feature's index in a wider table (`feature_indices`), whose columns
    differ between versions. The names decide; both lists must have the same length. Raises ModelError."""
    indices = raw.get("feature_indices")
    if indices is None:
        return
    whole = isinstance(indices, list) and all(type(one) is int and one >= 0 for one in indices)
    if not whole or len(set(indices)) != len(names) or len(indices) != len(names):
        raise ModelError(
            f"{path}: feature_indices does not name a column for each of the {len(names)} feature_names"
        )


def _log_targets(raw: Mapping[str, Any], listed: tuple[str, ...], path: Path) -> tuple[str, ...]:
    """`log_targets`, or `tflops_log_transform` of a model of CK DSL. Raises ModelError."""
    said = raw.get("tflops_log_transform")
    if said is None:
        return listed
    if not isinstance(said, bool):
        raise ModelError(f"{path}: tflops_log_transform is neither true nor false")
    if "log_targets" in raw and said != ("tflops" in listed):
        raise ModelError(f"{path}: tflops_log_transform contradicts log_targets")
    return (*(name for name in listed if name != "tflops"), *(("tflops",) if said else ()))


def read_booster(folder: Path, target: str, number: int = 0) -> lgb.Booster:
    """Returns the model of a target, compressed or not. Raises ModelError when it is missing or damaged."""
    # Imported here: a machine that only measures, or replays without a model, may lack LightGBM.
    import lightgbm as lgb

    path, text = read_booster_text(folder, target, number)
    try:
        return lgb.Booster(model_str=text)
    except (lgb.basic.LightGBMError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} cannot be read by LightGBM: {first_line(error)}") from None


def read_booster_text(folder: Path, target: str, number: int = 0) -> tuple[Path, str]:
    """Returns the file of a target's model, and LightGBM's text in it up to the end of the trees, checked
    once for each text.

    Raises ModelError like `read_booster`.
    """
    path, text, digest = _unchecked_text(folder, target, number)
    if digest not in _CHECKED:
        read_model_text(text, str(path))
        _CHECKED.add(digest)
    return path, without_footer(text)


def _unchecked_text(folder: Path, target: str, number: int) -> tuple[Path, str, bytes]:
    """Returns the file of a target's model, the text in it, and the digest of the file."""
    packed = folder / booster_file(target, number)
    plain = packed.with_suffix("")
    path = plain if plain.exists() else packed
    try:
        data = read_bytes(path, _MAX_MODEL_BYTES if path == plain else _MAX_PACKED_BYTES)
    except FileNotFoundError as error:
        raise ModelError(f"{folder} has no {plain.name} or {packed.name} ({error.strerror})") from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    check_bytes(path, data, ModelError)
    digest = hashlib.sha256(data).digest()
    if path == packed:
        data = _unpacked(path, data)
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")  # as Git may have changed it on Windows
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not a LightGBM model: byte {error.start:,} is not UTF-8") from None
    return path, text, digest


_CHECKED: set[bytes] = set()
"""Digests of files whose texts were found to be good: a session reads its models several times."""


def read_forest(folder: Path, target: str, number: int = 0) -> Forest:
    """Returns the trees of a target's model, without LightGBM. Raises ModelError like `read_booster`, and for
    what `Forest` does not hold."""
    path, text, digest = _unchecked_text(folder, target, number)
    if digest not in _FORESTS:
        forest = Forest.from_text(text, str(path))
        if why := why_not_a_sum(text):
            raise ModelError(f"native code cannot score {path}: {why}; LightGBM can")
        if len(_FORESTS) >= _MOST_FORESTS:
            del _FORESTS[next(iter(_FORESTS))]
        _FORESTS[digest] = forest
        _CHECKED.add(digest)
    return _FORESTS[digest]


_MOST_FORESTS = 4
_FORESTS: dict[bytes, Forest] = {}
"""By digest of the file: a session picks by the trees, and explains its picks by the same."""


def packed_booster(booster: lgb.Booster) -> bytes:
    """Returns the booster as gzip bytes that depend only on its trees and settings, not on the number of
    threads."""
    text = _THREADS.sub("[num_threads: 0]", booster.model_to_string(num_iteration=-1))
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=0) as stream:
        stream.write(text.encode())
    return buffer.getvalue()


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
