"""A sample of the bit-flip campaign, and a check that the campaign detects unprotected files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.faults.bitflips import all_kinds, flip_bits
from tools.faults.flippable.kind import FileKind


@pytest.mark.slow
def test_no_flip_of_a_sample_is_silent() -> None:
    outcome = flip_bits(6 * len(all_kinds()), 20260, all_kinds())
    assert outcome.faults == 6 * len(all_kinds())
    assert list(outcome.failures) == []
    assert outcome.counts["refused"] + outcome.counts["warned"] > outcome.faults / 2


def make_plain(folder: Path) -> list[Path]:
    (folder / "plain.json").write_text(json.dumps([12345678]))
    return [folder / "plain.json"]


def read_plain(folder: Path) -> Any:
    return json.loads((folder / "plain.json").read_text())


def test_flips_in_a_file_without_a_digest_are_silent_or_broken() -> None:
    outcome = flip_bits(40, 1, [FileKind("plain", make_plain, read_plain)])
    assert outcome.counts["silent"] > 0
    assert outcome.counts["broken"] > 0
    assert len(outcome.failures) == outcome.counts["silent"] + outcome.counts["broken"]
