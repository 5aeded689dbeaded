"""A session measures an operation's smoke set on the CPU, and a model learns from its records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.pytest_project import SHORTLY, Project
from tile_oracle.cli import main
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset_file import write_dataset


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "dtype", "pairs", "judged", "field"),
    [
        ("scaled_gemm", "fp8_e4m3", 9 * 3, "scaled_gemm-fp8_e4m3-block-m64-n256-k512", "columns"),
        ("fused_gemm", "bf16", 12 * 3, "fused_gemm-bf16-rcr-silu_mul-m64-n256-k512", "columns"),
        ("fused_moe", "bf16", 9 * 9, "fused_moe-bf16-gate_up-t32-e8-k2-h128-i64", "rows"),
        ("paged_attention", "bf16", 10 * 3, "paged_attention-bf16-bf16-b2-h4-g2-q1-k99-d64-p16", "keys"),
    ],
)
def test_a_session_measures_and_a_model_learns(
    operation: str,
    dtype: str,
    pairs: int,
    judged: str,
    field: str,
    make_project: Callable[[], Project],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """judged: a problem that the model has not seen. field: of the kernels' names."""
    project = make_project()
    finished = project.pytest(
        *("--problem-set", f"{operation}_smoke", "--target", "cpu", "--model", "none"), *SHORTLY
    )
    assert finished.status == 0, finished.output
    records = project.records()
    sweep = records[records["round"] == 0]
    assert len(sweep) == pairs
    assert set(sweep["status"]) <= {"ok", "noisy"}
    assert sweep["status"].eq("ok").sum() >= pairs * 3 // 4
    write_dataset(records[records["dtype"] == dtype], project.folder / "records.parquet")
    commands = (
        ("model", "train", "records.parquet", "-o", "mine", "--folds", "2", "--recipe", "lambdarank"),
        ("model", "evaluate", "mine", "records.parquet", "--json", "figures.json"),
        ("pick", judged, "--model", "mine", "--arch", "cpu"),
    )
    monkeypatch.chdir(project.folder)
    for command in commands:
        assert main(command) in (0, 1), command
    assert field in capsys.readouterr().out
    assert (project.folder / "figures.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["attention", "softmax", "rms_norm", "fused_moe_fp8"])
def test_a_session_measures_and_checks(operation: str, make_project: Callable[[], Project]) -> None:
    name = f"{operation}_smoke"
    project = make_project()
    finished = project.pytest(
        *("--problem-set", name, "--kernel-set", "tiny", "--target", "cpu", "--model", "none"), *SHORTLY
    )
    assert finished.status == 0, finished.output
    records = project.records()
    sweep = records[records["round"] == 0]
    problems = load_problem_set(name).problems
    assert len(sweep) == sum(len(pool_of_kind(problem.kind, "cpu", "tiny")) for problem in problems)
    assert set(sweep["status"]) == {"ok"}
