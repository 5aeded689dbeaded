"""`--models`: several pickers on the same measurements, each judged by its own baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.pytest_project import Project
from tests.session.recorded import SET, Recorded, make_recorded
from tests.session.test_picks_file import write_picks
from tile_oracle.judge.baseline import slug

FIRST = """
from tile_oracle.pickers.picker import Configuration

class First:
    name, identity, maps = "first", "first 2.1", True

    def pick(self, problem, pool):
        return [Configuration({"tile_m": 64, "tile_n": 64, "tile_k": 64, "pipeline": "compv9"})]

def picker():
    return First()
"""


@pytest.fixture(scope="module")
def recorded(make_project: Callable[[], Project]) -> Recorded:
    found = make_recorded(make_project())
    folder = found.project.folder
    info = folder / "first-2.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: first\nVersion: 2.1\n")
    (info / "entry_points.txt").write_text(
        "[tile_oracle.pickers]\nfirst = the_first:picker\nlist = builtins:list\n"
        "none_such = no_such_module:picker\n"
    )
    (folder / "the_first.py").write_text(FIRST)
    (folder / "conftest.py").write_text("import sys\nsys.path.insert(0, '.')\n")
    write_picks(found, folder / "my picks (2).csv", place=1)
    return found


def of_name(document: Mapping[str, Any]) -> dict[str, Any]:
    return {one["name"]: one for one in document["pickers"]}


@pytest.mark.slow
def test_all_are_judged_side_by_side_each_by_its_own_baseline(recorded: Recorded) -> None:
    words = (
        "--problem-set",
        SET,
        f"--oracle={recorded.oracle}",
        "--models=made_up,first,my picks (2).csv,single",
    )
    env = {"PYTHONPATH": str(recorded.project.folder)}
    new = recorded.project.pytest(*words, "--run-name=new", environment=env)
    assert new.status == 10, new.output
    assert f"'{words[-1]}' --update-baseline" in new.output, "the command is quoted"
    assert "first: no baseline: not judged yet" in new.output
    assert "no baseline (made_up, first, my picks (2), single): there is none for this model" in new.output
    accepted = recorded.project.pytest(*words, "--update-baseline", "--run-name=accepted", environment=env)
    assert accepted.status == 0, accepted.output
    folder = recorded.project.folder / "models"
    assert {path.parents[2].name for path in folder.glob("*/*/*/*.json")} == {
        "made_up",
        "first",
        slug("my picks (2)"),
        "single",
    }
    again = recorded.project.pytest(*words, "--run-name=again", environment=env)
    assert again.status == 0, again.output
    found = of_name(recorded.project.verdict(recorded.project.folder / "reports" / "again"))
    assert list(found) == ["made_up", "first", "my picks (2)", "single"]
    assert {one["state"] for one in found.values()} == {"passed"}
    assert found["first"]["identity"] == "first 2.1"
    choices = found["first"]["choices"]
    assert choices["exactly"][0] == 0
    assert choices["nearest"][0] + choices["same tile and split-K"][0] == len(recorded.problems)
    assert "nearest: the smallest sum" in again.output
    low, high = (found["my picks (2)"]["difference_mean"][side] for side in ("low", "high"))
    assert low <= found["my picks (2)"]["mean_percent"] - found["made_up"]["mean_percent"] <= high
    assert found["made_up"]["us_per_pick"] > 0
    write_picks(recorded, recorded.project.folder / "my picks (2).csv", place=-1)
    worse = recorded.project.pytest(*words, environment=env)
    assert worse.status == 1, worse.output
    assert "verdict passed" in worse.output, "the first picker has passed"
    assert "my picks (2): failed: criteria not met: mean" in worse.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("models", "told"),
    [
        ("none_such", "entry point none_such = no_such_module:picker of tile_oracle.pickers cannot be"),
        ("list", "entry point list = builtins:list of tile_oracle.pickers is no picker: it lacks name"),
        ("firsst", "did you mean first?"),
        ("single,single", "names single twice"),
        ("single,", "has an empty name"),
    ],
)
def test_what_cannot_be_a_picker_is_named(recorded: Recorded, models: str, told: str) -> None:
    env = {"PYTHONPATH": str(recorded.project.folder)}
    done = recorded.project.pytest(
        "--problem-set", SET, f"--oracle={recorded.oracle}", f"--models={models}", environment=env
    )
    assert done.status == 4, done.output
    assert told in done.output
