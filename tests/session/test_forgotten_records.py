"""A replay frees the records before it writes the report, and still knows what the end of a session asks."""

from __future__ import annotations

import weakref
from pathlib import Path

import pandas as pd

from tests.made_records import make_kernels, make_problems
from tile_oracle.session.recording import Recording
from tile_oracle.session.replay_session import Replay


def test_no_copy_or_slice_keeps_the_records_alive() -> None:
    kernels = make_kernels(("compv3",))
    rows = [(problem.id, kernel.name) for problem in make_problems(2) for kernel in kernels]
    records = pd.DataFrame(rows, columns=["problem", "kernel"])
    recording = Recording((Path("a"),), "", records, "gfx950", "gfx950", "", "", "", "")
    replay = Replay(recording)
    replay.written = records
    alive = weakref.ref(records)
    del records
    replay.forget_records()
    assert alive() is None
    assert replay.written is None
    assert recording.records.empty
    assert {kernel.name for kernel in recording.kernels} == {kernel.name for kernel in kernels}
