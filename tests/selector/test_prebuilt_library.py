"""When the library in a wheel is used."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from tile_oracle.errors import BuildError
from tile_oracle.selector import native_library, prebuilt_library


@pytest.mark.parametrize(
    ("facts", "used"),
    [
        ({"built_from": "abc", "machine": platform.machine()}, True),
        ({"built_from": "other sources", "machine": platform.machine()}, False),
        ({"built_from": "abc", "machine": "pdp11"}, False),
        ([], False),
    ],
)
def test_only_libraries_of_these_sources_and_this_machine_are_used(
    tmp_path: Path, facts: object, used: bool
) -> None:
    folder = tmp_path / prebuilt_library.FOLDER
    folder.mkdir(parents=True)
    (folder / prebuilt_library.FACTS_FILE).write_text(json.dumps(facts))
    assert prebuilt_library.find("abc", tmp_path) is None
    library = folder / prebuilt_library.LIBRARY_FILE
    library.write_bytes(b"")
    assert prebuilt_library.find("abc", tmp_path) == (library if used else None)


def test_a_library_that_does_not_load_is_compiled_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "selector.so").write_bytes(b"not a library")
    monkeypatch.setattr(prebuilt_library, "find", lambda built_from: tmp_path / "selector.so")
    monkeypatch.setattr(native_library, "compilers", lambda toolchain: iter(()))
    with pytest.raises(BuildError, match="does not compile"):
        native_library.load.__wrapped__()
    assert "the wheel's selector.so cannot be loaded" in caplog.text
