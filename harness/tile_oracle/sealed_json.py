"""JSON documents that carry a SHA-256 of themselves, so that a changed bit is noticed when they are read.

    document = seal({"schema": 2, ...})      adds two keys, `sha256` and `sha256_of`
    check_seal(document, path, GateError)    raises when the document is not what was sealed

The digest is that of the document as canonical JSON (keys sorted, no white space, ASCII) without the two
keys. Layout and order of keys may therefore change; every value counts. Two keys and not one: damage to the
name of one of them does not turn a sealed document into one that never had a seal.
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
    """The document with its digest; an older one is replaced.

    Raises ValueError for what JSON does not hold, NaN and infinity included.
    """
    plain = json.loads(json.dumps({key: value for key, value in document.items() if not _is_seal(key)}))
    return {**plain, DIGEST: digest_of_document(plain), DIGEST_OF: _MEANING}


def is_sealed(document: Mapping[str, Any]) -> bool:
    """Whether the document carries a digest, right or wrong."""
    return any(map(_is_seal, document))


def without_seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document as it was before it was sealed."""
    return {key: value for key, value in document.items() if not _is_seal(key)}


def check_seal(
    document: Mapping[str, Any],
    path: Path | str,
    error: type[HarnessError],
    fix: str = "restore it from version control or a copy, or make it again",
) -> bool:
    """Whether the document carries a digest, which is then right. Documents of older versions carry none.

    Raises `error`, which names the path and the fix, for a document that is not what was sealed.
    """
    if not is_sealed(document):
        return False
    try:
        right = document.get(DIGEST) == digest_of_document(without_seal(document))
    except (ValueError, RecursionError):  # NaN, or a text that no encoding holds: never sealed so
        right = False
    if not right or document.get(DIGEST_OF) != _MEANING:
        raise error(f"{path} is damaged or was edited by hand, its SHA-256 does not match: {fix}")
    return True


def digest_of_document(document: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of a document as canonical JSON. Raises ValueError for NaN and infinity."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _is_seal(key: object) -> bool:
    return key in (DIGEST, DIGEST_OF)
