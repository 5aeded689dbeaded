"""`tile-oracle doctor --seal`: SHA-256 digests of the files of model folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tile_oracle.commands.arguments import argument

SEAL = argument(
    "--seal",
    "MODEL",
    "trust the files of these model folders as they are, and write their digests into train_manifest.json "
    "and into the baselines. For files changed on purpose; what writes models and oracles does it itself",
    nargs="+",
    type=Path,
)


def seal(folders: Sequence[Path]) -> int:
    """Seals the folders and says how many files each has. Raises HarnessError."""
    from tile_oracle.errors import GateError, ModelError
    from tile_oracle.files.vouched_files import seal_baseline, seal_folder
    from tile_oracle.model.store import SPEC_FILE, baseline_files, is_model_folder

    for folder in folders:
        if not is_model_folder(folder):
            raise ModelError(f"{folder} is not a model folder: it has no {SPEC_FILE}")
        files = seal_folder(folder, ModelError)
        baselines = baseline_files(folder)
        for baseline in baselines:
            seal_baseline(baseline, GateError)
        print(f"{folder}: {files} files and {len(baselines)} baselines sealed")
    return 0
