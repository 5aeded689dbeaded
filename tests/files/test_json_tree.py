"""Reading JSON data files: every error is one line with its position."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tile_oracle.errors import GateError, RuleError
from tile_oracle.files.json_bytes import decode_json, encode_json
from tile_oracle.files.json_tree import MAX_FILE_BYTES, JsonTree, shown
from tile_oracle.files.sealed_json import check_seal, seal, without_seal


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "'rules.json' is not JSON: line 1, column 1"),
        (b'{"a": 1,}', "'rules.json' is not JSON: line 1, column"),
        (b'{"a": 1, "a": 2}', "'rules.json' is not usable JSON: the key 'a' appears twice in one object"),
        (b'{"a": NaN}', "NaN is not a JSON value"),
        (b'{"a": 1' + b"0" * 10_000 + b"}", "'rules.json' is not usable JSON: "),
        (b"[" * 200_000, "'rules.json' is nested too deeply"),
        (b"\xff\xfe", r"'rules.json' is not UTF-8 text \(byte 0\)"),
        (b" " * (MAX_FILE_BYTES + 1), "'rules.json' is larger than 1,048,576 bytes"),
    ],
    ids=["empty", "comma", "twice", "nan", "digits", "deep", "bytes", "large"],
)
def test_a_file_that_is_not_json_gives_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_bytes(content)
    with pytest.raises(RuleError, match=message) as caught:
        JsonTree.read(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_missing_file_and_a_folder_are_reported(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"missing.json' cannot be read: No such file"):
        JsonTree.read(tmp_path / "missing.json")
    with pytest.raises(RuleError, match="cannot be read: it is a folder, not a regular file"):
        JsonTree.read(tmp_path)


def test_an_error_names_the_way_to_the_value() -> None:
    tree = JsonTree({"blocks": [{"tiles": [7]}]}, "mine.json")
    tile = next(next(tree.members()["blocks"].items()).members()["tiles"].items())
    with pytest.raises(RuleError, match=r"^mine.json: blocks\[0\].tiles\[0\]: 7 is not a string$"):
        tile.text()
    with pytest.raises(RuleError, match=r"^mine.json: this object is not a list"):
        tree.items()


def test_texts_from_outside_are_shown_on_one_short_line() -> None:
    assert shown("a\nb\x1b[2J") == r"'a\nb\x1b[2J'"
    assert len(shown("x" * 10_000)) < 70


# JSON as bytes: what msgspec refuses is still read and written.


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


# Sealed JSON: the digest covers every value, and documents without one stay readable.

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
