"""--shard: parts that divide the problems, and that merge into what one session measures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pytest_project import Project
from tests.session.recorded import SET, Recorded, make_recorded
from tile_oracle.errors import HarnessError
from tile_oracle.record.dataset import load_records
from tile_oracle.session.options import Shard, read_shard

REPLAYED = ("--problem-set", SET, "--target", "replay", "--allow=no-baseline,incomplete,nothing-judged")


@given(
    st.dictionaries(st.text(min_size=1, max_size=4), st.floats(0.001, 1000.0), max_size=60),
    st.integers(1, 12),
)
def test_every_problem_is_in_one_part_and_no_part_is_much_longer(times: dict[str, float], count: int) -> None:
    parts = [Shard(number, count).problems(times) for number in range(1, count + 1)]
    assert sorted(problem for part in parts for problem in part) == sorted(times)
    loads = [sum(times[problem] for problem in part) for part in parts]
    # A part gets a problem only while it has the least work, which is at most the mean.
    assert max(loads) <= sum(loads) / count + max(times.values(), default=0.0) + 1e-6
    assert [Shard(n, count).problems(dict(reversed(times.items()))) for n in range(1, count + 1)] == parts


@pytest.mark.parametrize("text", ["", "3", "0/2", "3/2", "-1/2", "1/0", "a/b", "1/2/3", "9" * 500])
def test_other_values_get_one_line(text: str) -> None:
    with pytest.raises(HarnessError, match="is not a part such as 1/8"):
        read_shard(text)


@pytest.mark.slow
def test_the_parts_merge_into_the_whole_session(make_project: Callable[[], Project]) -> None:
    recorded: Recorded = make_recorded(make_project())
    project, folder = recorded.project, recorded.project.folder
    for number in (1, 2, 3):
        done = project.pytest(*REPLAYED, f"--shard={number}/3", f"--run-name=part-{number}")
        assert done.status == 0, done.output
    parts = [load_records(folder / "reports" / f"part-{number}") for number in (1, 2, 3)]
    problems = [set(part["problem"]) for part in parts]
    assert all(problems)
    assert sum(map(len, problems)) == len(set.union(*problems)) == len(recorded.problems)
    assert sum(map(len, parts)) == len(load_records(recorded.oracle))
