"""Kernels that are one binary: one is measured, in whatever session, and the others get marked copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from evil_target import EvilTarget, evil_kernel

from tests.measure.own_driver import PROBLEM, OwnSession
from tile_oracle.compiling.builder import Builder
from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem


def twin(kernel: GroupedConvKernel) -> GroupedConvKernel:
    """Another name for the same code: kernels/cpu has no schedulers."""
    return replace(kernel, scheduler="interwave")


GOOD, OTHER = evil_kernel("good"), evil_kernel("good", 2)


class Counting(Supervisor):
    """Notes the kernels that are run in sweeps, and the picks."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ran: list[str] = []
        self.picks: list[Kernel] = []

    def sweep(self, problem: Any, kernels: Any, known: Any = (), **options: Any) -> Any:
        self.ran += [kernel.name for kernel in kernels if self.target.refusal(kernel, problem) is None]
        self.picks += options.get("picks", ())
        yield from super().sweep(problem, kernels, known, **options)


class Refusing(EvilTarget):
    """Refuses kernels by rule, as `Filter1x1Pad0` refuses other filters."""

    refused: str = ""

    def refusal(self, kernel: GroupedConvKernel, problem: GroupedConvProblem) -> str | None:
        return "not for this filter" if kernel.name == self.refused else None


class Session(OwnSession):
    def __init__(self, builder: Builder, reports: Path, plan: Sequence[GroupedConvKernel], **options: Any):
        super().__init__(builder, reports, plan, Refusing, Counting, **options)

    def measure(self) -> dict[str, Measurement]:
        return {kernel.name: self.driver.measure(PROBLEM, kernel) for kernel in self.plan}

    def close(self) -> pd.DataFrame:
        return super().close().set_index(["kernel", "round"]).sort_index()


@pytest.fixture
def open_session(evil_builder: Builder, tmp_path: Path) -> Iterator[Callable[..., Session]]:
    opened: list[Session] = []

    def make(*plan: GroupedConvKernel, **options: Any) -> Session:
        for kernel in plan:
            evil_builder.submit(kernel).result()
        opened.append(Session(evil_builder, tmp_path, plan, **options))
        return opened[-1]

    yield make
    for session in opened:
        session.supervisor.close()


def test_twins_are_measured_once_and_recorded_in_every_round(open_session: Callable[..., Session]) -> None:
    session = open_session(GOOD, twin(GOOD), OTHER)
    found = session.measure()
    assert session.supervisor.ran == [GOOD.name, OTHER.name]
    assert found[twin(GOOD).name].ok
    table = session.close()
    assert len(table) == 6
    for round_ in (0, 1):
        first, copy, other = (table.loc[(k.name, round_)] for k in (GOOD, twin(GOOD), OTHER))
        assert (copy["latency_ms"], copy["samples"]) == (first["latency_ms"], first["samples"])
        assert (first["detail"], other["detail"]) == ("", "")
        assert copy["detail"] == f"twin of {GOOD.name}"
        assert copy["scheduler"] == "interwave"


def test_the_pick_among_twins_is_timed_as_the_one_that_is_measured(
    open_session: Callable[..., Session],
) -> None:
    session = open_session(GOOD, twin(GOOD), picks=lambda problem: [twin(GOOD)])
    session.measure()
    session.close()
    assert session.supervisor.picks == [GOOD, GOOD], "in the sweep, where it keeps every check, and after it"


def test_a_failure_of_the_binary_is_its_twins_failure_too(open_session: Callable[..., Session]) -> None:
    evil = evil_kernel("segfault")
    session = open_session(evil, twin(evil), GOOD)
    found = session.measure()
    assert session.supervisor.ran == [evil.name, GOOD.name]
    assert [found[k.name].status for k in (evil, twin(evil))] == ["crash", "crash"]
    assert found[twin(evil).name].detail == f"twin of {evil.name}; {found[evil.name].detail}"


def test_a_kernel_that_a_rule_refuses_is_no_twin(open_session: Callable[..., Session]) -> None:
    session = open_session(GOOD, twin(GOOD))
    session.target.refused = GOOD.name
    found = session.measure()
    assert (found[GOOD.name].status, found[twin(GOOD).name].status) == ("unsupported", "ok")
    assert found[twin(GOOD).name].detail == ""


def test_a_twin_of_an_earlier_session_is_not_measured_again(open_session: Callable[..., Session]) -> None:
    first = open_session(twin(GOOD), OTHER)
    before = first.measure()[twin(GOOD).name]
    first.close()
    resumed = open_session(GOOD, twin(GOOD), OTHER)
    copy = resumed.measure()[GOOD.name]
    assert resumed.supervisor.ran == []
    assert (copy.detail, copy.latency_ms) == (f"twin of {twin(GOOD).name}", pytest.approx(before.latency_ms))
    table = resumed.close()
    assert len(table) == 6
    again = table.xs(1, level="round")["latency_ms"]
    assert again[GOOD.name] == again[twin(GOOD).name]


def test_what_a_killed_session_left_out_is_copied_on_resume(open_session: Callable[..., Session]) -> None:
    first = open_session(GOOD, twin(GOOD), OTHER)
    first.driver.measure(PROBLEM, GOOD)
    first.driver.abandon()  # before the copy was recorded
    assert len(first.close()) == 1
    resumed = open_session(GOOD, twin(GOOD), OTHER)
    resumed.measure()
    assert resumed.supervisor.ran == [OTHER.name]
    assert len(resumed.close()) == 6


def test_a_lost_measurement_is_not_copied(open_session: Callable[..., Session]) -> None:
    session = open_session(GOOD, twin(GOOD))
    session.supervisor.lost = "unplugged"
    found = session.measure()
    assert {m.status for m in found.values()} == {"device_lost"}
    assert {m.detail for m in found.values()} == {"unplugged"}
    session.close()
    resumed = open_session(GOOD, twin(GOOD))
    assert all(m.ok for m in resumed.measure().values())
    assert resumed.supervisor.ran == [GOOD.name]
    resumed.close()


def test_later_rounds_are_copied_too(open_session: Callable[..., Session]) -> None:
    session = open_session(GOOD, twin(GOOD), OTHER)
    found = session.measure()
    session.close()
    settling = open_session()  # it has planned nothing
    settling.driver.remeasure_all([(PROBLEM, [found[GOOD.name], found[OTHER.name]], 2)], math.inf)
    table = settling.close()
    later = table.xs(2, level="round")
    assert later["latency_ms"][twin(GOOD).name] == later["latency_ms"][GOOD.name]
    assert later["detail"].to_dict() == {
        GOOD.name: "",
        OTHER.name: "",
        twin(GOOD).name: f"twin of {GOOD.name}",
    }
