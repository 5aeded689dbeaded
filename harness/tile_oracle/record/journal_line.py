"""One row as a line of a journal: eight hexadecimal digits of CRC-32, a space, the row as JSON."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tile_oracle.files.json_bytes import decode_json

_CHECKSUM_BYTES = 8


def encode_line(row: Mapping[str, Any]) -> bytes:
    """Returns the line with its line break."""
    text = json.dumps(row, separators=(",", ":"), allow_nan=True).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode_line(line: bytes) -> dict[str, Any] | None:
    """Parses a line without its line break; None for an invalid or damaged row."""
    text = line[_CHECKSUM_BYTES + 1 :]
    if line[: _CHECKSUM_BYTES + 1] != b"%08x " % zlib.crc32(text):
        return None
    row = _parsed(text)
    return row if isinstance(row, dict) else None


def _parsed(text: bytes) -> Any:
    """Returns the JSON value; None for a text that is not JSON."""
    with suppress(ValueError, RecursionError):
        return decode_json(text)
    return None


@dataclass(frozen=True)
class JournalLines:
    """The content of a journal. damaged: complete lines that are not rows. torn: the data after the last
    complete line."""

    rows: tuple[dict[str, Any], ...]
    damaged: tuple[bytes, ...]
    torn: bytes = b""


def decode_lines(data: bytes) -> JournalLines:
    """Parses the lines of a journal. An incomplete last line is not among the rows: it is
    being written, or its process died."""
    whole, _, torn = data.rpartition(b"\n")
    rows: list[dict[str, Any]] = []
    damaged: list[bytes] = []
    for line in whole.split(b"\n"):
        whole_row = decode_line(line) if line else None
        if whole_row is not None:
            rows.append(whole_row)
            continue
        for piece in _apart(line) if line else ():
            row = decode_line(piece)
            if row is None:
                damaged.append(piece)
            else:
                rows.append(row)
    return JournalLines(tuple(rows), tuple(damaged), torn)


def _apart(line: bytes) -> tuple[bytes, ...]:
    """Returns the damaged line, or the two lines that a damaged line break has joined."""
    text = line[_CHECKSUM_BYTES + 1 :].decode("latin-1")
    try:
        _, length = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return (line,)
    cut = _CHECKSUM_BYTES + 1 + length
    return (line,) if decode_line(line[:cut]) is None else (line[:cut], line[cut + 1 :])
