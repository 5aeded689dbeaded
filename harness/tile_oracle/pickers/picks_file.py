"""Rankings from a published file of picks, for models that are not available."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tile_oracle.errors import KernelError, ModelError, first_line
from tile_oracle.files.table_file import csv_text
from tile_oracle.foreign.formats import MODEL, refusal
from tile_oracle.kernel import kernel_of_kind
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem
from tile_oracle.record.final import problem_table
from tile_oracle.record.schema import op_of

_NAMING = 3
"""Problem columns that a file must have, because without them rows would match problems by chance."""
_KERNEL_NAMES = ("kernel_name", "kernel")
_NOT_DIMENSIONS = ("problem_idx", "predicted_tflops", "rank", *_KERNEL_NAMES)


def read_picks(path: Path | str, problems: Sequence[Problem]) -> tuple[pd.DataFrame, str]:
    """Reads a CSV file of picks as rankings of these problems (problem, kernel, predicted_tflops), and a note
    on repeated rows, as in files that list a problem several times.

    The file names problems by dimensions, which may include Ho and Wo in place of the paddings. Each row is
    joined to the only problem with all of its dimensions; rows of other problems are left out. A column
    `rank` orders equal predictions. Of a repeated pair the first row counts. Raises ModelError for a file
    that cannot be read, or a row that matches several problems.
    """
    path = Path(path)
    try:
        table = pd.read_csv(io.StringIO(csv_text(path)))
    except (OSError, ValueError, pd.errors.ParserError) as error:
        raise ModelError(
            f"cannot read picks from {path}: {str(error).splitlines()[0]}{refusal(path, MODEL)}"
        ) from None
    kernel = next((name for name in _KERNEL_NAMES if name in table), None)
    if kernel is None or "predicted_tflops" not in table:
        raise ModelError(
            f"{path} is not a file of picks: it needs kernel_name and predicted_tflops" + refusal(path, MODEL)
        )
    known = problem_table(problems)
    operation = operation_named(op_of(problem.op for problem in problems))
    distinct = {problem.key: problem for problem in problems}.values()
    for name in operation.derived_columns:
        known[name] = [getattr(problem, name) for problem in distinct]
    shared = [name for name in table if name in known and name not in _NOT_DIMENSIONS]
    needed = operation.required[:_NAMING]
    if not set(needed) <= set(shared):
        raise ModelError(
            f"{path} does not name its problems: it lacks {', '.join(needed[:-1])} or {needed[-1]}"
        )
    ambiguous = known[known.duplicated(shared, keep=False)]
    try:
        joined = table.merge(known[[*shared, "problem"]], on=shared, how="inner")
        predicted = joined["predicted_tflops"].to_numpy(dtype=np.float64)
        if "rank" in joined:
            predicted = predicted - joined["rank"].to_numpy(dtype=np.float64) * 1e-9
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"{path}: a column holds an invalid number: {first_line(error)}") from None
    if joined["problem"].isin(ambiguous["problem"]).any():
        raise ModelError(f"{path}: its columns {', '.join(shared)} fit more than one of the problems")
    try:
        kinds = {problem.id: problem.kind for problem in problems}
        of_kind = list(zip(joined["problem"].map(kinds), joined[kernel].astype(str), strict=True))
        names = {pair: kernel_of_kind(*pair).name for pair in set(of_kind)}
    except KernelError as error:
        raise ModelError(f"{path}: {error}") from None
    rows = pd.DataFrame(
        {
            "problem": joined["problem"],
            "kernel": pd.Series([names[pair] for pair in of_kind], index=joined.index, dtype=object),
            "predicted_tflops": predicted,
        }
    )
    again = rows.duplicated(["problem", "kernel"])
    note = f"{again.sum():,} rows repeat a pick of an earlier problem and count once" if again.any() else ""
    return rows[~again].reset_index(drop=True), note
