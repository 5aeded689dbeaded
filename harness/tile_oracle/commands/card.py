"""`tile-oracle model card`: what a model learned from, how well it picks, and what it has never seen."""

from __future__ import annotations

import argparse

from tile_oracle.commands.arguments import argument
from tile_oracle.evaluation.model_card import model_card
from tile_oracle.model.store import folder_of_model

EXAMPLES = """\
examples:
  tile-oracle model card grouped_conv_forward_bf16_sm_90       of a shipped model, as Markdown
  tile-oracle model card models/mine > models/mine/card.md

`tile-oracle model train --problem-set` writes it into the folder.
"""

ABOUT = (
    "Prints the card of a model: its measurements, devices and compilers, its figures by problem set and by "
    "kind of problem, its worst problems, and what lies outside of its training."
)
ARGUMENTS = (argument("model", "MODEL", "a model folder, or the name of a shipped model"),)


def run(args: argparse.Namespace) -> int:
    """Prints the card. Raises ModelError, GateError."""
    print(model_card(folder_of_model(args.model)), end="")
    return 0
