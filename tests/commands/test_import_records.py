"""`tile-oracle runs import` from the files to a session that replays them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pytest_project import Project
from tile_oracle.cli import main
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import load_records

HEADER = "kernel,problem_idx,N,C,K,G,Hi,Wi,Y,X,stride_h,stride_w,pad_h,pad_w,latency_ms"
KERNELS = ("16x64x64_compv3_intrawave", "64x64x64_compv3_intrawave", "64x128x64_mem_interwave")


@pytest.fixture
def published(project: Project) -> Path:
    """Results in the published format: 3 kernels on 4 problems."""
    rows = [
        f"grouped_conv_forward_bf16_2d_{kernel},{n},{n},64,64,1,8,8,3,3,1,1,1,1,{0.001 * n * (1 + at)}"
        for n in (1, 2, 4, 8)
        for at, kernel in enumerate(KERNELS)
    ]
    return project.write("bench.csv", "\n".join([HEADER, *rows]) + "\n")


def test_the_problem_set_is_beside_the_records(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = published.with_name("gfx950.parquet")
    assert main(["import", str(published), "--arch", "gfx950", "-o", str(out)]) == 0
    said = capsys.readouterr().out
    beside = out.with_name("gfx950_problems.csv")
    assert f"12 records of 4 problems and 3 kernels in {out}, the problems in {beside}" in said
    assert f"replay them: pytest --oracle={out}" in said
    written = load_problem_set(beside)
    assert written.problems == load_problem_set(published).problems
    assert written.problems == load_problem_set(out).problems
    assert written.provenance == "the problems of gfx950.parquet, imported from bench.csv"


def test_the_problem_set_replaces_no_imported_file(
    published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = published.rename(published.with_name("gfx950_problems.csv"))
    held = source.read_bytes()
    assert (
        main(["import", str(source), "--arch", "gfx950", "-o", str(source.with_name("gfx950.parquet"))]) == 2
    )
    assert f"{source} is also an input: write to another file" in capsys.readouterr().err
    assert source.read_bytes() == held


def test_files_of_one_name_are_runs_of_their_own(
    project: Project, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same row twice is one; of two times of a pair neither is lost."""
    again = project.write("again/bench.csv", published.read_text().replace(",0.001\n", ",0.0015\n"))
    files, out = [str(published), str(again), str(again)], published.with_name("all.parquet")
    assert main(["import", *files, "--arch", "gfx950", "-o", str(out)]) == 0
    assert "23 rows given more than once" in capsys.readouterr().out
    assert sorted(load_records([out])["run"].value_counts()) == [1, 12]


@pytest.mark.slow
def test_the_records_alone_are_a_session(project: Project, published: Path) -> None:
    """Their problems, and only the recorded kernels, whether or not rules propose them."""
    out = project.folder / "gfx950.parquet"
    assert main(["import", str(published), "--arch", "gfx950", "-o", str(out)]) == 0
    alone = project.pytest("--oracle=gfx950.parquet", "--model=out-of-fold", "--allow=no-baseline")
    assert alone.status == 0, alone.output
    assert "4 problems, 12 pairs replayed" in alone.output
    assert "records: 12 pairs of 4 problems and 3 kernels" in alone.output
    (run,) = project.runs
    assert set(project.records(run)["kernel"]) == {f"grouped_conv_forward_bf16_2d_{name}" for name in KERNELS}
    again = project.pytest(f"--oracle={run}", "--model=none")
    assert "4 problems, 12 pairs replayed" in again.output
    asked = project.pytest("--oracle=gfx950.parquet", "--problem-set=gfx950.parquet", "--kernel-set=tiny")
    assert asked.status != 0
    assert "12 pairs replayed" not in asked.output


@pytest.mark.parametrize("name", ["none.parquet", "text.parquet"])
def test_a_file_without_records_gives_one_line(project: Project, name: str) -> None:
    project.write("text.parquet", "no parquet")
    done = project.pytest(f"--oracle={name}")
    assert done.status == 4, done.output
    assert name in done.output
    assert "INTERNALERROR" not in done.output
