"""Locates kernels/, problems/, models/ and selector/: in the checkout or inside the installed package."""

from __future__ import annotations

from pathlib import Path

from tile_oracle.errors import HarnessError

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parent.parent


def data_folder(name: str) -> Path:
    """Returns the folder of that name; an editable install uses the checkout's. Raises HarnessError if it is
    missing."""
    for base in (_CHECKOUT, _PACKAGE / "_data"):
        folder = base / name
        if folder.is_dir() and (base != _CHECKOUT or (base / "pyproject.toml").is_file()):
            return folder
    raise HarnessError(f"the data folder {name}/ is missing from the installation: install tile-oracle again")
