"""Defaults for the plugin's options from `[tool.tile-oracle]` in the project's pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from tile_oracle.did_you_mean import did_you_mean
from tile_oracle.errors import HarnessError

_TABLE = "tool.tile-oracle"
_NOT_DEFAULTS = ("problem-set", "oracle")
"""Options that make a pytest run a session: as defaults they would make every run of the project one."""
_PATHS = ("build-dir", "report-dir", "baseline-dir", "ck-tile")


class ProjectDefaultsError(HarnessError):
    """The table cannot be used; the message names the file and the key."""


def default_arguments(folder: Path, options: Mapping[str, bool]) -> list[str]:
    """The table's entries as command-line arguments, in the table's order; [] without a table.

    folder: pytest's rootdir. options: the plugin's options without the leading dashes, and whether they are
    flags. Relative paths are relative to the folder. Raises ProjectDefaultsError.
    """
    path = folder / "pyproject.toml"
    try:
        content = path.read_bytes()
        if b"tile-oracle" not in content:
            return []
        table = tomllib.loads(content.decode("utf-8")).get("tool", {}).get("tile-oracle", {})
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError, AttributeError):
        return []  # pytest reads the same file and has the better message
    if not isinstance(table, dict):
        raise ProjectDefaultsError(f"{path}: {_TABLE} must be a table of options")
    return [argument for key, value in table.items() for argument in _arguments(path, key, value, options)]


def _arguments(path: Path, key: str, value: object, options: Mapping[str, bool]) -> list[str]:
    where = f"{path}: [{_TABLE}] {key[:100]}"
    if key in _NOT_DEFAULTS:
        raise ProjectDefaultsError(
            f"{where} cannot be a default, because every pytest run would be a session: give --{key} on the "
            "command line"
        )
    if key not in options:
        hint = did_you_mean(key, options, "`pytest --help` lists the options of tile-oracle")
        raise ProjectDefaultsError(f"{where} is no option: {hint}")
    if options[key]:
        if not isinstance(value, bool):
            raise ProjectDefaultsError(f"{where} must be true or false, not {str(value)[:100]!r}")
        return [f"--{key}"] if value else []
    values = value if isinstance(value, list) else [value]
    if not values or not all(
        isinstance(one, str | int | float) and not isinstance(one, bool) for one in values
    ):
        raise ProjectDefaultsError(f"{where} must be a text, a number or a list of texts")
    text = ",".join(map(str, values))
    return [f"--{key}={path.parent / Path(text).expanduser() if key in _PATHS else text}"]
