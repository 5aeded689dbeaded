"""A sample of the campaign `kills`: sessions survive; lost, duplicated and leftover data is detected."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from tests.pytest_project import Project
from tools.faults.kills import Broken, Trial

FAULTS = 10


@pytest.fixture(scope="module")
def trial(make_project: Callable[[], Project], tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """A run that was killed, resumed and checked; the tests of this session share its kernels."""
    cache = Path(make_project().environment["TILE_ORACLE_CACHE"])
    trial = Trial(1, random.Random(5), tmp_path_factory.mktemp("kills") / "trial", cache, FAULTS)
    trial.go(3.0)
    return trial


@pytest.mark.slow
def test_sessions_that_are_killed_lose_and_double_nothing(trial: Trial) -> None:
    injected = sum(trial.counts[how] for how in ("killed", "stopped and killed", "stopped and continued"))
    assert 1 <= injected == FAULTS - trial.faults_left
    assert trial.counts["sessions"] >= 2
    trial.check()


@contextmanager
def kept(path: Path) -> Iterator[Path]:
    """A file that is what it was afterwards."""
    whole = path.read_bytes()
    yield path
    path.write_bytes(whole)


@pytest.mark.slow
def test_the_campaign_sees_what_it_looks_for(trial: Trial) -> None:
    trial.acknowledge()
    folder = trial.run / "measurements"
    parts = sorted(folder.glob("part-*"), key=lambda path: len(pd.read_parquet(path)))
    copy = folder / "part-main-99999.parquet"
    shutil.copy(parts[-1], copy)
    with pytest.raises(Broken, match="twice"):
        trial.check()
    copy.unlink()

    acknowledged = {key[1] for key in trial.acknowledged}
    for part in parts:
        with kept(part):
            table = pd.read_parquet(part)
            table[~table["kernel"].isin(acknowledged)].to_parquet(part)
            if len(table) and table["kernel"].isin(acknowledged).any():
                with pytest.raises(Broken, match="acknowledged rows are lost"):
                    trial.check()

    journal = folder / ".journal-main-1-00000.jsonl"
    journal.touch()
    with pytest.raises(Broken, match="left behind"):
        trial.check()
    journal.unlink()
    trial.check()
