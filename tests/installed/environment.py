"""New environments with the wheels of a release, and programs in them, which cannot reach the checkout.

    python -m tests.installed.environment FOLDER [EXTRA...]

builds the wheels into FOLDER/dist. FOLDER/native gets the wheel for this machine, with its dependencies and
extras from the package index; FOLDER/any gets the one for any platform, and copies of the same dependencies.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import textwrap
import venv
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tile_oracle.selector import prebuilt_library

ROOT = Path(__file__).resolve().parents[2]
PARTS_OF_THE_CHECKOUT = ("harness", "kernels", "models", "problems", "selector", "tools")
MADE = os.environ.get("TILE_ORACLE_INSTALLED")
"""The folder that this module made; tests are skipped without it."""

KINDS = {"native": prebuilt_library.platform_tag(platform.machine()), "any": "py3-none-any"}
"""Environment -> the tag of its wheel."""

NO_CHECKOUT = f"""
import sys

def refuse(event, arguments, parts={tuple(f"{ROOT / part}/" for part in PARTS_OF_THE_CHECKOUT)}):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(parts):
        raise RuntimeError(f"{{arguments[0]}} is in the checkout")

sys.addaudithook(refuse)
"""

HIDE_ZIGLANG = """
    import sys

    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "ziglang":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Absent())
"""


def wheel_of(tag: str) -> Path:
    return next((Path(MADE or "").resolve() / "dist").glob(f"*-{tag}.whl"))


def environment(kind: str) -> Path:
    return Path(MADE or "").resolve() / kind


def build_wheels(folder: Path) -> None:
    def build(machine: str) -> None:
        options = ["--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
        variables = {**os.environ, "TILE_ORACLE_WHEEL_MACHINE": machine}
        subprocess.run([sys.executable, "-m", "pip", "wheel", *options], check=True, env=variables)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(build, (*prebuilt_library.MACHINES, "")))


def install(wheel: Path, place: Path, *options: str, extras: str = "") -> None:
    venv.create(place, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-warn-script-location", *options, f"{wheel}{extras}"], check=True)
    (packages(place) / "no_checkout.py").write_text(NO_CHECKOUT)
    (packages(place) / "no_checkout.pth").write_text("import no_checkout\n")


def packages(place: Path) -> Path:
    """The environment's folder of packages."""
    return next((place / "lib").glob("python*")) / "site-packages"


def variables(place: Path, folder: Path) -> dict[str, str]:
    """The environment variables of a user with this environment, whose home is `folder`'s parent."""
    home = folder.parent
    return {
        "PATH": f"{place / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "TILE_ORACLE_CACHE": str(home / "cache"),
        "PYTHONPATH": str(folder),
    }


def command(kind: str, line: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Runs a command line in a folder, as a user with this environment."""
    words = [*shlex.split(line, comments=True), *more]
    place = environment(kind)
    if words[0] == "pytest":  # pip makes the script anew for one wheel only
        words = [str(place / "bin" / "python"), "-P", "-m", *words]
    return subprocess.run(
        words,
        cwd=folder,
        env=variables(place, folder),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def run(kind: str, program: str, folder: Path, compilers: bool = False) -> str:
    """What a Python program prints. Its cache of compiled libraries is folder/cache. Without `compilers`, no
    program on PATH and no ziglang can be found."""
    own: Mapping[str, str] = {
        "PATH": "/usr/bin:/bin" if compilers else str(folder / "nothing"),
        "TILE_ORACLE_CACHE": str(folder / "cache"),
        "HOME": str(folder),
    }
    hidden = "" if compilers else textwrap.dedent(HIDE_ZIGLANG)
    done = subprocess.run(
        [str(environment(kind) / "bin" / "python"), "-c", hidden + textwrap.dedent(program)],
        cwd=folder, env=own, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make(folder: Path, extras: str) -> None:
    build_wheels(folder / "dist")
    wheels = {kind: next((folder / "dist").glob(f"*-{tag}.whl")) for kind, tag in KINDS.items()}
    install(wheels["native"], folder / "native", "--no-compile", extras=extras)
    # Hard links; pip replaces the package itself.
    venv.create(folder / "any", with_pip=False)
    subprocess.run(
        ["cp", "-alf", f"{packages(folder / 'native')}/.", str(packages(folder / "any"))], check=True
    )
    install(wheels["any"], folder / "any", "--no-deps", "--force-reinstall", "--no-compile")


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve(), f"[{','.join(sys.argv[2:])}]" if sys.argv[2:] else "")
