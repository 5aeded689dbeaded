"""A small recording session to run with a faulty file layer: it records rows, resumes and writes a dataset.

As a program it is a server with all imports done: for each line of JSON on stdin it runs a session in a
forked child and answers with one line (`Answer`).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tile_oracle.errors import HarnessError
from tile_oracle.record import journal
from tile_oracle.record.dataset import load_records
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.record.journal import left_unsealed
from tile_oracle.record.run import RunLog, open_run
from tools.faults.file_layer import FileLayer
from tools.faults.flippable.records import some_rows

ROWS = 10
_SEAL_ROWS = 4
"""Few enough that a session seals more than once."""


@dataclass
class Answer:
    """The outcome of a session.

    acknowledged: [problem, kernel, latency in ms] of each recorded row. error: the line that a user would
    see, "" for none. traceback: an exception that is not a HarnessError. unsealed: whether rows were left in
    a journal. calls: number of file calls. failed: name of the call that was made to fail.
    """

    acknowledged: list[list[Any]] = field(default_factory=list)
    error: str = ""
    traceback: str = ""
    unsealed: bool = False
    calls: int = 0
    failed: str = ""


def session(reports: Path, number: int, acknowledged: list[list[Any]]) -> bool:
    """Opens or resumes the run `small`, records the missing rows, merges. Returns whether rows were left in
    journals.

    number: of the session; it makes its values differ from those of other sessions. Raises HarnessError.
    """
    run = open_run(reports, {"target": "cpu"}, stem="s", name="small", resume=True)
    log = RunLog(run, f"s{number}")
    try:
        for row in some_rows(ROWS, "small", seed=number):
            known = {one["kernel"] for one in log.known(row["problem"])}
            if row["kernel"] in known:
                continue
            log.append(row)
            acknowledged.append([row["problem"], row["kernel"], row["latency_ms"]])
    finally:
        log.close()
    write_dataset(load_records(run.folder), run.folder / "whole.parquet")
    return bool(left_unsealed(run.measurements))


def _answer(layer: FileLayer, asked: dict[str, Any]) -> Answer:
    answer = Answer()
    folder = Path(asked["folder"])
    layer.arm(folder, asked["at"], asked["errno"], every_later=asked["every_later"])
    try:
        answer.unsealed = session(folder / "reports", asked["number"], answer.acknowledged)
    except HarnessError as error:
        answer.error = str(error)
    except BaseException as error:
        answer.traceback = f"{type(error).__name__}: {error}"
    answer.calls, answer.failed = layer.calls, layer.failed
    layer.arm(folder, 0, 0)
    return answer


def _in_child(work: Callable[[], Answer]) -> Answer:
    """Runs the work in a forked child, so that its memory and locks are gone afterwards."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.close(read_end)
        status = 1
        try:
            with os.fdopen(write_end, "w") as pipe:
                json.dump(asdict(work()), pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return Answer(**json.loads(text)) if text else Answer(traceback=f"the session died, status {status}")


def serve() -> None:
    """Runs a session for each line of stdin."""
    journal._SEAL_ROWS = _SEAL_ROWS
    with tempfile.TemporaryDirectory() as scratch:
        session(Path(scratch), 1, [])  # completes late imports before the first fork
    layer = FileLayer()
    for line in sys.stdin:
        asked = json.loads(line)
        answer = _in_child(lambda asked=asked: _answer(layer, asked))  # type: ignore[misc]
        print(json.dumps(asdict(answer)), flush=True)


if __name__ == "__main__":
    serve()
