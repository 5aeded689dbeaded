"""`python -m tools.crawl`, with synthetic traces and, if PyTorch is installed, real ones."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import pytest

from tile_oracle.errors import HarnessError
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem_set import load_problem_set
from tools.crawl import __main__ as crawl
from tools.crawl.trace import Trace
from tools.crawl.trace_file import TraceFile


def run(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser()
    crawl.add_arguments(parser)
    return crawl.run(parser.parse_args([str(argument) for argument in arguments]))


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    file = TraceFile(tmp_path / "traces.jsonl", {"torch": "2.0.0", "timm": "1.0.0"})
    for number, family in enumerate("abcdefgh"):
        ids = [f"forward-bf16-n1-c{8 + 8 * number}-k64-i{extent}x{extent}-f3x3-p1" for extent in (14, 28, 56)]
        layers = tuple(GroupedConvProblem.from_id(id_) for id_ in ids)
        file.add(Trace(f"timm/{family}", family, (224, 224), layers))
    file.add(Trace("timm/broken", "broken", (224, 224), error="RuntimeError: no such layer"))
    return file.path


@pytest.mark.slow
def test_sets_are_written_from_traces_without_pytorch(traces: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    counts = ("--training", "60", "--validation", "20")
    assert run("--out-dir", out, "--no-trace", "--trace-file", traces, *counts) == 0
    printed = capsys.readouterr()
    assert "8 traces, 1 failed" in printed.out
    assert "failed: timm/broken@224x224: RuntimeError: no such layer" in printed.err
    names = sorted(path.name for path in out.iterdir())
    assert names == [
        f"{d}_{k}.csv" for d in ("bwd_data", "bwd_weight", "forward") for k in ("training", "validation_20")
    ]
    training = load_problem_set(out / "forward_training.csv")
    assert len(training.problems) == 60
    assert {p.direction for p in load_problem_set(out / "bwd_data_training.csv").problems} == {"bwd_data"}
    said = " ".join(training.provenance.split())
    assert "python -m tools.crawl --training 60 --validation 20 --no-trace --trace-file traces.jsonl" in said
    assert "timm 1.0.0, torch 2.0.0; seed 1" in said


def test_the_same_traces_make_the_same_bytes(traces: Path, tmp_path: Path) -> None:
    options = ("--no-trace", "--trace-file", traces, "--training", "60", "--direction", "bwd_data")
    for name in ("a", "b"):
        run("--out-dir", tmp_path / name, *options)
    first, second = (sorted((tmp_path / name).iterdir()) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert len(first) == 2


def test_too_few_candidates_are_reported_and_the_file_name_has_the_number(
    traces: Path, tmp_path: Path, capsys
) -> None:
    out = tmp_path / "out"
    options = ("--no-synthetic", "--batch-sizes", "1", "--direction", "forward", "--dtype", "fp16")
    assert run("--out-dir", out, "--no-trace", "--trace-file", traces, *options) == 0
    assert sorted(path.name for path in out.iterdir()) == ["forward_training.csv", "forward_validation_9.csv"]
    printed = capsys.readouterr().out
    assert "forward training: only 15 of 1500 problems" in printed
    assert "forward validation: only 9 of 300 problems" in printed
    assert {p.dtype for p in load_problem_set(out / "forward_validation_9.csv").problems} == {"fp16"}


def test_nothing_traced_is_a_failure(tmp_path: Path, capsys) -> None:
    file = TraceFile(tmp_path / "traces.jsonl", {"torch": "2.0.0"})
    file.add(Trace("timm/broken", "broken", (224, 224), error="no"))
    assert run("--out-dir", tmp_path / "out", "--no-trace", "--trace-file", file.path) == 1
    assert "nothing was traced" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "crawl needs --out-dir DIR"),
        (("--out-dir", "x", "--no-trace"), "--no-trace uses all traces in --trace-file"),
        (("--out-dir", "x", "--no-trace", "--trace-file", "/none/t.jsonl"), "/none/t.jsonl does not exist"),
    ],
)
def test_wrong_options_are_refused_with_the_right_ones(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        run(*arguments)


@pytest.mark.parametrize(
    "option", ["--batch-sizes=0", "--batch-sizes=1,x", "--resolutions=1x2x3", "--per-family=-1"]
)
def test_numbers_are_checked(option: str, capsys) -> None:
    with pytest.raises(SystemExit):
        run("--out-dir", "x", option)
    assert "is not a" in capsys.readouterr().err


def test_an_out_dir_that_is_a_file(traces: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HarnessError, match="cannot be written"):
        run("--out-dir", tmp_path / "file", "--no-trace", "--trace-file", traces)


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("timm") is None,
    reason="PyTorch and timm are an optional extra: pip install -e '.[crawl]'",
)
def test_a_real_crawl_of_two_small_architectures(tmp_path: Path, capsys) -> None:
    wanted = ("--architectures", "torchvision/squeezenet1_?", "--architectures", "torchvision/resnet18")
    kept = ("--trace-file", tmp_path / "traces.jsonl", "--out-dir", tmp_path / "out")
    assert run(*wanted, *kept, "--resolutions", "96,64x128", "--direction", "forward", "--no-synthetic") == 0
    assert "[6/6] torchvision/squeezenet1_1@64x128" in capsys.readouterr().err
    training = load_problem_set(tmp_path / "out" / "forward_training.csv")
    assert GroupedConvProblem.from_id("forward-bf16-n8-c3-k64-i64x128-f7x7-s2-p3") in training.problems
    assert {source.split("@")[0].rstrip("01") for source in training.sources} <= {
        "torchvision/resnet18",
        "torchvision/squeezenet1_",
    }
    assert run(*wanted, *kept, "--resolutions", "96,64x128", "--direction", "forward", "--no-synthetic") == 0
    assert "squeezenet1_1@64x128" not in capsys.readouterr().err  # not traced again


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="needs the optional extra")
def test_the_list_gives_the_side_of_each_architecture(capsys) -> None:
    assert run("--list", "--architectures", "torchvision/*net18") == 0
    assert capsys.readouterr().out.split()[:4] == ["torchvision/resnet18", "resnet", "training", "224x224"]
