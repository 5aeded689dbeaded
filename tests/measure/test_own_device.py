"""`measure(problem, kernel)`: each pair once, in its problem's sweep, recorded, and reused on resume."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from evil_target import EvilTarget, evil_kernel

from tests.measure.own_driver import OTHER, PROBLEM, OwnSession
from tile_oracle.compiling.binary import BuildResult
from tile_oracle.compiling.builder import Builder
from tile_oracle.measure.builds import Builds
from tile_oracle.measure.commands import Load
from tile_oracle.measure.data_ahead import DataAhead
from tile_oracle.measure.live_worker import LiveWorker
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.problem import problem_from_row
from tile_oracle.record.attempts import AttemptSlot
from tile_oracle.record.run import RunLog

KERNELS = [evil_kernel("good", i) for i in (1, 2, 3)]


class Session(OwnSession):
    def rows(self) -> list[str]:
        """The problems of the rows that are recorded so far."""
        return [row["problem"] for row in RunLog(self.run, "reader").known(PROBLEM.id)]


@pytest.fixture
def open_session(evil_builder: Builder, tmp_path: Path) -> Iterator[Callable[..., Session]]:
    for kernel in KERNELS:
        evil_builder.submit(kernel).result()
    opened: list[Session] = []

    def make(plan: Sequence[GroupedConvKernel] = KERNELS, **options: Any) -> Session:
        opened.append(Session(evil_builder, tmp_path, plan, **options))
        return opened[-1]

    yield make
    for session in opened:
        session.supervisor.close()


def rounds(table: pd.DataFrame) -> dict[int, int]:
    return {int(number): int(count) for number, count in table["round"].value_counts().items()}


def test_moving_to_another_problem_finishes_the_current_one(open_session: Callable[..., Session]) -> None:
    session = open_session()
    session.driver.measure(PROBLEM, KERNELS[0])
    assert len(session.rows()) < 6
    session.driver.measure(OTHER, KERNELS[0])
    assert len(session.rows()) == 6
    assert session.driver.measure(PROBLEM, KERNELS[1]).ok  # done by then
    session.driver.wait()
    assert rounds(session.close()) == {0: 6, 1: 6}


def commands_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What workers are sent from now on: the ids of problems that they load, and "run"."""
    sent: list[str] = []
    ask, run = LiveWorker.ask, LiveWorker.run

    def ask_and_note(self: LiveWorker, command: Any) -> None:
        if isinstance(command, Load):
            sent.append(problem_from_row(command.problem).id)
        ask(self, command)

    def run_and_note(self: LiveWorker, command: Any) -> None:
        sent.append("run")
        run(self, command)

    monkeypatch.setattr(LiveWorker, "ask", ask_and_note)
    monkeypatch.setattr(LiveWorker, "run", run_and_note)
    return sent


def test_the_next_problem_is_prepared_while_the_tests_of_a_measured_one_end(
    open_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, sent = open_session(), commands_of(monkeypatch)
    for kernel in KERNELS:
        session.driver.measure(PROBLEM, kernel)
    assert sent[0] == PROBLEM.id
    assert sent[-1] == OTHER.id
    before = len(sent)
    assert all(session.driver.measure(OTHER, kernel).ok for kernel in KERNELS)
    assert set(sent[before:]) == {"run"}  # it is not prepared again
    assert rounds(session.close()) == {0: 6, 1: 6}


def test_the_data_of_the_next_problem_are_made_while_a_problem_is_measured(
    open_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    files: list[str] = []
    ask = LiveWorker.ask
    monkeypatch.setattr(DataAhead, "ask", lambda self, problem, seed: asked.append(problem.id))
    monkeypatch.setattr(DataAhead, "take", lambda self, problem: f"/file of {problem.id}")

    def ask_and_note(self: LiveWorker, command: Any) -> None:
        if isinstance(command, Load):
            files.append(command.made)
        ask(self, command)

    monkeypatch.setattr(LiveWorker, "ask", ask_and_note)
    session = open_session()
    session.target.is_gpu = True
    assert session.driver.measure(PROBLEM, KERNELS[0]).ok
    assert set(asked) == {OTHER.id}
    assert session.driver.measure(OTHER, KERNELS[0]).ok
    assert set(asked) == {OTHER.id}, "none comes after it"
    assert files == [f"/file of {one.id}" for one in (PROBLEM, OTHER)]


def test_a_problem_that_was_prepared_and_never_asked_for_disturbs_no_other(
    open_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, sent = open_session(), commands_of(monkeypatch)
    for kernel in KERNELS:
        session.driver.measure(PROBLEM, kernel)
    assert sent[-1] == OTHER.id
    further = evil_kernel("good", 4)
    session.target.build(further).result()
    assert session.driver.measure(PROBLEM, further).ok  # no plan has this pair
    assert [one for one in sent if one != "run"] == [PROBLEM.id, OTHER.id, PROBLEM.id]
    table = session.close()
    assert set(table["problem"]) == {PROBLEM.id}
    assert set(table["status"]) == {"ok"}


def test_kernels_run_as_their_binaries_arrive_and_the_next_problem_begins_meanwhile(
    open_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    late, built = Future[BuildResult](), EvilTarget.build
    monkeypatch.setattr(
        EvilTarget, "build", lambda self, kernel: late if kernel == KERNELS[1] else built(self, kernel)
    )
    session = open_session()
    ran: list[int] = []

    def arrive(builds: Builds, limit_s: float) -> None:
        """When the device has nothing left to do."""
        if limit_s and not late.done():
            ran.append(
                sum(1 for one in (PROBLEM, OTHER) for _ in RunLog(session.run, "reader").known(one.id))
            )
            late.set_result(built(session.target, KERNELS[1]).result())

    monkeypatch.setattr(Builds, "wait", arrive)
    assert session.driver.measure(PROBLEM, KERNELS[1]).ok
    assert ran == [4], "both other kernels on both problems"
    session.driver.wait()
    table = session.close()
    assert rounds(table) == {0: 6, 1: 6}
    assert table["build_wait_ms"].max() > 0


def test_a_worker_that_dies_while_it_prepares_the_next_problem_is_replaced(
    open_session: Callable[..., Session],
) -> None:
    session = open_session()
    for kernel in KERNELS:
        session.driver.measure(PROBLEM, kernel)
    pid = session.supervisor.worker_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert all(session.driver.measure(OTHER, kernel).ok for kernel in KERNELS)
    assert session.supervisor.worker_pid != pid
    assert rounds(session.close()) == {0: 6, 1: 6}


def test_a_kernel_at_which_two_sessions_have_died_is_not_run_again(
    open_session: Callable[..., Session],
) -> None:
    for _ in range(2):
        attempts = open_session().supervisor.attempts
        slot = AttemptSlot(attempts.path)
        slot.load(PROBLEM.id, careful=False)
        slot.begin(KERNELS[1].name)
        os.close(attempts._fd)  # its process is killed
        attempts._fd = -1
    session = open_session()
    found = [session.driver.measure(PROBLEM, kernel) for kernel in KERNELS]
    assert [one.status for one in found] == ["ok", "crash", "ok"]
    assert found[1].detail == "the session died twice while it ran: it is not run again"
    session.close()
