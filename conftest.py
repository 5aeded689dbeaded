"""Enables the plugin from a checkout that is not installed; nothing else."""

import sys
from importlib.metadata import entry_points

_installed = any(point.name == "tile_oracle" for point in entry_points(group="pytest11"))
# Loaded already, by `-p tile_oracle.plugin`: the tests are a project's own, and this is not its conftest.
if not _installed and "tile_oracle.plugin" not in sys.modules:
    pytest_plugins = ["tile_oracle.plugin"]
