"""JSON documents with a SHA-256 of their content, so that damage is detected when they are read.

    document = seal({"schema": 2, ...})      adds two keys, `sha256` and `sha256_of`
    check_seal(document, path, GateError)    raises if the document was changed after sealing

The digest is computed over the document as canonical JSON (keys sorted, no white space, ASCII) without the
two keys. So layout and key order may change, values may not. There are two keys so that damage to the name of
one does not turn a sealed document into an unsealed one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tile_oracle.errors import HarnessError

DIGEST = "sha256"
DIGEST_OF = "sha256_of"
_MEANING = "this document as canonical JSON, without sha256 and sha256_of"


def seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the document with its digest; an existing one is replaced.

    Raises ValueError for values that JSON cannot express, such as NaN and infinity.
    """
    plain = json.loads(json.dumps({key: value for key, value in document.items() if not _is_seal(key)}))
    return {**plain, DIGEST: digest_of_document(plain), DIGEST_OF: _MEANING}


def is_sealed(document: Mapping[str, Any]) -> bool:
    """Whether the document has a digest, which may be wrong."""
    return any(map(_is_seal, document))


def without_seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without the two keys of its seal."""
    return {key: value for key, value in document.items() if not _is_seal(key)}


def check_seal(
    document: Mapping[str, Any],
    path: Path | str,
    error: type[HarnessError],
    fix: str = "restore it from version control or a copy, or make it again",
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
