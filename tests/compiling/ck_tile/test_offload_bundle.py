"""Offload bundles, written and read again."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.compiling.ck_tile.offload_bundle import MAGIC, code_objects, make_bundle, target_name


@given(st.binary(min_size=1, max_size=9000).filter(lambda code: MAGIC not in code))
def test_a_bundle_round_trips(code: bytes) -> None:
    assert code_objects(make_bundle(code, "gfx950") + b"\0" * 100) == {target_name("gfx950"): code}


def test_several_bundles_are_read_and_code_is_aligned_to_pages() -> None:
    data = make_bundle(b"one", "gfx950") + make_bundle(b"two", "gfx942")
    assert code_objects(data) == {target_name("gfx950"): b"one", target_name("gfx942"): b"two"}
    assert make_bundle(b"code", "gfx950").index(b"code") % 4096 == 0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"nothing", "not an offload bundle"),
        (b"CCOB" + b"\0" * 50, "compressed"),
        (MAGIC, "damaged"),
        (MAGIC + struct.pack("<Q", 1 << 40), "too many entries"),
        (MAGIC + struct.pack("<4Q", 1, 10, 1 << 40, 2) + b"ab", "outside"),
    ],
)
def test_invalid_bundles_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        code_objects(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tail: bytes) -> None:
    with suppress(ValueError):
        code_objects(MAGIC + tail)
