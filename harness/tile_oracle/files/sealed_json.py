"""JSON files: read as an object, checked against a type, and sealed with a SHA-256 of their content.

    document = seal({"schema": 2, ...})      adds two keys, `sha256` and `sha256_of`
    read_object(path, GateError)             reads it, and raises if it was changed after sealing
    typed(document, Baseline, path, GateError)      its values, with one line for what does not fit

The digest is computed over the document as canonical JSON (keys sorted, no white space, ASCII) without the
two keys. So layout and key order may change, values may not. There are two keys so that damage to the name of
one does not turn a sealed document into an unsealed one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tile_oracle.errors import HarnessError, first_line
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.user_file import read_bytes

_T = TypeVar("_T")

DIGEST = "sha256"
DIGEST_OF = "sha256_of"
MOST_BYTES = 256 << 20
"""Bytes of the largest file that is read."""

_FIX = "restore it from version control or a copy, or make it again"
_PLACE = re.compile(r"(.*) - at `\$?\.?(.*)`")
_MEANING = "this document as canonical JSON, without sha256 and sha256_of"


def read_object(
    path: Path, error: type[HarnessError], fix: str = _FIX, *, check: bool = True
) -> dict[str, Any]:
    """Returns the JSON object in a file. check: compare its seal, if it has one.

    Raises `error`, with the path and the fix, for a file that cannot be read or holds something else.
    """
    with disk_errors_as(error, f"{path} cannot be read", fix):
        data = read_bytes(path, MOST_BYTES)
    return object_in(data, path, error, fix, check=check)


def object_in(
    data: bytes, path: Path, error: type[HarnessError], fix: str = _FIX, *, check: bool = True
) -> dict[str, Any]:
    """`read_object` of a file's content. path: the file, for messages."""
    try:
        document = json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as reason:
        raise error(f"{path} is not JSON ({first_line(reason)[:200]}): {fix}") from None
    if not isinstance(document, dict):
        raise error(f"{path} does not hold a JSON object: {fix}")
    if check:
        check_seal(document, path, error, fix)
    return document


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def typed(value: Any, kind: type[_T], path: Path | str, error: type[HarnessError], fix: str = _FIX) -> _T:
    """Returns the value of a JSON file as a dataclass or another type of msgspec. Unknown members are
    ignored.

    Raises `error`, with the path, the member and the fix, for a value that does not fit.
    """
    if isinstance(value, dict) and is_dataclass(kind):
        # msgspec 0.18.0 cannot set a default that is made anew in a frozen dataclass.
        made = {one.name: one.default_factory() for one in fields(kind) if one.default_factory is not MISSING}
        value = made | value
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as reason:
        found = _PLACE.fullmatch(str(reason))
        what, place = (found[1], found[2]) if found else (str(reason), "")
        raise error(f"{path}: {place}{place and ': '}{what[:1].lower()}{what[1:]}: {fix}") from None


def seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of the document with its digest; an existing one is replaced.

    Raises ValueError for values that JSON cannot express, such as NaN and infinity.
    """
    plain = json.loads(json.dumps({key: value for key, value in document.items() if not _is_seal(key)}))
    return {**plain, DIGEST: digest_of_document(plain), DIGEST_OF: _MEANING}


def is_sealed(document: Mapping[str, Any]) -> bool:
    """Returns whether the document has a digest, which may be wrong."""
    return any(map(_is_seal, document))


def without_seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the document without the two keys of its seal."""
    return {key: value for key, value in document.items() if not _is_seal(key)}


def check_seal(
    document: Mapping[str, Any], path: Path | str, error: type[HarnessError], fix: str = _FIX
) -> bool:
    """Returns whether the document has a digest (those of older versions have none).

    Raises `error`, with the path and the fix, if the digest does not match.
    """
    if not is_sealed(document):
        return False
    try:
        right = document.get(DIGEST) == digest_of_document(without_seal(document))
    except (ValueError, RecursionError):  # NaN, or text that cannot be encoded: cannot have been sealed
        right = False
    if not right or document.get(DIGEST_OF) != _MEANING:
        raise error(f"{path} is damaged or was edited by hand: its SHA-256 does not match; {fix}")
    return True


def digest_of_document(document: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of a document as canonical JSON. Raises ValueError for NaN and infinity."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _is_seal(key: object) -> bool:
    return key in (DIGEST, DIGEST_OF)
