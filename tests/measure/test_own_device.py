"""`measure(problem, kernel)`: each pair once, in its problem's sweep, recorded, and reused on resume."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from evil_target import evil_kernel

from tests.measure.own_driver import OTHER, PROBLEM, SETTINGS, OwnSession
from tile_oracle.compiling.builder import Builder
from tile_oracle.errors import RecordError
from tile_oracle.measure.commands import Load
from tile_oracle.measure.live_worker import LiveWorker
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.problem import problem_from_row
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


@pytest.mark.slow
def test_each_pair_is_measured_once_and_the_leaders_again(open_session: Callable[..., Session]) -> None:
    session = open_session()
    first = [session.driver.measure(PROBLEM, kernel) for kernel in KERNELS]
    again = [session.driver.measure(PROBLEM, kernel) for kernel in reversed(KERNELS)]
    assert first == again[::-1]
    assert [m.kernel for m in first] == KERNELS
    assert all(m.ok and not m.resumed and m.sample_ms == () for m in first)
    assert len(session.rows()) == 6
    table = session.close()
    assert rounds(table) == {0: 3, 1: 3}
    row = table[(table["kernel"] == KERNELS[1].name) & (table["round"] == 0)].iloc[0]
    assert row["latency_ms"] == first[1].latency_ms
    assert row["tflops"] == pytest.approx(PROBLEM.flops / first[1].latency_ms / 1e9)
    assert (row["run"], row["target"], row["arch"], row["seed"]) == ("mine", "cpu", "cpu", SETTINGS.seed)
    assert row["implementation"] == "native"
    assert row["toolchain"].startswith("clang ")
    assert "-O3" in row["flags"].split()
    assert len(row["source_hash"]) == 64
    assert row["binary_bytes"] > 1000
    assert row["device"] == session.supervisor.device.name  # type: ignore[union-attr]


def test_moving_to_another_problem_finishes_the_current_one(open_session: Callable[..., Session]) -> None:
    session = open_session()
    session.driver.measure(PROBLEM, KERNELS[0])
    assert len(session.rows()) < 6
    session.driver.measure(OTHER, KERNELS[0])
    assert len(session.rows()) == 6
    assert session.driver.measure(PROBLEM, KERNELS[1]).ok  # done by then
    session.driver.wait()
    assert rounds(session.close()) == {0: 6, 1: 6}


@pytest.mark.slow
def test_a_resumed_run_measures_only_missing_pairs(open_session: Callable[..., Session]) -> None:
    session = open_session(plan=[*KERNELS[:2], evil_kernel("wrong")])
    before = {k: session.driver.measure(PROBLEM, k) for k in (*KERNELS[:2], evil_kernel("wrong"))}
    session.close()
    resumed = open_session(plan=[*KERNELS, evil_kernel("wrong")])
    for kernel, measurement in before.items():
        known = resumed.driver.measure(PROBLEM, kernel)
        assert known.resumed
        for name in ("status", "detail", "round", "samples", "check", "check_points"):
            assert getattr(known, name) == getattr(measurement, name)
        for name in ("latency_ms", "latency_min_ms", "spread", "tflops"):
            assert getattr(known, name) == pytest.approx(getattr(measurement, name), nan_ok=True)
    assert not resumed.driver.measure(PROBLEM, KERNELS[2]).resumed
    assert rounds(resumed.close()) == {0: 4, 1: 3}


@pytest.mark.slow
def test_a_result_that_cannot_be_recorded_is_an_error_and_is_measured_again(
    open_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session()

    def refuse(lines: object) -> None:
        raise RecordError("cannot record: the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(session.log, "append_lines", refuse)
        for _ in range(2):  # what could not be recorded is no result
            with pytest.raises(RecordError, match="the disk is full"):
                session.driver.measure(PROBLEM, KERNELS[0])
    assert session.close().empty
    resumed = open_session()
    assert [resumed.driver.measure(PROBLEM, kernel).resumed for kernel in KERNELS] == [False] * 3
    assert rounds(resumed.close()) == {0: 3, 1: 3}


@pytest.mark.slow
def test_statuses_other_than_ok_are_recorded_with_their_detail_and_no_times(
    open_session: Callable[..., Session],
) -> None:
    kernels = [evil_kernel(mode) for mode in ("segfault", "wrong", "refuses", "compile_error")]
    session = open_session(plan=[KERNELS[0], *kernels])
    for kernel in kernels:
        session.driver.measure(PROBLEM, kernel)
    table = session.close().set_index("kernel")
    failed = table.loc[[kernel.name for kernel in kernels]]
    assert failed["status"].tolist() == ["crash", "wrong", "unsupported", "build_error"]
    assert (failed["detail"].str.len() > 10).all()
    assert failed[["latency_ms", "latency_min_ms", "spread", "tflops"]].isna().all(axis=None)
    assert (failed["samples"] == 0).all()
    assert failed["source_hash"].notna().tolist()[:2] == [True, True]
    assert failed["source_hash"].isna().tolist()[3]
    assert failed["toolchain"].iloc[[0, 1, 3]].str.startswith("clang ").all()


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


def test_a_problem_that_was_prepared_and_never_asked_for_disturbs_no_other(
    open_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, sent = open_session(), commands_of(monkeypatch)
    for kernel in KERNELS:
        session.driver.measure(PROBLEM, kernel)
    assert sent[-1] == OTHER.id
    further = evil_kernel("good", 4)
    assert session.driver.measure(PROBLEM, further).ok  # no plan has this pair
    assert [one for one in sent if one != "run"] == [PROBLEM.id, OTHER.id, PROBLEM.id]
    table = session.close()
    assert set(table["problem"]) == {PROBLEM.id}
    assert set(table["status"]) == {"ok"}


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
