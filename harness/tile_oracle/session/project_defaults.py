"""Defaults for the plugin's options from `[tool.tile-oracle]` in the project's pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tile_oracle.errors import HarnessError
from tile_oracle.session.options import OPTIONS
from tile_oracle.terminal.did_you_mean import did_you_mean

_TABLE = "tool.tile-oracle"


def default_arguments(folder: Path) -> list[str]:
    """Returns the table's entries as command-line arguments, in the table's order; [] without a table.

    folder: pytest's rootdir. Relative paths are relative to it. Raises HarnessError.
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
        raise HarnessError(f"{path}: {_TABLE} must be a table of options")
    return [argument for key, value in table.items() for argument in _arguments(path, key, value)]


def _arguments(path: Path, key: str, value: object) -> list[str]:
    where = f"{path}: [{_TABLE}] {key[:100]}"
    if key not in OPTIONS:
        hint = did_you_mean(key, OPTIONS, "`pytest --help` lists the options of tile-oracle")
        raise HarnessError(f"{where} is no option: {hint}")
    option = OPTIONS[key]
    if option.opens:
        raise HarnessError(
            f"{where} cannot be a default, because every pytest run would be a session: give --{key} on the "
            "command line"
        )
    if option.is_flag:
        if not isinstance(value, bool):
            raise HarnessError(f"{where} must be true or false, not {str(value)[:100]!r}")
        return [f"--{key}"] if value else []
    values = value if isinstance(value, list) else [value]
    if not values or not all(
        isinstance(one, str | int | float) and not isinstance(one, bool) for one in values
    ):
        raise HarnessError(f"{where} must be a text, a number or a list of texts")
    text = ",".join(map(str, values))
    return [f"--{key}={path.parent / Path(text).expanduser() if option.is_path else text}"]
