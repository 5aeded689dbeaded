"""Times of several runs on one scale: what all kernels of a problem share is taken out, nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.cli import main
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.record.dataset import load_records
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.record.merge import FACTOR, LEAST_SHARED, align_runs
from tile_oracle.record.schema import arrow_schema

KERNELS = make_kernels(("compv3", "compv4"))
PROBLEMS = make_problems(3)
OLD, NEW = KERNELS[:8], KERNELS[4:11]
"""Four kernels are in both runs; the first run has more."""


def measured(
    kernels: list[GroupedConvKernel],
    run: str,
    speed: dict[str, float] | None = None,
    arch: str = "gfx950",
    problems: list[GroupedConvProblem] = PROBLEMS,
) -> pd.DataFrame:
    """Exact times of a run on a device with its own speed for each problem."""
    rows = make_records(problems, kernels, noise=0.0).reindex(columns=arrow_schema().names)
    rows = rows.assign(run=run, arch=arch, time=pd.Timestamp(0, tz="UTC"), samples=9)
    rows["latency_min_ms"] = rows["latency_ms"]
    factor = rows["problem"].map(speed or {}).fillna(1.0).astype(float)
    for name in ("latency_ms", "latency_min_ms"):
        rows[name] = rows[name] * factor
    of = {problem.id: problem for problem in problems}
    return rows.assign(tflops=[of[row.problem].tflops(row.latency_ms) for row in rows.itertuples()])


def by_pair(rows: pd.DataFrame) -> pd.Series:
    return rows.groupby(["problem", "kernel"])["latency_ms"].mean()


@settings(max_examples=6)
@given(speeds=st.lists(st.floats(0.8, 1.25), min_size=3, max_size=3))
def test_a_runs_own_speed_is_taken_out_problem_by_problem(speeds: list[float]) -> None:
    speed = {problem.id: one for problem, one in zip(PROBLEMS, speeds, strict=True)}
    aligned, found = align_runs(pd.concat([measured(OLD, "a"), measured(NEW, "b", speed)]))
    truth = by_pair(measured(KERNELS, "all"))
    np.testing.assert_allclose(by_pair(aligned), truth.reindex(by_pair(aligned).index), rtol=1e-9)
    assert (found.problems, found.aligned, found.by_run, found.apart) == (3, 3, 0, 0)
    again, _ = align_runs(aligned)
    np.testing.assert_allclose(by_pair(again), by_pair(aligned), rtol=1e-9)
    assert aligned.loc[aligned["run"] == "a", FACTOR].isna().all()
    of = {problem.id: problem for problem in PROBLEMS}
    exact = [of[row.problem].tflops(row.latency_ms) for row in aligned.itertuples()]
    assert aligned["tflops"].tolist() == exact, (
        "oracle files leave the column out where it follows to the bit"
    )


@pytest.mark.parametrize(("kernels", "arch"), [(KERNELS[8 - LEAST_SHARED + 1 :], "gfx950"), (NEW, "gfx942")])
def test_runs_with_little_in_common_or_of_another_architecture_stay(
    kernels: list[GroupedConvKernel], arch: str
) -> None:
    speed = {problem.id: 1.1 for problem in PROBLEMS}
    records = pd.concat([measured(OLD, "a"), measured(kernels, "b", speed, arch)], ignore_index=True)
    aligned, found = align_runs(records)
    pd.testing.assert_frame_equal(aligned, records)
    assert (found.aligned, found.apart) == (0, 3)
    assert "share fewer than 20 ok pairs" in "\n".join(found.lines())


def test_one_disturbed_kernel_does_not_decide() -> None:
    other = measured(NEW, "b")
    disturbed = other["kernel"] == KERNELS[4].name
    other.loc[disturbed, ["latency_ms", "latency_min_ms"]] *= 3
    other.loc[disturbed, "tflops"] /= 3
    aligned, _ = align_runs(pd.concat([measured(OLD, "a"), other]))
    kept = aligned[aligned["kernel"] != KERNELS[4].name]
    np.testing.assert_allclose(by_pair(kept), by_pair(measured(KERNELS, "all")).reindex(by_pair(kept).index))


def test_the_command_writes_valid_records_and_says_what_it_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    speed = {problem.id: 1.25 for problem in PROBLEMS}
    paths = [tmp_path / "old.parquet", tmp_path / "new.parquet"]
    more = make_kernels(("compv3", "compv4", "compv5"))[:9]
    for path, rows in zip(paths, (measured(more, "a"), measured(more[5:], "b", speed)), strict=True):
        write_dataset(rows, path)
    out = tmp_path / "both.parquet"
    assert main(["merge", "--align", *map(str, paths), "-o", str(out)]) == 0
    assert "3 times of a run and problem aligned: multiplied by 0.800" in capsys.readouterr().out
    records = load_records(out)
    assert set(records.loc[records["run"] == "b", FACTOR].round(9)) == {0.8}
    assert main(["merge", str(out), str(paths[1]), "-o", str(tmp_path / "again.parquet")]) == 0
    again = load_records(tmp_path / "again.parquet")
    assert set(again.loc[again["run"] == "b", FACTOR].round(9)) == {0.8}


def test_where_a_problem_has_too_few_shared_kernels_all_pairs_of_the_runs_count() -> None:
    problems = make_problems(12)
    rows = measured(KERNELS[:10], "a", problems=problems)
    fewer = {problem.id for problem in problems[:2]}
    new = measured(KERNELS[8:12], "b", {problem.id: 0.9 for problem in problems}, problems=problems)
    more = measured(KERNELS[6:8], "b", {problem.id: 0.9 for problem in problems}, problems=problems)
    aligned, found = align_runs(pd.concat([rows, new, more[~more["problem"].isin(fewer)]]))
    assert (found.aligned, found.by_run, found.apart) == (10, 2, 0)
    assert "2 of them by all pairs that the two runs share" in "\n".join(found.lines())
    truth = by_pair(measured(KERNELS, "all", problems=problems))
    np.testing.assert_allclose(by_pair(aligned), truth.reindex(by_pair(aligned).index), rtol=1e-9)
