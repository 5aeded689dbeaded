"""docs/records.md agrees with the schema, and its examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.processes import run_python
from tests.record.made_rows import make_row
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.record import journal
from tile_oracle.record.schema import STATUSES, columns

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "records.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading."""
    lines = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0].splitlines()
    rows = [line.strip("|").split(" | ") for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


def test_every_column_is_in_the_table_with_its_type_and_meaning() -> None:
    told: list[tuple[str, str, str]] = []
    for names, kind, meaning in table("Columns"):
        told += [(name.strip(" `"), kind, meaning) for name in names.split(",")]
    own = {"problem: ": "the problem's own", "kernel: ": "the kernel's own"}
    assert sorted(told) == sorted(
        (c.name, str(c.type), own.get(c.meaning.removesuffix(c.name), c.meaning)) for c in columns()
    )


def test_statuses_and_numbers_of_the_text_are_those_of_the_code() -> None:
    assert sorted(row[0] for row in table("Statuses")) == sorted(STATUSES)
    text = " ".join(PAGE.split())
    settings = SweepSettings()
    assert settings.max_leaders == 6
    assert "up to six kernels within 10 % of the fastest" in text
    assert settings.leaders_within == 0.10
    assert f"Every {journal._SEAL_ROWS:,} rows or {journal._SEAL_SECONDS:g} seconds" in text
    assert settings.timing.noisy_above == 0.10


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_the_code_runs(block: str, tmp_path: Path) -> None:
    folder = tmp_path / "reports" / "RUN" / "measurements"
    folder.mkdir(parents=True)
    journal.write_part(folder / "part-a.parquet", [make_row(n, tflops=1.5) for n in range(6)])
    done = run_python("-c", block, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": ""})
    assert done.returncode == 0, done.stderr
    assert "1.5" in done.stdout or re.search(r"ok +6", done.stdout)
