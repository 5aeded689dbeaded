"""`tile-oracle model seal`: SHA-256 digests of the files of model folders."""

from __future__ import annotations

import argparse
from pathlib import Path

from tile_oracle.commands.arguments import argument

EXAMPLES = """\
examples:
  tile-oracle model seal models/mine          a folder without digests, or one changed by hand

`train`, `ship`, `oracle` and `--update-baseline` write digests themselves. This command is for files changed
on purpose. It trusts the files as they are: check them first.
"""


ABOUT = (
    "Writes the digest of every file of a model folder into its train_manifest.json, and into each of "
    "its baselines the digest of the oracle beside it. Nothing else changes."
)
ARGUMENTS = (argument("models", "MODEL", "a model folder", type=Path, nargs="+"),)


def run(args: argparse.Namespace) -> int:
    """Seals the folders and says how many files each has. Raises HarnessError."""
    from tile_oracle.errors import GateError, ModelError
    from tile_oracle.files.vouched_files import seal_baseline, seal_folder
    from tile_oracle.model.store import SPEC_FILE, baseline_files, is_model_folder

    for folder in args.models:
        if not is_model_folder(folder):
            raise ModelError(f"{folder} is not a model folder: it has no {SPEC_FILE}")
        files = seal_folder(folder, ModelError)
        baselines = baseline_files(folder)
        for baseline in baselines:
            seal_baseline(baseline, GateError)
        print(f"{folder}: {files} files and {len(baselines)} baselines sealed")
    return 0
