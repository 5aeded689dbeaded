"""The part of MessagePack that code objects are written in."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.build.msgpack import unpack

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(max_size=300)
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=40), inner, max_size=20),
    max_leaves=30,
)


def pack(value: Any) -> bytes:
    """The specification's shortest form of each value."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return pack_integer(value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode()
        return head(len(data), 0xA0, 32, ((0xD9, ">B"), (0xDA, ">H"), (0xDB, ">I"))) + data
    if isinstance(value, list):
        return head(len(value), 0x90, 16, ((0xDC, ">H"), (0xDD, ">I"))) + b"".join(map(pack, value))
    items = b"".join(pack(key) + pack(item) for key, item in value.items())
    return head(len(value), 0x80, 16, ((0xDE, ">H"), (0xDF, ">I"))) + items


def head(count: int, fixed: int, below: int, longer: tuple[tuple[int, str], ...]) -> bytes:
    if count < below:
        return bytes([fixed | count])
    for byte, form in longer:
        if count < 1 << (8 * struct.calcsize(form)):
            return bytes([byte]) + struct.pack(form, count)
    raise AssertionError


def pack_integer(value: int) -> bytes:
    if -32 <= value < 128:
        return struct.pack(">b", value)
    forms = ((0xCC, ">B"), (0xCD, ">H"), (0xCE, ">I"), (0xCF, ">Q"))
    if value < 0:
        forms = ((0xD0, ">b"), (0xD1, ">h"), (0xD2, ">i"), (0xD3, ">q"))
    for byte, form in forms:
        try:
            return bytes([byte]) + struct.pack(form, value)
        except struct.error:
            continue
    raise AssertionError


@given(VALUES)
def test_what_was_packed_is_read(value: object) -> None:
    assert unpack(pack(value)) == value


@given(VALUES.filter(lambda value: len(pack(value)) > 1), st.data())
def test_what_is_cut_short_is_refused(value: object, data: st.DataObject) -> None:
    whole = pack(value)
    with pytest.raises(ValueError, match=r"cut short|more items|unexpected end"):
        unpack(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize(
    "data",
    [b"\xc1", b"\xd4\x01\x02", b"\xdd\xff\xff\xff\xff", b"\x91" * 100, b"\x81\x90\x01", b"\xa1\xff"],
    ids=["never used", "extension", "four thousand million items", "deep", "a list as key", "not UTF-8"],
)
def test_what_is_no_value_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        unpack(data)
