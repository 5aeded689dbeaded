"""Short kernel names, as they are printed, are accepted where a name is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tile_oracle.cli import main
from tile_oracle.errors import KernelError
from tile_oracle.kernel import kernel_of_kind
from tile_oracle.pickers.of_records import read_picks
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import problem_from_id

PROBLEM = problem_from_id("forward-bf16-n1-c64-k64-i14x14-f3x3-p1")
KERNEL = pool_of_kind(PROBLEM.kind, "gfx950", "tiny")[0]


def test_both_names_are_the_kernel_s() -> None:
    assert kernel_of_kind(PROBLEM.kind, KERNEL.name) == KERNEL
    assert kernel_of_kind(PROBLEM.kind, KERNEL.short_name) == KERNEL
    with pytest.raises(KernelError, match="'nonsense' is not a kernel name"):
        kernel_of_kind(PROBLEM.kind, "nonsense")


def test_commands_take_the_short_name(capsys: pytest.CaptureFixture[str]) -> None:
    kind = ["--direction=forward", "--dtype=bf16", "--ndim=2", "--arch=gfx950"]
    assert main(["kernels", KERNEL.short_name, *kind]) == 0
    explained = capsys.readouterr().out
    assert main(["kernels", KERNEL.name, "--arch=gfx950"]) == 0
    assert capsys.readouterr().out == explained
    assert main(["kernels", KERNEL.short_name]) == 2
    assert "add --direction and --dtype and --ndim, or give a full name such as" in capsys.readouterr().err


def test_picks_and_lists_of_candidates_take_short_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = PROBLEM.as_row()
    columns = [name for name in row if name not in ("direction", "dtype", "ndim")]
    (tmp_path / "picks.csv").write_text(
        f"{','.join(columns)},kernel_name,predicted_tflops\n"
        f"{','.join(str(row[name]) for name in columns)},{KERNEL.short_name},1.5\n"
    )
    assert read_picks(tmp_path / "picks.csv", [PROBLEM])[0]["kernel"].tolist() == [KERNEL.name]
    (tmp_path / "names.txt").write_text(f"{KERNEL.short_name}\n")
    assert main(["predict", PROBLEM.id, "--arch=gfx950", f"--kernels={tmp_path / 'names.txt'}"]) == 0
    assert KERNEL.short_name in capsys.readouterr().out
