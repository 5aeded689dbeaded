"""What a session writes for programs, and the defaults that a project sets for it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pytest_project import Project
from tests.session.recorded import SET, Recorded
from tile_oracle.errors import HarnessError
from tile_oracle.session.option_names import default_arguments

SHIPPED = ("--problem-set", SET, "--target", "replay")


def test_the_outcome_is_written_for_programs_and_for_the_workflow_s_step(recorded: Recorded) -> None:
    folder = recorded.project.folder
    step = folder / "step.md"
    step.write_text("before\n")
    done = recorded.project.pytest(
        *SHIPPED, "--report-json=out/session.json", environment={"GITHUB_STEP_SUMMARY": str(step)}
    )
    found = json.loads((folder / "out" / "session.json").read_text())
    assert (found["exit_status"], found["outcomes"], found["trouble"]) == (done.status, ["no-baseline"], "")
    (one,) = found["sets"]
    verdict = recorded.project.verdict(Path(one["folder"]))
    assert one["efficiency"] == verdict["efficiency"]
    assert step.read_text() == "before\n" + (Path(one["folder"]) / "summary.md").read_text() + "\n"


def test_a_file_that_cannot_be_written_fails_the_session(recorded: Recorded) -> None:
    done = recorded.project.pytest(*SHIPPED, "--allow=no-baseline", "--report-json=/proc/no.json")
    assert done.status == 1
    assert "--report-json /proc/no.json cannot be written" in done.output


@pytest.mark.parametrize("name", ["mine.csv", "pipe"])
def test_what_is_no_outcome_is_not_replaced(recorded: Recorded, name: str) -> None:
    file = recorded.project.write("mine.csv", "N,C,K,Hi,Wi,Y,X\n1,8,8,9,9,3,3\n")
    if name == "pipe":
        os.mkfifo(recorded.project.folder / name)
    done = recorded.project.pytest(f"--problem-set={file}", "--target=cpu", f"--report-json={name}")
    assert done.status == 4
    assert f"/{name} exists and is no session's outcome: name another" in done.output
    assert (recorded.project.folder / name).exists()


def test_pyproject_s_defaults_are_overridden_by_the_command_line(make_project: Callable[[], Project]) -> None:
    project = make_project()
    (project.folder / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\n[tool.tile-oracle]\nkernel-set = "tinny"\nallow = ["no-baseline"]\n'
    )
    done = project.pytest("--problem-set=forward_smoke", "--target=cpu", "--collect-only", "-q")
    assert "'tinny'" in done.output
    done = project.pytest(
        "--problem-set=forward_smoke", "--target=cpu", "--kernel-set=tiny", "--collect-only", "-q"
    )
    assert done.status == 0, done.output


# ---- [tool.tile-oracle] -----------------------------------------------------------------------------


def arguments(folder: Path, table: str) -> list[str]:
    (folder / "pyproject.toml").write_text(f"[tool.tile-oracle]\n{table}\n")
    return default_arguments(folder)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('kernel_set = "full"', "kernel_set is no option: did you mean kernel-set?"),
        ('problem-set = "forward_smoke"', "problem-set cannot be a default"),
        ("cold-cache = 1", "cold-cache must be true or false, not '1'"),
        ("target = {}", "target must be a text, a number or a list of texts"),
        ("samples = true", "samples must be a text, a number or a list of texts"),
    ],
)
def test_a_wrong_entry_is_named_in_one_line(tmp_path: Path, table: str, said: str) -> None:
    with pytest.raises(HarnessError) as refused:
        arguments(tmp_path, table)
    assert f"{tmp_path / 'pyproject.toml'}: [tool.tile-oracle] {said}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_table_has_the_options_of_the_command_line(tmp_path: Path) -> None:
    assert default_arguments(tmp_path) == []
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n')
    assert default_arguments(tmp_path) == []
    table = 'kernel-set = "full"\ncold-cache = true\nrepick = false\nmean-tolerance = 0.2\nreport-dir = "out"'
    assert arguments(tmp_path, table) == [
        "--kernel-set=full",
        "--cold-cache",
        "--mean-tolerance=0.2",
        f"--report-dir={tmp_path / 'out'}",
    ]
    assert arguments(tmp_path, 'allow = ["no-baseline", "incomplete"]') == ["--allow=no-baseline,incomplete"]


@given(st.binary(max_size=60))
def test_any_file_gives_arguments_or_one_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "pyproject.toml").write_bytes(b"[tool.tile-oracle]\n" + data)
    try:
        found = default_arguments(folder)
    except HarnessError:
        return
    assert all(argument.startswith("--") for argument in found)
