"""Python's switch that removes docstrings."""

from __future__ import annotations

import sys

from tile_oracle.errors import HarnessError


def refuse_missing_docstrings() -> None:
    """Raises HarnessError where Python has left docstrings out: LightGBM cannot be imported without them."""
    if sys.flags.optimize > 1:
        raise HarnessError(
            "PYTHONOPTIMIZE=2 (or python -OO) removes docstrings, without which LightGBM cannot be imported: "
            "unset PYTHONOPTIMIZE"
        )
