"""Where kernels/, problems/ and models/ are: in the checkout, or inside the installed package."""

from __future__ import annotations

from pathlib import Path

from harness.errors import HarnessError

_PACKAGE = Path(__file__).resolve().parent


def data_folder(name: str) -> Path:
    """The folder `kernels`, `problems` or `models`. An editable install uses the checkout's own."""
    for base in (_PACKAGE.parent, _PACKAGE / "_data"):
        folder = base / name
        if folder.is_dir() and (base != _PACKAGE.parent or (base / "pyproject.toml").is_file()):
            return folder
    raise HarnessError(f"the data folder {name}/ is missing from the installation: install tile-oracle again")
