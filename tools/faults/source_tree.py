"""How a campaign starts Python processes of this checkout, whether or not the package is installed."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from pathlib import Path

import tile_oracle

_CHECKOUT = Path(__file__).resolve().parents[2]
_PACKAGE = Path(tile_oracle.__file__).resolve().parents[1]


def search_path() -> str:
    """PYTHONPATH of a process that imports `tile_oracle` and `tools` from any working folder."""
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(_PACKAGE), str(_CHECKOUT), *map(os.path.abspath, filter(None, inherited))])


def plugin_options() -> list[str]:
    """The options that make pytest load the plugin: none where it is installed."""
    installed = any(point.name == "tile_oracle" for point in entry_points(group="pytest11"))
    return [] if installed else ["-p", "tile_oracle.plugin"]
