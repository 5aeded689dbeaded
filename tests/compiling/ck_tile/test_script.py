"""The script that downloads public headers: without packages, and when run a second time."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.processes import run_python
from tile_oracle.compiling.ck_tile.toolchain import prepared_folder

SCRIPT = Path(__file__).parents[3] / ".ci" / "ck_tile_headers.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ck_tile_headers", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_python(str(SCRIPT), *arguments, env=environment)


def test_without_packages_it_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    done = run(str(tmp_path / "headers"), PATH=str(tmp_path))
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        "CK Tile's headers cannot be put by: Debian's packages of HIP's headers: there is no apt-get"
    )
    assert list(tmp_path.iterdir()) == []


def test_existing_packages_are_not_fetched_again(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "made.txt").write_text(script.recipe())
    done = run(TILE_ORACLE_HIP_HEADERS=str(tmp_path), PATH="")
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path))
    (tmp_path / "made.txt").write_text("another recipe\n")
    assert run(TILE_ORACLE_HIP_HEADERS=str(tmp_path), PATH="").returncode == 3
    # The old folder stays until the new one is complete.
    assert (tmp_path / "made.txt").exists()


def test_it_looks_where_the_toolchain_looks(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ("TILE_ORACLE_HIP_HEADERS", "TILE_ORACLE_CACHE", "XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for given in ((), names[2:], names[1:], names):
        for name in names:
            monkeypatch.delenv(name, raising=False)
        for name in given:
            monkeypatch.setenv(name, str(tmp_path / name))
        assert script.default_folder() == prepared_folder(os.environ)


@pytest.mark.slow
def test_nothing_of_a_source_package_is_run(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """pip downloads the archive of a package whose setup.py could not run."""
    package = tmp_path / "some_package-1.0"
    header = package / "inner" / "ck" / "include" / "ck_tile" / "core.hpp"
    header.parent.mkdir(parents=True)
    header.write_text("#pragma once\n")
    (package / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: some-package\nVersion: 1.0\n")
    (package / "setup.py").write_text("raise SystemExit('there is no ROCm')\n")
    with tarfile.open(tmp_path / "some_package-1.0.tar.gz", "w:gz") as tar:
        tar.add(package, package.name)
    monkeypatch.setattr(script, "SOURCES", {"ck-new": ("some-package", "1.0", "/inner/ck")})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    (tmp_path / "work").mkdir()
    script.fetch_ck_tile(tmp_path / "work", tmp_path / "out")
    assert (tmp_path / "out" / "ck-new" / "include" / "ck_tile" / "core.hpp").is_file()
    monkeypatch.setattr(script, "SOURCES", {"ck-new": ("some-package", "2.0", "/inner/ck")})
    (tmp_path / "again").mkdir()
    with pytest.raises(script.CannotBeHad, match=r"source package of some-package 2\.0: .*2\.0"):
        script.fetch_ck_tile(tmp_path / "again", tmp_path / "out")


def test_only_the_headers_that_are_needed_are_unpacked(script: ModuleType, tmp_path: Path) -> None:
    below = "package-1/csrc/composable_kernel/include"
    wanted = ("ck_tile/core.hpp", "ck/tensor_operation/gpu/device/impl/device_grouped_conv_fwd.hpp")
    archive = tmp_path / "package.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in (*wanted, "ck/other.hpp", "ck_tile/../../../../outside.hpp"):
            file = tmp_path / "file"
            file.write_text(name)
            tar.add(file, f"{below}/{name}")
    # Python before 3.11.4 has no filters.
    with pytest.raises(getattr(tarfile, "FilterError", script.CannotBeHad)):
        script.unpack(archive, "/csrc/composable_kernel", tmp_path / "out")
    found = [path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.hpp")]
    assert sorted(found) == sorted(f"include/{name}" for name in wanted)
    assert not (tmp_path / "outside.hpp").exists()
