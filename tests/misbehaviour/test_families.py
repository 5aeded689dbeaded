"""A kernel of each family gets its status, its innocent neighbours stay ok, and the session ends.

A sample runs with every suite; TILE_ORACLE_ALL_FAMILIES=1 or `python -m tools.faults.misbehaviour` runs all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from evil_target import small_problem

from tests.misbehaviour.families import GROUPS, INNOCENT, Family
from tests.misbehaviour.runner import Lab, lab
from tests.misbehaviour.tables import FAMILIES
from tests.samples import sampled, slow
from tile_oracle.measure.measurement import Measurement
from tile_oracle.record.schema import ROUND_FINAL

_ALL = os.environ.get("TILE_ORACLE_ALL_FAMILIES") == "1"
_CHOSEN = [family for family in FAMILIES if (_ALL or family.quick) and family.possible_here]


@pytest.fixture(scope="module")
def the_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("families"), FAMILIES) as made:
        yield made


@pytest.mark.parametrize("family", sampled(_CHOSEN, every=6), ids=lambda family: family.name)
def test_a_family_gets_its_status_and_affects_no_other_kernel(family: Family, the_lab: Lab) -> None:
    assert not the_lab.measure(family).broken(family)


def test_the_table_names_each_family_once_and_says_what_it_does() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    assert all(family.does.endswith(".") and family.statuses for family in FAMILIES)
    assert {family.group for family in FAMILIES} <= set(GROUPS)


def test_the_page_counts_the_families() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
    assert f"holds {len(FAMILIES)} families" in page
    assert len(FAMILIES) >= 70


def test_a_broken_promise_is_reported(the_lab: Lab) -> None:
    """Tests the check itself: a family that gets an unexpected status is a failure."""
    family = next(one for one in FAMILIES if one.name == "segfault")
    outcome = the_lab.measure(family)
    assert not outcome.broken(family)
    other = Family(family.name, family.group, family.does, frozenset({"ok"}))
    assert outcome.broken(other) == [f"it is crash ({outcome.seen[2].detail}), not ok"]


def swept_with_innocents(the_lab: Lab, name: str, height: int) -> list[Measurement]:
    """The kernel of a family first, then three innocent ones; all ok in the sweep."""
    family = next(one for one in FAMILIES if one.name == name)
    target, problem = the_lab.target, small_problem(Hi=height)
    kernels = [target.kernel(family), *(target.kernel(INNOCENT, i) for i in (1, 2, 3))]
    timed = list(the_lab.supervisor.sweep(problem, kernels, finals=False))
    assert [m.status for m in timed] == ["ok"] * 4
    return sorted(timed, key=lambda m: m.kernel != kernels[0])


@pytest.mark.parametrize(("file", "status"), [("always", "wrong"), *slow(("once", "ok"))])
def test_a_leader_that_computes_elsewhere_is_the_only_one_to_pay(
    file: str, status: str, the_lab: Lab
) -> None:
    """Nobody knows which of the leaders in a worker it was, so each is timed again alone."""
    timed = swept_with_innocents(the_lab, "computes_in_a_thread_when_told", 5)
    told = Path(f"{the_lab.target.shared}{file}")
    told.touch()
    try:
        again = list(the_lab.supervisor.remeasure(timed[0].problem, timed, ROUND_FINAL))
    finally:
        told.unlink(missing_ok=True)
    assert {(m.kernel, m.status) for m in again} == {
        (m.kernel, status if m is timed[0] else "ok") for m in timed
    }
    assert len(again) == len(timed)


def test_what_happens_once_is_not_blamed_on_the_kernel(the_lab: Lab) -> None:
    """Somebody may move the worker to other cores, for example."""
    told = Path(f"{the_lab.target.shared}once")
    told.touch()
    try:
        first = swept_with_innocents(the_lab, "computes_in_a_thread_when_told", 4)[0]
    finally:
        told.unlink(missing_ok=True)
    assert first.detail.startswith("failed once in a worker that other kernels had used: ")
    assert "threads" in first.detail


@pytest.mark.slow
def test_a_leader_that_starves_the_others_is_the_only_one_to_pay(the_lab: Lab) -> None:
    """The leaders share a worker, and a faulty one may come first, before the others are even loaded."""
    timed = swept_with_innocents(the_lab, "leaks_all_descriptors", 6)
    again = list(the_lab.supervisor.remeasure(timed[0].problem, timed, ROUND_FINAL))
    assert {(m.kernel, m.status, m.round) for m in again} == {(m.kernel, "ok", ROUND_FINAL) for m in timed}
