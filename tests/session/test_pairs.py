"""Files of pairs: which pairs a session is narrowed to, and the errors for invalid files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tile_oracle.errors import HarnessError, RuleError
from tile_oracle.kernel import Kernel
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import problem_from_id
from tile_oracle.session.plan import read_pairs

PROBLEM = "forward-fp32-n1-c8-k8-i6x6-f3x3"
OTHER = "forward-fp32-n1-c16-k16-i5x5-f1x1"


@pytest.fixture(scope="module")
def pools() -> dict[str, tuple[Kernel, ...]]:
    pool = tuple(pool_of_kind(problem_from_id(PROBLEM).kind, arch="cpu", rules="tiny", where=None))
    return dict.fromkeys((PROBLEM, OTHER), pool)


def test_pairs_are_read_by_full_and_by_short_names(
    tmp_path: Path, pools: dict[str, tuple[Kernel, ...]]
) -> None:
    first, second = pools[PROBLEM][:2]
    path = tmp_path / "pairs.csv"
    rows = [f"{PROBLEM},0.5,{first.name}", f"{PROBLEM},0.4,{second.short_name}", f"{OTHER},0.3,{first.name}"]
    path.write_text("\n".join(["problem,value,kernel", *rows, rows[0]]) + "\n")
    assert read_pairs(path, pools) == {
        PROBLEM: frozenset({first.name, second.name}),
        OTHER: frozenset({first.name}),
    }
    with pytest.raises(RuleError, match="cannot read the pairs in"):
        read_pairs(tmp_path / "missing.csv", pools)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("", "it is empty"),
        ("problem,kernel\n", "lists no pair"),
        ("problem\nx\n", "has no column kernel"),
        ("problem,kernel\nnonsense,x\n", "pairs.csv:2: "),
        (f"problem,kernel\n{PROBLEM}\n", "line 2 has 1 cells"),
        (f"problem,kernel\n{PROBLEM},no_kernel\n", "pairs.csv:2: "),
        ("problem,kernel\nforward-fp32-n1-c8-k8-i99x5-f3x3,x\n", "is in none of the problem sets"),
        (
            f"problem,kernel\n{PROBLEM},grouped_conv_forward_fp32_2d_64x64x64_compv6\n",
            f"is not a candidate for {PROBLEM}",
        ),
    ],
)
def test_invalid_pairs_are_a_one_line_error(
    tmp_path: Path, pools: dict[str, tuple[Kernel, ...]], rows: str, said: str
) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(rows)
    with pytest.raises(RuleError, match=said) as raised:
        read_pairs(path, pools)
    assert "\n" not in str(raised.value)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=80))
def test_any_file_is_pairs_or_an_error(
    tmp_path: Path, pools: dict[str, tuple[Kernel, ...]], data: bytes
) -> None:
    path = tmp_path / "pairs.csv"
    path.write_bytes(b"problem,kernel\n" + data)
    with pytest.raises(HarnessError):
        read_pairs(path, pools)
