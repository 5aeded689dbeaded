#!/usr/bin/env python3
"""Puts by what it takes to compile CK Tile's kernels for gfx950 without ROCm: public headers from packages.

    python .ci/ck_tile_headers.py [FOLDER]

FOLDER: TILE_ORACLE_HIP_HEADERS, else hip-headers in tile-oracle's cache. It then holds

    include/hip/...   HIP's headers                      (Debian's libamdhip64-dev)
    wrap/...          clang's wrapper headers for HIP    (Debian's libclang-common-19-dev)
    ockl.bc           the device library                 (Debian's rocm-device-libs)
    ck-newer/...      CK Tile of November 2025           (amd-aiter's source package)
    ck/include/...    CK Tile of mid 2025                (flash-attn's source package)
    ck-older/...      CK Tile of early 2025, which has no grouped convolution yet
    made.txt          what is in here; written last, so a folder with it is complete

It needs pip and apt-get (no root) and changes nothing outside FOLDER. Exit status: 0 the folder is there, 3 a
package could not be had (no network, no apt-get): then the reason is on standard error.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCES = {
    "ck-newer": ("amd-aiter", "0.1.7.post2.dev18", "/aiter_meta/3rdparty/composable_kernel"),
    "ck": ("flash-attn", "2.8.3.post2", "/csrc/composable_kernel"),
    "ck-older": ("flash-attn", "2.8.0.post2", "/csrc/composable_kernel"),
}
"""Folder -> the source package that it is taken from, its version, and where in it Composable Kernel lies."""
DEBIAN = ("libamdhip64-dev", "libclang-common-19-dev", "rocm-device-libs")
PIP = (sys.executable, "-m", "pip")
UNREACHABLE = 3

_KEPT = ("/include/ck_tile/", "/include/ck/tensor_operation/gpu/device/impl/device_grouped_conv")
_TIMEOUT_S = 300
_BACKEND = """\
import email
import os
import shutil


class __legacy__:
    @staticmethod
    def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
        with open("PKG-INFO", encoding="utf-8") as file:
            said = email.message_from_file(file)
        name = said["Name"].replace("-", "_") + "-" + said["Version"] + ".dist-info"
        os.mkdir(os.path.join(metadata_directory, name))
        shutil.copy("PKG-INFO", os.path.join(metadata_directory, name, "METADATA"))
        return name
"""
"""Stands in for setuptools. pip asks a source package for its metadata before it hands the archive out; those
that are wanted import torch or look for ROCm to answer, while the answer lies in the archive."""


class CannotBeHad(Exception):
    """A package could not be had; the message says which and what was said."""


def default_folder() -> Path:
    """As tile_oracle.compiling.ck_tile.toolchain.prepared_folder; runs without the package, too."""
    if os.environ.get("TILE_ORACLE_HIP_HEADERS"):
        return Path(os.environ["TILE_ORACLE_HIP_HEADERS"]).absolute()
    if os.environ.get("TILE_ORACLE_CACHE"):
        return Path(os.environ["TILE_ORACLE_CACHE"]).absolute() / "hip-headers"
    base = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return cache / "tile-oracle" / "hip-headers"


def recipe() -> str:
    """What a folder of this script says it holds."""
    packages = [f"{package} {version} -> {folder}" for folder, (package, version, _) in SOURCES.items()]
    own = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    return "\n".join([*packages, *DEBIAN, f"made by ck_tile_headers.py {own}", ""])


def run(what: str, command: Sequence[str], folder: Path, **environment: str) -> None:
    """Runs a program in a folder. Raises CannotBeHad."""
    try:
        subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            check=True,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except FileNotFoundError:
        raise CannotBeHad(f"{what}: there is no {command[0]}") from None
    except subprocess.TimeoutExpired:
        raise CannotBeHad(f"{what}: no answer within {_TIMEOUT_S} s") from None
    except subprocess.CalledProcessError as failed:
        said = [line.strip() for line in (failed.stderr or failed.stdout).splitlines() if line.strip()]
        raise CannotBeHad(f"{what}: {' / '.join(said[-2:])[:300]}") from None


def fetch_ck_tile(work: Path, target: Path) -> None:
    """The headers of Composable Kernel, out of source packages. Nothing of the packages is run."""
    backend = work / "backend" / "setuptools"
    backend.mkdir(parents=True)
    (backend / "__init__.py").write_text("")
    (backend / "build_meta.py").write_text(_BACKEND)
    for folder, (package, version, below) in SOURCES.items():
        print(f"{package} {version} ...", file=sys.stderr, flush=True)
        alone = ("--no-deps", "--no-build-isolation", "--use-pep517", "--no-binary", package)
        quiet = ("--quiet", "--disable-pip-version-check")
        run(
            f"the source package of {package} {version}",
            [*PIP, "download", *quiet, *alone, f"{package}=={version}", "-d", str(work / folder)],
            work,
            PYTHONPATH=str(backend.parent),
        )
        archive = next(iter(sorted((work / folder).glob("*.tar.gz"))), None)
        if archive is None:
            raise CannotBeHad(f"the source package of {package} {version}: pip left no archive")
        unpack(archive, below, target / folder)


def unpack(archive: Path, below: str, target: Path) -> None:
    """The headers that are needed of an archive, without the path up to `below`."""
    with tarfile.open(archive) as tar:
        for member in tar:
            _, found, rest = member.name.partition(below)
            if found and member.isfile() and rest.startswith(_KEPT):
                member.name = rest.lstrip("/")
                if hasattr(tarfile, "data_filter"):
                    tar.extract(member, target, filter="data")
                elif (target / member.name).resolve().is_relative_to(target.resolve()):
                    tar.extract(member, target)  # Python before 3.11.4, as in Debian 12; it is a plain file
                else:
                    raise CannotBeHad(f"{archive.name} has a file out of its folder: {member.name}")


def fetch_hip(work: Path, target: Path) -> None:
    """HIP's and clang's headers and the device library, out of Debian's packages."""
    folder = work / "debian"
    folder.mkdir()
    print("HIP's headers ...", file=sys.stderr, flush=True)
    run("Debian's packages of HIP's headers", ["apt-get", "download", *DEBIAN], folder)
    for package in sorted(folder.glob("*.deb")):
        run(package.name, ["dpkg", "-x", str(package), "root"], folder)
    root = folder / "root" / "usr"
    shutil.copytree(root / "include", target / "include")
    clang = next(iter(sorted((root / "lib").glob("llvm-*/lib/clang/*/include"))), None)
    ockl = next(iter(sorted((root / "lib").rglob("ockl.bc"))), None)
    if clang is None or ockl is None:
        raise CannotBeHad("Debian's packages of HIP's headers: they hold other files than they did")
    wrap = target / "wrap"
    (wrap / "include").mkdir(parents=True)
    for pattern in ("__clang_hip_*.h", "__clang_cuda_*.h"):
        for header in clang.glob(pattern):
            shutil.copy(header, wrap)
    shutil.copytree(clang / "cuda_wrappers", wrap / "cuda_wrappers")
    # clang's own wrapper includes <include/cuda_wrappers/...>.
    (wrap / "include" / "cuda_wrappers").symlink_to("../cuda_wrappers")
    shutil.copy(ockl, target)


def main(arguments: Sequence[str]) -> int:
    """Makes the folder unless it is there. Returns the exit status."""
    target = Path(arguments[0]).absolute() if arguments else default_folder()
    made = target / "made.txt"
    if made.is_file() and made.read_text() == recipe():
        print(target)
        return 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hip-headers-", dir=target.parent) as name:
        work = Path(name)
        fresh = work / "fresh"
        fresh.mkdir()
        try:
            fetch_hip(work, fresh)
            fetch_ck_tile(work, fresh)
        except CannotBeHad as error:
            print(f"CK Tile's headers cannot be put by: {error}", file=sys.stderr)
            return UNREACHABLE
        (fresh / "made.txt").write_text(recipe())
        if target.exists():
            target.rename(work / "old")
        fresh.rename(target)
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
