"""JSON as bytes: what msgspec refuses is still read and written."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tile_oracle.files.json_bytes import decode_json, encode_json


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, None, True, "ä\n"]}, None),
        ({"a": np.float64(1.5)}, b'{"a":1.5}'),
        ({"a": "\udc80"}, b'{"a":"\\udc80"}'),
        ({"a": 10**30}, b'{"a":' + b"1" + b"0" * 30 + b"}"),
    ],
)
def test_values_come_back(value: object, text: bytes | None) -> None:
    encoded = encode_json(value)
    assert b"\n" not in encoded
    assert text is None or encoded == text
    assert decode_json(encoded) == value


def test_other_numbers() -> None:
    assert encode_json([math.nan, math.inf]) == b"[null,null]"
    assert decode_json(b"[Infinity]") == [math.inf]


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b"nul"])
def test_no_json(text: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        decode_json(text)


def test_what_json_has_not_is_refused() -> None:
    with pytest.raises(TypeError):
        encode_json({"a": object()})
