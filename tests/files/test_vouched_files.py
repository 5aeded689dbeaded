"""Digests of files: in a model folder's manifest, and in a baseline for its oracle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tile_oracle.errors import GateError, ModelError, RecordError
from tile_oracle.files.vouched_files import (
    MANIFEST_FILE,
    check_bytes,
    check_file,
    seal_baseline,
    seal_folder,
    vouch_for,
    vouch_for_oracle,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with two files and a sealed manifest."""
    (tmp_path / "feature_spec.json").write_text("{}")
    (tmp_path / "training.parquet").write_bytes(b"rows")
    (tmp_path / MANIFEST_FILE).write_text(json.dumps({"seed": 0, "kernels": ["a"]}))
    assert seal_folder(tmp_path, ModelError) == 2
    return tmp_path


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    """A sealed baseline with an oracle beside it."""
    (tmp_path / "default.parquet").write_bytes(b"oracle")
    path = tmp_path / "default.json"
    path.write_text(json.dumps({"schema": 1, "efficiencies": {"p": 0.5}}))
    seal_baseline(path, GateError)
    return path


def test_the_manifest_keeps_its_content(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST_FILE).read_text())
    assert (manifest["seed"], manifest["kernels"]) == (0, ["a"])
    assert sorted(manifest["files"]) == ["feature_spec.json", "training.parquet"]


def test_files_as_they_were_digested_pass(folder: Path) -> None:
    assert check_file(folder / "training.parquet", RecordError)
    assert check_bytes(folder / "feature_spec.json", b"{}", ModelError)


def test_a_changed_file_is_an_error_with_the_fix(folder: Path) -> None:
    (folder / "training.parquet").write_bytes(b"rowz")
    with pytest.raises(RecordError, match=r"training\.parquet is damaged.* version control.*tile-oracle"):
        check_file(folder / "training.parquet", RecordError)


def test_a_changed_manifest_is_an_error_for_every_file_of_the_folder(folder: Path) -> None:
    text = (folder / MANIFEST_FILE).read_text()
    for damaged in (text.replace('"seed": 0', '"seed": 1'), text.replace('"files"', '"filez"'), text[:-4]):
        (folder / MANIFEST_FILE).write_text(damaged)
        with pytest.raises(ModelError, match=MANIFEST_FILE):
            check_bytes(folder / "feature_spec.json", b"{}", ModelError)


def test_folders_without_digests_are_read_as_they_are(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_FILE).write_text(json.dumps({"seed": 0}))
    (tmp_path / "feature_spec.json").write_text("{}")
    assert not check_file(tmp_path / "feature_spec.json", ModelError)
    vouch_for(tmp_path, ["feature_spec.json"], ModelError)
    assert json.loads((tmp_path / MANIFEST_FILE).read_text()) == {"seed": 0}


def test_a_file_that_is_written_anew_is_vouched_for_anew(folder: Path) -> None:
    (folder / "training.parquet").write_bytes(b"more rows")
    (folder / "study.json").write_text("[]")
    vouch_for(folder, ["training.parquet", "study.json"], ModelError)
    assert check_file(folder / "training.parquet", RecordError)
    assert check_file(folder / "study.json", ModelError)
    (folder / "feature_spec.json").write_text("[]")
    with pytest.raises(ModelError, match="damaged"):
        check_file(folder / "feature_spec.json", ModelError)


def test_a_baseline_vouches_for_the_oracle_beside_it(baseline: Path) -> None:
    oracle = baseline.with_suffix(".parquet")
    assert check_file(oracle, RecordError)
    oracle.write_bytes(b"oracla")
    with pytest.raises(RecordError, match=r"default\.parquet is damaged.*tile-oracle runs merge --format"):
        check_file(oracle, RecordError)
    vouch_for_oracle(oracle, RecordError)
    assert check_file(oracle, RecordError)


def test_a_damaged_baseline_vouches_for_nothing(baseline: Path) -> None:
    baseline.write_text(baseline.read_text().replace("records_sha256", "records_sha257"))
    with pytest.raises(RecordError, match=r"default\.json is damaged"):
        check_file(baseline.with_suffix(".parquet"), RecordError)


def test_foreign_json_beside_a_parquet_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"rows")
    for text in ("[1]", "{}", "no json", '{"records_sha256": 5}'):
        (tmp_path / "rows.json").write_text(text)
        assert not check_file(tmp_path / "rows.parquet", RecordError)
    vouch_for_oracle(tmp_path / "rows.parquet", RecordError)
    assert json.loads((tmp_path / "rows.json").read_text()) == {"records_sha256": 5}
