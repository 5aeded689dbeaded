"""Model folders as other trainers write them: uncompressed, with few keys."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lightgbm as lgb

QUIET: dict[str, Any] = {"num_threads": 1, "verbosity": -1, "deterministic": True}
"""How to train a small model that is the same each time."""


def published(folder: Path, booster: lgb.Booster, names: Iterable[str], **spec: object) -> lgb.Booster:
    """The booster, in a folder that names its columns; of convolutions, unless the spec says otherwise."""
    folder.mkdir(exist_ok=True)
    booster.save_model(folder / "model_tflops.lgbm")
    said = {"op_type": "grouped_conv", "dtype": "bf16", "arch": "gfx950", "targets": ["tflops"], **spec}
    (folder / "feature_spec.json").write_text(json.dumps({**said, "feature_names": list(names)}))
    return booster
