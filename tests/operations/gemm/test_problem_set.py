"""Problem sets of GEMMs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tile_oracle.errors import ProblemSetError
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.problem_set import format_problem_set, load_problem_set, merge_problem_sets


def load(tmp_path: Path, text: str) -> tuple[object, ...]:
    path = tmp_path / "mine.csv"
    path.write_text(text)
    return load_problem_set(path).problems


@pytest.mark.parametrize(
    "text",
    [
        "M,N,K\n1,4096,512\n",
        "op,M,N,K\ngemm,1,4096,512\n",
        "# mine\nsource,K,N,M,dtype,layout,split_k\nhere,512,4096,1,bf16,rcr,1\n",
    ],
)
def test_columns_or_a_word_mark_a_file_of_gemms(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text) == (GemmProblem("bf16", "rcr", 1, 4096, 512),)


def test_a_set_comes_back_from_its_text(tmp_path: Path) -> None:
    shapes = {
        GemmProblem("fp8", "ccr", 1, 2, 30, 3): 'a "quoted", source',
        GemmProblem("bf16", "rcr", 1, 1, 1): "",
    }
    path = tmp_path / "mine.csv"
    path.write_text(format_problem_set(shapes, shapes.values(), "made here"))
    found = load_problem_set(path)
    assert dict(zip(found.problems, found.sources, strict=True)) == shapes
    assert found.provenance == "made here"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("M,N\n1,2\n", r"mine.csv:1: no column K; a header row needs at least M,N,K"),
        ("M,N,K,Hi\n1,2,3,4\n", r"column 4, 'Hi', is unknown"),
        ("op,M,N,K\ngrouped_conv,1,2,3\n", r"mine.csv:2: op = 'grouped_conv' in a file of GEMMs; known"),
        ("op,N,C,K,Hi,Wi,Y,X\ngemm,1,8,8,9,9,3,3\n", r"op = 'gemm' in a file of convolutions; known"),
        ("op,M,N,K\nlayer_norm,1,2,3\n", r"mine.csv:2: unknown operation 'layer_norm'; known"),
        ("M N K\n1 2 3\n", r"mine.csv:1: 'M N K' is one column: write commas, M,N,K"),
        ("M;N;K\n1;2;3\n", r"mine.csv:1: 'M;N;K' is one column: write commas, M,N,K"),
        ("M,N,K\n1,2,0\n", r"mine.csv:2: K = 0 is not an integer from 1"),
        ("M,N,K\n1,2,x\n", r"mine.csv:2: K = 'x' is not an integer"),
        ("layout,M,N,K\nrcc,1,2,3\n", r"layout 'rcc' is not one of"),
        ("M,N,K,split_k\n1,2,3,4\n", r"split_k = 4 is more than K = 3"),
        ("M,M,N,K\n1,1,2,3\n", r"column M appears twice"),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ProblemSetError, match=message):
        load(tmp_path, text)


def test_a_file_holds_one_operation() -> None:
    both = merge_problem_sets([load_problem_set("gemm_smoke"), load_problem_set("forward_smoke")])
    assert len(both.problems) == 21
    with pytest.raises(ProblemSetError, match="problems are of several operations"):
        format_problem_set(both.problems, both.sources, "")
