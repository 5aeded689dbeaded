"""Reading JSON data files: every error is one line with its position."""

from __future__ import annotations

from pathlib import Path

import pytest

from tile_oracle.errors import RuleError
from tile_oracle.files.json_tree import MAX_FILE_BYTES, JsonTree, shown


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
