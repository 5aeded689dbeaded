"""One session and its workers write to a run; a takeover waits for the workers of a dead session."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tile_oracle.errors import RecordError
from tile_oracle.record import owner as owner_module
from tile_oracle.record.owner import join, name_of_owner, own
from tile_oracle.record.run import MANIFEST, Run, join_run, open_run

PURPOSE = {"target": "cpu"}

HOLDER = """
import sys
from pathlib import Path
from tile_oracle.record.owner import join, name_of_owner
from tile_oracle.record.run import MANIFEST, open_run

reports, what = Path(sys.argv[1]), sys.argv[2]
if what == "own":
    run = open_run(reports, {"target": "cpu"}, stem="s", name="mine", resume=True)
else:
    lock = join(reports / "mine", MANIFEST, what)
print(name_of_owner(), flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process(reports: Path, what: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that owns the run `mine` ("own"), or is a worker of the named owner; and its name."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, reports, what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, line_of(process.stdout)
    finally:
        process.kill()
        process.communicate()


def line_of(pipe: IO[str] | None) -> str:
    return pipe.readline().strip()


def open_mine(reports: Path) -> Run:
    return open_run(reports, PURPOSE, stem="s", name="mine", resume=True)


def test_a_second_session_gets_one_line_that_names_the_first(tmp_path: Path) -> None:
    with another_process(tmp_path, "own") as (process, _):
        with pytest.raises(RecordError) as caught:
            open_mine(tmp_path)
        assert f"mine is in use by another session (process {process.pid}): wait until it ends" in str(
            caught.value
        )
        assert "\n" not in str(caught.value)
    assert open_mine(tmp_path).resumed, "the kernel takes the lock from the dead"


def test_a_process_may_reopen_and_release_its_run(tmp_path: Path) -> None:
    first = open_mine(tmp_path)
    again = open_mine(tmp_path)
    assert again.lock is first.lock
    first.lock.release()
    with another_process(tmp_path, "own") as (_, name):
        assert name


def test_a_worker_does_not_exclude_its_own_session(tmp_path: Path) -> None:
    run = open_mine(tmp_path)
    with another_process(tmp_path, name_of_owner()) as (_, name):
        assert name
        assert join_run(run.folder, name_of_owner(), resumed=True).lock is not None
        assert own(run.folder, MANIFEST) is run.lock


def test_a_takeover_waits_for_the_workers_of_the_dead_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        another_process(tmp_path, "own") as (controller, name),
        another_process(tmp_path, name) as (worker, _),
    ):
        controller.kill()
        controller.wait()
        monkeypatch.setattr(owner_module, "_LONGEST_WAIT_S", 0.2)
        with pytest.raises(
            RecordError, match=rf"workers of a session that has ended \(process {worker.pid}\)"
        ):
            open_mine(tmp_path)
        worker.kill()
        worker.wait()
        assert open_mine(tmp_path).resumed


def test_a_worker_whose_session_has_ended_does_not_write(tmp_path: Path) -> None:
    with another_process(tmp_path, "own") as (controller, name):
        controller.kill()
        controller.wait()
        with pytest.raises(RecordError, match="has ended: continue it with --resume"):
            join(tmp_path / "mine", MANIFEST, name)
