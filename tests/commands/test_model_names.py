"""A model's name, as reports print it, serves wherever a command takes a model folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.records_factory import some_problems, some_run
from tile_oracle.cli import main
from tile_oracle.model.store import folder_of_model, shipped_models
from tile_oracle.record.dataset_file import write_dataset

SHIPPED = "grouped_conv_forward_bf16_gfx950"


def test_a_name_is_that_of_an_own_or_else_of_a_shipped_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert folder_of_model(SHIPPED) == shipped_models() / SHIPPED
    (tmp_path / "models" / SHIPPED).mkdir(parents=True)
    (tmp_path / "models" / SHIPPED / "feature_spec.json").write_text("{}")
    assert folder_of_model(SHIPPED) == Path("models") / SHIPPED
    assert folder_of_model("nothing/of_the_kind") == Path("nothing/of_the_kind")


@pytest.mark.parametrize(
    "command",
    [("predict", "forward-bf16-n1-c64-k64-i56x56-f3x3-p1", "--model"), ("export", "-o", "exported")],
    ids=lambda words: words[0],
)
def test_a_misspelt_name_is_answered_with_the_model_that_was_meant(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, SHIPPED.replace("gfx950", "gfx95")]) == 2
    assert f"did you mean {SHIPPED}?" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["single", "out-of-fold", "roofline"])
def test_what_a_session_chooses_is_said_to_be_that(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dataset(some_run(some_problems(2), 3)[0], tmp_path / "some.parquet")
    assert main(["model", "evaluate", word, str(tmp_path / "some.parquet")]) == 2
    assert (
        f"{word} is what a session chooses: pytest --oracle=RECORDS --models={word}"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", SHIPPED, "some.parquet"),
        ("compare", SHIPPED, SHIPPED, "--records", "some.parquet"),
        ("train", "some.parquet", "-o", "out", "--adapt", SHIPPED),
        ("train", "some.parquet", "-o", "out", "--warm-start", SHIPPED),
        ("suggest", "some.parquet", "--model", SHIPPED),
        ("search", "forward-fp32-n1-c64-k64-i56x56-f3x3-p1", "--model", SHIPPED),
    ],
    ids=lambda words: words[0],
)
def test_commands_find_a_model_by_its_name(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The records are of another data type or device than the model: that is what the commands say."""
    monkeypatch.chdir(tmp_path)
    records, _ = some_run(some_problems(2), 3)
    write_dataset(records, tmp_path / "some.parquet")
    assert main(list(command)) == 2
    said = capsys.readouterr().err
    assert "no model folder" not in said
    assert SHIPPED in said
