"""SHA-256 digests of files, stored in another file in the same folder and checked when the files are read.

Two kinds of JSON file hold digests of others. Both are sealed themselves (tile_oracle.files.sealed_json):

    train_manifest.json    `files`: name -> SHA-256 of the files in the same model folder
    NAME.json              `records_sha256`: SHA-256 of NAME.parquet, the oracle of this baseline

Files without a digest are read unchecked: published model folders have none.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from tile_oracle.errors import HarnessError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.sealed_json import MOST_BYTES, check_seal, is_sealed, read_object, seal
from tile_oracle.files.user_file import open_regular, read_bytes

MANIFEST_FILE = "train_manifest.json"
FILES = "files"
RECORDS_DIGEST = "records_sha256"

_HEX_DIGEST = re.compile(r"[0-9a-f]{64}")


def sha256_of(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: Path) -> str:
    """SHA-256 of a file, in hex. Raises OSError."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def records_digest(baseline: Path) -> str | None:
    """SHA-256 of the oracle file of a baseline, None if there is none. Raises OSError."""
    try:
        return sha256_of_file(baseline.with_suffix(".parquet"))
    except FileNotFoundError:
        return None


def check_bytes(path: Path, data: bytes | None, error: type[HarnessError]) -> bool:
    """Checks the content of a file against its digest. Returns whether there is a digest; raises `error` if
    it does not match."""
    found = _voucher(path, error)
    if found is None:
        return False
    _compare(path, sha256_of_file(path) if data is None else sha256_of(data), *found, error)
    return True


def check_file(path: Path, error: type[HarnessError]) -> bool:
    """Returns the same for a file that another reader opens. Raises `error` also for an unreadable file."""
    with disk_errors_as(error, f"cannot read {path}"):
        return check_bytes(path, None, error)


def vouched_manifest(manifest: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    """Returns a sealed copy of the manifest with the digests of the folder's files (name -> SHA-256)."""
    return seal({**manifest, FILES: dict(sorted(files.items()))})


def vouch_for(folder: Path, names: Iterable[str], error: type[HarnessError]) -> None:
    """Updates the digests of these files, which were just written, in the folder's manifest.

    Other entries are unchanged. A folder without a manifest, or with a manifest without digests, is left
    unchanged; `seal_folder` adds digests to it. Raises `error`.
    """
    manifest = manifest_of(folder, error)
    if manifest is not None and FILES in manifest:
        _write_manifest(folder, manifest, {**manifest[FILES], **_digests(folder, names, error)}, error)


def seal_folder(folder: Path, error: type[HarnessError]) -> int:
    """Writes digests of all files of a model folder to its manifest and returns their number.

    Existing digests are replaced; nothing else changes. Raises `error`.
    """
    manifest = read_object(folder / MANIFEST_FILE, error, check=False)
    names = [
        entry.name
        for entry in sorted(folder.iterdir())
        if entry.is_file() and entry.name != MANIFEST_FILE and not entry.name.startswith(".")
    ]
    _write_manifest(folder, manifest, _digests(folder, names, error), error)
    return len(names)


def seal_baseline(path: Path, error: type[HarnessError]) -> None:
    """Seals the JSON file of a baseline, with the digest of its oracle if there is one.

    Other values are unchanged. Raises `error`, also for a file that is not a JSON object.
    """
    document = read_object(path, error, check=False)
    with disk_errors_as(error, f"cannot write {path}"):
        write_atomically(path, sealed_baseline(document, path))


def sealed_baseline(document: Mapping[str, Any], path: Path) -> bytes:
    """Returns the content of a baseline's file at `path`: sealed, with the digest of its oracle.

    Equal documents with equal oracles give equal bytes. Raises OSError for an oracle that cannot be read.
    """
    plain = {key: value for key, value in document.items() if key != RECORDS_DIGEST}
    digest = records_digest(path)
    sealed = seal(plain if digest is None else {**plain, RECORDS_DIGEST: digest})
    return (json.dumps(sealed, indent=1, sort_keys=True, allow_nan=False) + "\n").encode("ascii")


def vouch_for_oracle(path: Path, error: type[HarnessError]) -> None:
    """Updates the digest of an oracle, which was just written, in its baseline, if that is sealed. Raises
    `error`."""
    beside = path.with_suffix(".json")
    document = _document(beside, error)
    if document is not None and is_sealed(document):
        seal_baseline(beside, error)


def _digests(folder: Path, names: Iterable[str], error: type[HarnessError]) -> dict[str, str]:
    try:
        return {name: sha256_of_file(folder / name) for name in names}
    except OSError as reason:
        raise error(f"cannot read {reason.filename}: {reason.strerror}") from None


def _write_manifest(
    folder: Path, manifest: Mapping[str, Any], files: Mapping[str, str], error: type[HarnessError]
) -> None:
    text = json.dumps(vouched_manifest(manifest, files), indent=2, allow_nan=False) + "\n"
    with disk_errors_as(error, f"cannot write {folder / MANIFEST_FILE}"):
        write_atomically(folder / MANIFEST_FILE, text.encode())


def _compare(path: Path, digest: str, expected: str, by: Path, error: type[HarnessError]) -> None:
    if digest != expected:
        maker = "model train" if by.name == MANIFEST_FILE else "runs merge --format oracle"
        raise error(
            f"{path} is damaged or was changed: its SHA-256 differs from that in {by.name}; "
            f"restore the file from version control or a copy, or make it again (tile-oracle {maker})"
        )


def _voucher(path: Path, error: type[HarnessError]) -> tuple[str, Path] | None:
    """Returns the digest that the file must have, and the file that stores the digest; None if there is
    none."""
    if path.name == MANIFEST_FILE:
        return None
    manifest = manifest_of(path.parent, error)
    listed = None if manifest is None else manifest.get(FILES)
    if listed is not None and path.name in listed:
        return listed[path.name], path.parent / MANIFEST_FILE
    if path.suffix == ".parquet":
        beside = path.with_suffix(".json")
        document = _document(beside, error)
        if document is not None and isinstance(digest := document.get(RECORDS_DIGEST), str):
            return digest, beside
    return None


def manifest_of(folder: Path, error: type[HarnessError]) -> dict[str, Any] | None:
    """Returns the folder's manifest, checked; None if there is none."""
    path = folder / MANIFEST_FILE
    document = _document(path, error)
    if document is None and path.is_file():
        raise error(f"{path} is not a readable JSON object: restore it from version control or a copy")
    if document is None or FILES not in document:
        return document
    listed = document[FILES]
    if not isinstance(listed, dict) or not all(
        isinstance(digest, str) and _HEX_DIGEST.fullmatch(digest) for digest in listed.values()
    ):
        raise error(f"{path}: files does not hold SHA-256 digests: restore it from version control or a copy")
    return document


def _document(path: Path, error: type[HarnessError]) -> dict[str, Any] | None:
    """Returns the JSON object in a file. Raises `error` if its seal does not match. None if there is no file
    or it
    holds no JSON object: a foreign file next to a parquet file is ignored."""
    try:
        seen = path.stat()
        return _read(path, seen.st_mtime_ns, seen.st_size, seen.st_ino)
    except HarnessError as damage:
        raise error(str(damage)) from None
    except (OSError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=16)
def _read(path: Path, mtime_ns: int, size: int, inode: int) -> dict[str, Any] | None:
    """Returns the JSON object in a file, None for another value. Raises HarnessError if its seal does not
    match."""
    document = json.loads(read_bytes(path, MOST_BYTES).decode())
    if not isinstance(document, dict):
        return None
    check_seal(document, path, HarnessError)
    return document
