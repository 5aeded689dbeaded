"""A new virtual environment with one wheel, and programs in it that find no compiler."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import venv
from pathlib import Path

HIDE_ZIGLANG = """
    import sys

    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "ziglang":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Absent())
"""


def install(wheel: Path, place: Path) -> Path:
    """The new environment's python. The dependencies are those of this environment."""
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        str(wheel),
    ]
    subprocess.run(pip, check=True, capture_output=True)
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()
    # Plain path lines: the editable install's own .pth over there is not followed.
    folders = [folder for folder in sys.path if folder.endswith("site-packages")]
    (Path(own) / "dependencies.pth").write_text("".join(f"{folder}\n" for folder in folders))
    return python


def run(python: Path, program: str, folder: Path, compilers: bool = False) -> str:
    """What a program prints. Its cache of compiled libraries is folder/cache. Without `compilers`, no program
    on PATH and no ziglang can be found."""
    hidden = "" if compilers else textwrap.dedent(HIDE_ZIGLANG)
    path = "/usr/bin:/bin" if compilers else str(folder / "nothing")
    environment = {"PATH": path, "TILE_ORACLE_CACHE": str(folder / "cache"), "HOME": str(folder)}
    done = subprocess.run(
        [str(python), "-c", hidden + textwrap.dedent(program)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
