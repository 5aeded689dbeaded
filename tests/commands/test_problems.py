"""`tile-oracle problems`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from tile_oracle.commands import problems
from tile_oracle.errors import HarnessError
from tile_oracle.problem_set import list_problem_sets, load_problem_set
from tile_oracle.terminal.argument_table import add_arguments
from tile_oracle.terminal.plain_text import plain_output


@pytest.fixture
def said(capsys):
    def said(*arguments: str) -> str:
        parser = argparse.ArgumentParser()
        add_arguments(parser, problems.ARGUMENTS)
        with plain_output():
            assert problems.run(parser.parse_args(arguments)) == 0
        return capsys.readouterr().out

    return said


def test_shipped_sets_have_a_line_each_and_ids_can_be_piped(said) -> None:
    lines = said().splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(list_problem_sets())
    smoke = load_problem_set("forward_smoke")
    (line,) = (line for line in lines if line.startswith("forward_smoke "))
    for part in ("10", "forward", "bf16", "2D 3D", smoke.sha256[:12]):
        assert part in line
    ids = said("--ids", "forward_smoke", "bwd_data_smoke").splitlines()
    both = (*load_problem_set("forward_smoke").problems, *load_problem_set("bwd_data_smoke").problems)
    assert ids == [problem.id for problem in both]


def test_a_set_in_detail(said) -> None:
    text = said("forward_smoke")
    smoke = load_problem_set("forward_smoke")
    assert smoke.sha256 in text
    assert "forward_smoke: 10 problems" in text
    assert "chosen by hand" in text
    assert all(problem.id in text for problem in smoke.problems)
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.startswith("  ")}
    assert rows["dilated"] == ["1", "10%"]
    assert rows["C"][:3] == ["3", "64", "512"]
    assert rows["GFLOP"][0] == f"{min(p.flops for p in smoke.problems) / 1e9:.3g}"


def test_ones_own_file_with_repeated_rows_and_rude_characters(said, tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text("# a\x1b[31mb\nN,C,K,Hi,Wi,Y,X\n" + "1,8,8,9,9,3,3\n" * 3)
    text = said(str(path))
    assert "my: 1 problem" in text
    assert "left out: 2 repeats of earlier problems" in text
    assert "\x1b" not in text


def test_command_lines_of_miopen_become_a_problem_set(said, tmp_path: Path) -> None:
    layers, table = tmp_path / "layers.txt", tmp_path / "layers.csv"
    line = "MIOpenDriver convfp16 -n 2 -c 8 -H 9 -W 9 -k 16 -y 3 -x 3 -F 3\n"
    layers.write_text(f"cd /opt/rocm\n{line}{line}")
    text = said(str(layers), "-o", str(table))
    assert "2 problems in" in text
    assert "layers: 1 left out: no MIOpenDriver command" in text
    assert "layers: 2 rows or lines repeat an earlier problem" in text
    written = load_problem_set(table)
    assert written.problems == load_problem_set(layers).problems
    assert written.sources == ("layers.txt:2", "layers.txt:2")
    assert f"from layers.txt, sha256 {load_problem_set(layers).sha256}" in written.provenance


def test_a_set_in_another_data_type(said, tmp_path: Path) -> None:
    table = tmp_path / "half.csv"
    said("forward_smoke", "bwd_data_smoke", "--dtype", "fp16", "-o", str(table))
    smoke = (*load_problem_set("forward_smoke").problems, *load_problem_set("bwd_data_smoke").problems)
    assert load_problem_set(table).problems == tuple(replace(one, dtype="fp16") for one in smoke)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["forward_smoke", "--dtype", "int8", "-o", "a.csv"], "dtype 'int8' is not one of"),
        (["gemm_smoke", "forward_smoke", "-o", "a.csv"], "problems are of several operations"),
        (["./mine.csv", "-o", "mine.csv"], "is also an input"),
        (["nope"], "no problem set is called 'nope'"),
    ],
)
def test_unwritable_output(said, tmp_path: Path, monkeypatch, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text("N,C,K,Hi,Wi,Y,X\n1,8,8,9,9,3,3\n")
    with pytest.raises(HarnessError, match=message):
        said(*arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]
