"""Lists of problems in JSON, as tile_engine's benchmarks of GEMMs read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tile_oracle.errors import ProblemSetError
from tile_oracle.problem_set import load_problem_set


def ids(folder: Path, document: Any) -> list[str]:
    path = folder / "example_problems.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return [problem.id for problem in load_problem_set(path).problems]


def test_a_list_of_sizes_is_a_problem_set(tmp_path: Path) -> None:
    sizes = [{"M": 1024, "N": 512, "K": 256}, {"M": 257, "N": 257, "K": 257}]
    wanted = ["gemm-bf16-rcr-m1024-n512-k256", "gemm-bf16-rcr-m257-n257-k257"]
    assert ids(tmp_path, {"problems": sizes}) == wanted
    assert ids(tmp_path, sizes) == wanted
    assert (
        ids(tmp_path, {"problems": [{key.lower(): n for key, n in one.items()} for one in sizes]}) == wanted
    )


def test_a_whole_list_on_one_long_line_is_read(tmp_path: Path) -> None:
    sizes = [{"M": m, "N": 512, "K": 256} for m in range(1, 4000)]
    assert len(ids(tmp_path, {"problems": sizes})) == 3999


def test_what_stands_beside_the_list_is_said_of_every_problem(tmp_path: Path) -> None:
    document = {"dtype": "fp8", "layout": "rrr", "problems": [{"M": 1, "N": 2, "K": 4, "split_k": 2}]}
    assert ids(tmp_path, document) == ["gemm-fp8-rrr-m1-n2-k4-s2"]
    convolution = {"N": 1, "C": 8, "K": 8, "Hi": 4, "Wi": 4, "Y": 1, "X": 1, "direction": "bwd_data"}
    assert ids(tmp_path, [convolution]) == ["bwd_data-bf16-n1-c8-k8-i4x4-f1x1"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ('{"problems": [', "example_problems.json: not JSON: "),
        ({"1": {"BLOCK_SIZE_M": 16}}, 'JSON, but no list of problems, which would be {"problems": [{"M":'),
        ({"problems": []}, "JSON, but no list of problems"),
        ({"problems": [7]}, "JSON, but no list of problems"),
        ([{"M": 1, "N": 2, "K": 4}, {"M": 1, "N": 2}], ":problems:2: K = '' is not an integer"),
        ([{"M": 1.5, "N": 2, "K": 4}], ":problems:1: M = '1.5' is not an integer"),
        ([{"m": 1, "n": 2, "k": 4, "batch_count": 8}], ":problems:1: batch_count = '8' says that it is"),
        ([{"m": 1, "n": 2, "k": 4, "layout": "tnn"}], ":problems:1: layout 'tnn' is not one of rcr, rrr"),
    ],
)
def test_what_is_no_problem_is_refused_with_its_number(document: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemSetError) as refused:
        ids(tmp_path, document)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
