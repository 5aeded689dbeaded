"""Shipped models, what is recorded in their folders, and what their picks reach there."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tile_oracle.commands.evaluate import picker_for, rank_recorded
from tile_oracle.files.data_files import data_folder
from tile_oracle.judge.baseline import load_baseline
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.selection import select
from tile_oracle.record.dataset import read_rows
from tile_oracle.record.final import final_measurements, problems_of
from tile_oracle.record.merge import merge_records


def shipped(name: str) -> Path:
    """The folder of a shipped model."""
    return data_folder("models") / name


def recorded(*paths: Path) -> pd.DataFrame:
    """The records of a model's own files, merged."""
    return merge_records([read_rows(path) for path in paths])[0]


def selection_of(folder: Path, records: pd.DataFrame) -> pd.DataFrame:
    """The model's picks among what was recorded, one row a problem."""
    final = final_measurements(records)
    rankings = rank_recorded(picker_for(str(folder), final), final)[0]
    return select(problems_of(final), final, find_oracles(final), rankings)


def accepted_percent(folder: Path, problem_set: str) -> list[float]:
    """The efficiencies in the model's baseline of a problem set."""
    (path,) = folder.glob(f"*/{problem_set}/*.json")
    return [100 * value for value in load_baseline(path).efficiencies.values() if value is not None]
