"""An operation of another distribution, row-wise softmax, from measurement to verdict.

The folder is on PYTHONPATH like an installed distribution: its dist-info declares the entry point.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from tests.processes import run_python
from tests.pytest_project import SHORTLY, Finished, Project

INSTALLED = {"PYTHONPATH": str(Path(__file__).parent)}
SHAPES = ((4, 16), (8, 64), (16, 100), (3, 1000))
SESSION = ("--problem-set", "shapes.csv", "--kernel-set", "tiny", *SHORTLY)


@dataclass(frozen=True)
class Measured:
    project: Project
    run: Path
    finished: Finished
    records: pd.DataFrame

    def command(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """`tile-oracle` with these arguments, in the project's folder."""
        return run_python(
            "-m",
            "tile_oracle.cli",
            *map(str, arguments),
            cwd=self.project.folder,
            env=os.environ | self.project.environment | INSTALLED,
        )


@pytest.fixture(scope="module")
def measured(make_project: Callable[[], Project]) -> Measured:
    project = make_project()
    rows = "".join(f"{rows},{columns}\n" for rows, columns in SHAPES)
    project.write("shapes.csv", f"rows,columns\n{rows}")
    finished = project.pytest(*SESSION, "--update-baseline", environment=INSTALLED)
    (run,) = project.runs
    return Measured(project, run, finished, project.records())


@pytest.mark.slow
def test_a_session_measures_checks_ranks_and_judges(measured: Measured) -> None:
    assert measured.finished.status == 0, measured.finished.output
    sweep = measured.records[measured.records["round"] == 0]
    assert len(sweep) == 3 * len(SHAPES)
    assert set(zip(sweep["rows"], sweep["columns"], strict=True)) == set(SHAPES)
    assert set(sweep["block"]) == {1, 4, 16}
    assert set(sweep["status"]) == {"ok"}
    assert set(sweep["check"]) == {"full"}
    assert "coverage      4 of 4 problems" in measured.finished.output
    assert "short rows" in (measured.run / "report.html").read_text()


@pytest.mark.slow
def test_commands_know_it(measured: Measured) -> None:
    assert (
        "row_softmax_fp32_block4"
        in measured.command("kernels", "--op", "row_softmax", "--arch", "cpu").stdout
    )
    assert "cpu      allowed; in the sets" in measured.command("kernels", "row_softmax_fp32_block4").stdout
    merged = measured.command("merge", measured.run, "-o", "merged.parquet")
    assert merged.returncode == 0, merged.stderr
    assert len(pd.read_parquet(measured.project.folder / "merged.parquet")) == len(measured.records)


@pytest.mark.slow
def test_a_wrong_kernel_is_found(measured: Measured) -> None:
    """A distribution whose kernel forgets to divide by the row's sum."""
    project = measured.project
    source = Path(__file__).with_name("row_softmax_operation")
    broken = project.folder / "broken"
    for path in [*source.rglob("*.py"), *source.rglob("*.json")]:
        text = path.read_text().replace("y[c] /= sum[0];", "y[c] /= 1;")
        project.write(f"broken/row_softmax_operation/{path.relative_to(source)}", text)
    for path in Path(__file__).parent.glob("*.dist-info/*"):
        project.write(f"broken/{path.parent.name}/{path.name}", path.read_text())
    finished = project.pytest(
        *SESSION, "--model", "none", "--target", "cpu", environment={"PYTHONPATH": str(broken)}
    )
    assert finished.counts()["failed"] == 3 * len(SHAPES)
    wrong = project.records(project.runs[-1])
    assert set(wrong["status"]) == {"wrong"}
    assert wrong["detail"].str.contains("values wrong, at").all()
