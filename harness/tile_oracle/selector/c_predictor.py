"""A C file generated from a LightGBM model against that model: `c_predictor_parity`.

rocKE ships such files (lgbm_to_c.py): one function, `double rocke_score_...(const double*)`, and a macro
`..._NUM_FEATURES` in the header beside it. The models' features need not be known here: the rows that are
compared lie at the thresholds of the trees, where a wrong comparison, constant or branch shows.
"""

from __future__ import annotations

import ctypes
import re
import tempfile
from pathlib import Path

import numpy as np

from tile_oracle.errors import ModelError
from tile_oracle.features.feature_table import Array
from tile_oracle.files.user_file import read_bytes
from tile_oracle.model.model_folder import read_booster_text
from tile_oracle.model.model_text import ModelText, read_model_text, without_footer
from tile_oracle.selector.native_library import compile_in
from tile_oracle.selector.parity import Parity

ROWS = 4096
_FUNCTION = re.compile(r"\bdouble\s+(rocke_\w*score\w*)\s*\(\s*const\s+double\s*\*")
_COUNT = re.compile(r"#\s*define\s+\w*NUM_FEATURES\s+(\d+)")
_MOST_BYTES = 1 << 28
_TOLERANCE = 1e-12
"""Sums of trees in another order."""


def c_predictor_parity(model: Path, file: Path) -> Parity:
    """Compares the raw scores of a C file with those of a model's TFLOPS trees, a folder or LightGBM's own
    file, on ROWS rows. Raises ModelError, BuildError."""
    import lightgbm as lgb

    where, text = model_text(model)
    read = read_model_text(text, str(where))
    source = "\n".join(
        _text(path) for path in (file.with_suffix(".h"), file) if path.is_file() or path == file
    )
    names = list(dict.fromkeys(_FUNCTION.findall(source)))
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise ModelError(
            f"{file}: one function double rocke_...score...(const double*) is expected, not {found}"
        )
    parity = Parity(f"{file} ({names[0]})", ROWS, problems=1, trees_only=True)
    width = len(read.feature_names)
    declared = {int(count) for count in _COUNT.findall(source)} - {width}
    if declared:
        parity.features = ROWS
        parity.firsts["feature"] = f"NUM_FEATURES is {declared.pop()}, the model has {width} features"
        return parity  # the function would read or expect other columns
    rows = rows_at_thresholds(read)
    expected = np.asarray(lgb.Booster(model_str=text).predict(rows, raw_score=True, num_threads=1))
    unit = file.resolve()
    options = ("-x", "c", "-O1", "-w", "-ffp-contract=off", "-fPIC", f"-I{unit.parent}")
    with tempfile.TemporaryDirectory() as work:
        linked = ("-shared", "-o", "predictor.so", "-lm")
        compile_in(Path(work), str(file), (str(unit),), options, linked)
        declared_as = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p)
        function = declared_as((names[0], ctypes.CDLL(f"{work}/predictor.so")))
        scores = np.array([function(row.ctypes.data) for row in rows])
    differ = ~(np.abs(scores - expected) <= _TOLERANCE * np.maximum(1.0, np.abs(expected)))
    parity.scores = int(differ.sum())
    if parity.scores:
        place = int(differ.argmax())
        shown = ", ".join(
            f"{name}={value:.17g}" for name, value in zip(read.feature_names, rows[place], strict=True)
        )
        values = f"{expected[place]:.17g} by LightGBM, {scores[place]:.17g} in C"
        parity.firsts["score"] = f"{values}, at {shown[:600]}"
    return parity


def model_text(model: Path) -> tuple[Path, str]:
    """Returns the file and text of a folder's TFLOPS model, or of LightGBM's own file. Raises ModelError."""
    if model.is_dir():
        return read_booster_text(model, "tflops")
    data = read_bytes(model, _MOST_BYTES)
    if data.startswith(b"MIO"):
        kind = data[:8].decode(errors="replace")
        raise ModelError(
            f"{model} is MIOpen's binary form {kind}: give the LightGBM text that it was made from"
        )
    return model, without_footer(data.decode("utf-8", "replace"))


def rows_at_thresholds(read: ModelText, seed: int = 0) -> Array:
    """(ROWS, features): each value is a threshold of its feature's splits or next to one; for sets of
    categories a small whole number. Some are missing (NaN) where the trees provide for that."""
    random = np.random.default_rng(seed)
    features = np.asarray(read.columns["split_feature"], dtype=np.int64)
    decisions = np.asarray(read.columns["decision_type"], dtype=np.int64)
    by_set, knows_nan = (decisions & 1) == 1, (decisions >> 2) & 3 == 2
    rows = np.zeros((ROWS, len(read.feature_names)))
    for column in range(rows.shape[1]):
        own = features == column
        at = np.unique(np.asarray(read.columns["threshold"], dtype=np.float64)[own & ~by_set])
        if (own & by_set).any():
            rows[:, column] = random.integers(0, 64, ROWS)
        elif len(at):
            rows[:, column] = np.nextafter(
                at[random.integers(0, len(at), ROWS)], random.choice([-np.inf, np.inf], ROWS)
            )
            exact = random.random(ROWS) < 0.4
            rows[exact, column] = at[random.integers(0, len(at), int(exact.sum()))]
        if (own & knows_nan).any():
            rows[random.random(ROWS) < 0.02, column] = np.nan
    return rows


def _text(path: Path) -> str:
    try:
        return read_bytes(path, _MOST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
