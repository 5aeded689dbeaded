"""However pytest is run: status 0 only where a verdict passed, or an outcome was allowed by name."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pytest_project import Project
from tests.session.recorded import SET, Recorded, make_recorded
from tests.session.ways_to_run import WAYS, Way
from tile_oracle.session.outcome import Outcome, read_allowed

REPLAY = ("--problem-set", SET, "--target", "replay")
JSON = "ended.json"


@pytest.fixture(scope="module")
def recorded(make_project: Callable[[], Project]) -> Recorded:
    """A project whose sweep passes."""
    made = make_recorded(make_project())
    assert made.project.pytest(*REPLAY, "--update-baseline").status == 0
    return made


@pytest.mark.parametrize(
    "way", [pytest.param(way, id=way.said, marks=() if way.is_quick else pytest.mark.slow) for way in WAYS]
)
def test_each_way_to_run_pytest_ends_as_the_table_says(recorded: Recorded, way: Way) -> None:
    project, problem = recorded.project, recorded.problems[4].id
    shutil.rmtree(project.folder / ".pytest_cache", ignore_errors=True)
    (project.folder / JSON).unlink(missing_ok=True)
    project.write("pytest.ini", way.ini)
    project.write("more.txt", "--tb=short\n--criteria=interval\n")
    project.write("one.csv", f"problem,kernel\n{problem},{recorded.kernels[0].name}\n")
    project.write("conftest.py", "")
    if way.before is not None:
        project.write("tests/test_own.py", way.first)
        project.pytest(*REPLAY, *shlex.split(way.before))
    project.write("tests/test_own.py", way.own)
    project.write("conftest.py", way.conftest)
    asked = shlex.split(way.arguments.replace("PROBLEM", problem))
    done = project.pytest(*REPLAY, f"--report-json={JSON}", *asked, environment=way.environment)
    assert done.status == way.status, done.output
    assert "INTERNALERROR" not in done.output
    if not way.outcomes:
        assert not (project.folder / JSON).exists()
        return
    told = json.loads((project.folder / JSON).read_text())
    assert told["exit_status"] == way.status
    assert told["outcomes"] == sorted(way.outcomes.split())
    if way.status > Outcome.FAILED and way.outcomes != "passed":
        assert told["trouble"] or told["sets"], "it says why"


@pytest.mark.parametrize(
    ("conftest", "told"),
    [
        ("os._exit(0)\n", None),
        ("def pytest_runtest_logfinish():\n    os._exit(0)\n", None),
        ("import atexit\natexit.register(os._exit, 0)\n", Outcome.NO_BASELINE),
    ],
)
def test_the_report_tells_what_a_process_that_ends_itself_hides(
    recorded: Recorded, conftest: str, told: Outcome | None
) -> None:
    project = recorded.project
    project.write(JSON, '{"exit_status": 0}')
    project.write("conftest.py", "import os\n" + conftest)
    assert project.pytest(*REPLAY, "--baseline-dir=none", f"--report-json={JSON}").status == 0, "out of reach"
    file = project.folder / JSON
    assert (json.loads(file.read_text())["exit_status"] if file.exists() else None) == told


def test_the_table_has_no_pass_without_a_name() -> None:
    assert f"Of the {len(WAYS)} ways" in (Path(__file__).parents[2] / "docs" / "gate.md").read_text()
    assert len(WAYS) >= 40
    assert len({way.said for way in WAYS}) >= len(WAYS) - 4, "some are `the same, -n 2`"
    for way in WAYS:
        if way.status == 0 and way.outcomes not in ("passed", ""):
            named = [name for name in way.outcomes.split() if name in way.arguments]
            assert named or way.arguments.startswith(("--collect-only", "--setup-plan", "--fixtures"))
            assert read_allowed(",".join(way.outcomes.split()))
