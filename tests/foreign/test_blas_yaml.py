"""YAML files of rocblas-bench and hipblaslt-bench: their lists, anchors and included files; hostile ones."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.errors import ProblemSetError
from tile_oracle.foreign.plain_yaml import Yaml, YamlTrouble, read_yaml
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.problem_set import ProblemSet, load_problem_set

COMMON = """\
---
Datatypes:
  - hipblasltDatatype_t: { bases: [ c_int ], attr: { f16_r: 150 } }
Real precisions: &real_precisions
  - &half_precision
    { a_type: f16_r, b_type: f16_r, c_type: f16_r, d_type: f16_r, compute_type: c_f32_r }
  - &bf16_precision
    { a_type: bf16_r, b_type: bf16_r, c_type: bf16_r, d_type: bf16_r, compute_type: c_f32_r }
...
"""
BENCH = """\
---
include: common.yaml
Definitions:
  - &sizes
    - { M: 128, N: 64, K: 256 }
    - { M: 100, N: 8, K: 33, lda: 128 }

Tests:
- name: matmul_two_types
  function:
    matmul: *real_precisions
  matrix_size: *sizes
  transA_transB:
    - { transA: N, transB: N }
    - { transA: T, transB: N }
  beta: [ 0.0, 1.0 ]
  iters: 1000
- name: ranges
  function: gemm_ex
  precision: *half_precision
  M: 16..48..16
  N: [ 1, 2 ]
  K: 7
  transA: N
  transB: T
- { name: batches, function: gemm_ex, precision: *half_precision, M: 5, N: 6, K: 7, batch_count: [ 1, 3 ] }
- { name: test, function: gemm_ex, precision: *half_precision, M: -1, N: 6, K: 7 }
- { name: bad, function: gemm_bad_arg, precision: *half_precision }
...
"""


def loaded(folder: Path, text: str, name: str = "bench.yaml") -> ProblemSet:
    (folder / "common.yaml").write_text(COMMON)
    (folder / name).write_text(text)
    return load_problem_set(str(folder / name))


def test_a_file_of_tests_is_all_its_combinations(tmp_path: Path) -> None:
    found = loaded(tmp_path, BENCH)
    two_types = [
        GemmProblem(dtype, layout, n, m, k)
        for dtype in ("fp16", "bf16")
        for m, n, k in ((128, 64, 256), (100, 8, 33))
        for layout in ("rrr", "rcr")
    ]
    ranges = [GemmProblem("fp16", "crr", n, m, 7) for m in (16, 32, 48) for n in (1, 2)]
    assert found.problems == (*two_types, *ranges, GemmProblem("fp16", "rrr", 6, 5, 7))
    assert found.sources[0] == "matmul_two_types"
    assert set(found.notes) == {
        "1 left out: batches are not supported",
        "1 left out: m, n or k is missing or no integer from 1",
        "1 left out: 'gemm_bad_arg' is not a GEMM",
        "8 taken as the plain operation: beta != 0",
        "8 taken as the plain operation: padded leading dimensions",
    }


def test_a_common_file_may_lie_in_the_folder_include_beside(tmp_path: Path) -> None:
    for folder in ("include", "gtest"):
        (tmp_path / folder).mkdir()
    (tmp_path / "include/common.yaml").write_text(COMMON)
    (tmp_path / "gtest/bench.yaml").write_text(BENCH)
    assert len(load_problem_set(str(tmp_path / "gtest/bench.yaml")).problems) == 15


def test_a_list_of_calls_may_have_a_call_on_several_lines(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        """\
- rocblas_function: rocblas_gemm_ex
  a_type: bf16_r
  b_type: bf16_r
  transA: T
  transB: N
  M: 64
  N: 32
  K: 16
- { rocblas_function: rocblas_hgemm,
    transA: N, transB: N, M: 3, N: 4, K: 5 }
""",
    )
    assert found.problems == (GemmProblem("bf16", "rcr", 32, 64, 16), GemmProblem("fp16", "rrr", 4, 3, 5))


def test_tables_are_merged_by_the_merge_key(tmp_path: Path) -> None:
    text = (
        "- &base { function: gemm_ex, a_type: f16_r, b_type: f16_r, M: 3, N: 4, K: 5 }\n"
        "- { <<: *base, M: 7, transA: T }\n"
    )
    assert loaded(tmp_path, text).problems == (
        GemmProblem("fp16", "rrr", 4, 3, 5),
        GemmProblem("fp16", "rcr", 4, 7, 5),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Tests: [", r"bench\.yaml:2: no YAML: "),
        (
            "Tests:\n- { M: *none }\n",
            r"bench\.yaml:2: \*none has no anchor: a file to include may be missing",
        ),
        ("include: gone.yaml\nTests: []\n", r"bench\.yaml:1: include: 'gone\.yaml' cannot be read: No such"),
        ("include: 'gone.yaml'  # of last year\n", r"include: 'gone\.yaml' cannot be read: No such"),
        ("include:" + " " * 60_000 + "x y\n", r"include: 'x y' cannot be read: No such"),
        ("include: bench.yaml\n", r"bench\.yaml:1: more than 32 files are included"),
        ("Layers:\n- LayerType: GEMM\n", "a list of calls, or a table with such a list as Tests"),
        ("Tests: []\n", r"bench\.yaml: no problem in it"),
        ("Tests: " + "[\n" * 500_000, "nested more than 50 levels deep"),
        ("Tests: &a [ *a ]\n", r"\*a has no anchor"),
        ("Tests:\n- { <<: 3 }\n", "<< merges a value that is no table"),
        ("Tests:\n- { M: 1..1000000, N: 1..1000000, K: 1 }\n", "more than 250,000 combinations"),
        ("Tests:\n- { M: 1..1000..0, N: 1..1000..1, K: 1..1000 }\n", "more than 250,000 combinations"),
        ("Tests:\n- \x07\n", "no YAML"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ProblemSetError, match=message) as error:
        loaded(tmp_path, text)
    assert "\n" not in str(error.value)


def laughs(item: str, wrap: str, levels: int) -> str:
    lines = [f"Definitions:\n- &a0 {wrap % ', '.join([item] * 10)}"]
    lines += [f"- &a{n} {wrap % ', '.join([f'*a{n - 1}'] * 10)}" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        laughs("{ M: 1, N: 1, K: 1 }", "[ %s ]", 30) + "\nTests:\n- { matrix_size: *a29 }\n",
        laughs("{ M: 1, N: 1, K: 1 }", "[ %s ]", 30) + "\nTests: *a29\n",
        "Definitions:\n- &a0 { M: 1 }\n"
        + "\n".join(f"- &a{n} {{ x: *a{n - 1}, y: *a{n - 1} }}" for n in range(1, 40))
        + "\nTests:\n- *a39\n",
        "Definitions:\n- &a0 [ 1 ]\n"
        + "\n".join(f"- &a{n} [ *a{n - 1} ]" for n in range(1, 20_000))
        + "\nTests:\n- { M: *a19999 }\n",
    ],
)
def test_a_billion_laughs_end_in_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(ProblemSetError, match=r"combinations|nested too deep|no problem in it"):
        loaded(tmp_path, text)


def test_merges_of_merges_stay_small() -> None:
    text = "- &a0 { k: v }\n" + "\n".join(
        f"- &a{n} {{ <<: [ {', '.join([f'*a{n - 1}'] * 10)} ], k{n}: v }}" for n in range(1, 50)
    )
    (found,) = read_yaml(text)
    assert len(found[-1]) == 50  # type: ignore[arg-type]


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    line = f"# {'x' * 30_000}\n"
    with pytest.raises(ProblemSetError, match="more than 16 MiB"):
        loaded(tmp_path, "Tests: []\n" + line * 600)


values = st.recursive(
    st.text("abN: &*-[]{},'\"#\n..0123", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("MNKab<", max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(values)
def test_any_value_is_read_as_texts_lists_and_tables(value: object) -> None:
    assert read_yaml(yaml.safe_dump(value, default_style='"')) == [value]


@given(st.text("abMNK: &*-[]{}<,'\"#\n\t!%|>?@`.0123\\", max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    found: list[Yaml] = []
    with suppress(YamlTrouble):
        found = read_yaml(text)
    assert all(isinstance(one, str | list | dict) for one in found)
