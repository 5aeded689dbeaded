"""Sealed JSON: the digest covers every value, and documents without one stay readable."""

from __future__ import annotations

import json

import pytest

from tile_oracle.errors import GateError
from tile_oracle.files.sealed_json import check_seal, seal, without_seal

_DOCUMENT = {"schema": 2, "efficiencies": {"b": 0.123456, "a": None}, "names": ["x", "y"], "on": True}


def test_a_sealed_document_is_checked_and_loses_nothing() -> None:
    sealed = seal(_DOCUMENT)
    assert check_seal(sealed, "b.json", GateError)
    assert without_seal(sealed) == _DOCUMENT


def test_a_document_without_a_seal_is_recognised_and_not_an_error() -> None:
    assert not check_seal(_DOCUMENT, "b.json", GateError)


def test_layout_and_order_of_keys_do_not_count() -> None:
    sealed = seal(_DOCUMENT)
    shuffled = json.loads(json.dumps(dict(reversed(sealed.items())), indent=3))
    assert check_seal(shuffled, "b.json", GateError)


def test_sealing_again_after_a_change_replaces_the_digest() -> None:
    changed = seal({**seal(_DOCUMENT), "schema": 3})
    assert check_seal(changed, "b.json", GateError)
    assert changed["sha256"] != seal(_DOCUMENT)["sha256"]


@pytest.mark.parametrize(
    "change",
    [{"schema": 3}, {"new": 1}, {"on": False}, {"names": ["y", "x"]}, {"sha256": None}, {"sha256_of": ""}],
)
def test_a_changed_value_gives_one_clear_line(change: dict[str, object]) -> None:
    with pytest.raises(GateError, match=r"b\.json is damaged or was edited by hand.*make it again") as raised:
        check_seal({**seal(_DOCUMENT), **change}, "b.json", GateError)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("key", ["sha256", "sha256_of", "schema"])
def test_a_missing_key_is_damage(key: str) -> None:
    sealed = seal(_DOCUMENT)
    del sealed[key]
    with pytest.raises(GateError, match="is damaged"):
        check_seal(sealed, "b.json", GateError)


def test_every_bit_of_the_file_is_covered() -> None:
    """A flipped bit gives a file that is not JSON, an equal document, or an error."""
    data = json.dumps(seal(_DOCUMENT), indent=1).encode()
    found = 0
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            document = json.loads(damaged.decode())
        except ValueError:
            continue
        if document == json.loads(data):
            continue
        with pytest.raises(GateError):
            check_seal(document, "b.json", GateError)
        found += 1
    assert found > 100
