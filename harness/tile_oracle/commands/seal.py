"""`tile-oracle model seal`: SHA-256 digests of the files of model folders."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tile_oracle.commands.arguments import argument, flag

EXAMPLES = """\
examples:
  tile-oracle model seal models/mine          a folder without digests, or one changed by hand
  tile-oracle model seal --pack models/mine   the same trees in smaller files

`train`, `study`, `ship`, `oracle` and `--update-baseline` write digests themselves. This command is for
folders of older versions and for files changed on purpose. It trusts the files as they are: check them first.
"""


ABOUT = (
    "Writes the digest of every file of a model folder into its train_manifest.json, and into each of "
    "its baselines the digest of the oracle beside it. A manifest of an older version also gets the "
    "list of training problems, from training.parquet or out_of_fold.parquet, and the compilers, devices "
    "and drivers of its training.parquet. Nothing else changes."
)
ARGUMENTS = (
    flag(
        "--pack",
        "first store the same trees in files a fifth smaller: .lgbm.gz become .lgbm.zst, which only "
        "tile-oracle reads",
    ),
    argument("models", "MODEL", "a model folder", type=Path, nargs="+"),
)


def run(args: argparse.Namespace) -> int:
    """Seals the folders and says how many files each has. Raises HarnessError."""
    from tile_oracle.errors import GateError, ModelError
    from tile_oracle.files.vouched_files import seal_baseline, seal_folder
    from tile_oracle.model.model_folder import repack
    from tile_oracle.model.store import SPEC_FILE, baseline_files, is_model_folder

    for folder in args.models:
        if not is_model_folder(folder):
            raise ModelError(f"{folder} is not a model folder: it has no {SPEC_FILE}")
        if args.pack:
            repack(folder)
        files = seal_folder(folder, ModelError, partial(_complete, folder))
        baselines = baseline_files(folder)
        for baseline in baselines:
            seal_baseline(baseline, GateError)
        print(f"{folder}: {files} files and {len(baselines)} baselines sealed")
    return 0


def _complete(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with what those of older versions lack."""
    from tile_oracle.model.made_by import with_made_by
    from tile_oracle.training.trained_on import with_problems

    return with_made_by(folder, with_problems(folder, manifest))
