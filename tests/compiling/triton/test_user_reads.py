"""What a file of Triton kernels reads is part of its kernels, wherever it comes from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compiling.triton.conftest import COPY, HEAD
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.triton.description import Description, describe_file
from tile_oracle.compiling.triton.kernel_source import TritonSource, shipped_file
from tile_oracle.compiling.triton.user_reads import package_of
from tile_oracle.errors import BuildError
from tile_oracle.triton.archive import read_archive

SCALED = COPY.replace("mask=rows < M), mask", "mask=rows < M) * SCALE, mask")
"""Needs a constant SCALE."""


@pytest.mark.parametrize(
    ("file", "package"),
    [
        ("/home/me/kernels.py", None),
        ("/home/me/.venv/lib/python3.11/site-packages/mine/deep/kernels.py", "site-packages/mine"),
        ("/usr/lib/python3/dist-packages/kernels.py", "dist-packages/kernels.py"),
        (json.__file__, Path(json.__file__).parents[1].name),
        (describe_file.__code__.co_filename, "tile_oracle"),
        (str(shipped_file()), None),
    ],
)
def test_a_file_belongs_to_an_installed_package_or_to_the_user(file: str, package: str | None) -> None:
    found = package_of(file)
    assert found == package if package is None else found is not None and str(found).endswith(package)


def test_whose_a_file_is_takes_no_look_at_the_environment_that_is_watched() -> None:
    """Of Python 3.13, sysconfig reads the environment, which asks in turn whose file reads it."""
    program = (
        "import os, sysconfig\n"
        "from tile_oracle.compiling.triton.user_reads import package_of\n"
        "sysconfig.get_path = sysconfig.get_paths = os.environ = None\n"
        "assert package_of(os.__file__) is not None"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def image(path: Path, folder: Path) -> bytes:
    """The code of the file's kernel, compiled."""
    source = TritonSource(describe_file(path, "sm_90"))
    with Builder("sm_90", build_dir=folder, source=source, runs_here=False) as builder:
        result = builder.submit(next(iter(source.description.units))).result()
    assert result.binary is not None, result.log
    return read_archive(result.binary.path).variants[0].launches[0].image


def names(description: Description) -> list[str]:
    return [name for name, _ in description.headers.files]


def write(path: Path, *lines: str) -> None:
    path.write_text("\n".join((HEAD, *lines, SCALED)))


@pytest.mark.slow
def test_a_json_file_beside_it_travels_and_counts(copy_file: Path, tmp_path: Path) -> None:
    write(
        copy_file,
        "import json, pathlib",
        'CONFIG = json.loads((pathlib.Path(__file__).parent / "sizes" / "scale.json").read_text())',
        'SCALE = tl.constexpr(CONFIG["scale"])',
    )
    (tmp_path / "sizes").mkdir()
    images = set()
    identities = set()
    for scale in (2, 3):
        (tmp_path / "sizes" / "scale.json").write_text(json.dumps({"scale": scale}))
        description = describe_file(copy_file, "sm_90")
        assert names(description) == ["copying.py", "sizes/scale.json"]
        identities.add(description.told.identity)
        images.add(image(copy_file, tmp_path / "cache"))
    assert (len(identities), len(images)) == (2, 2)


@pytest.mark.slow
def test_a_module_of_pythonpath_travels_with_the_files_beside_it(
    copy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "elsewhere" / "scales"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("")
    (library / "table.txt").write_text("5")
    (library / "read.py").write_text(
        "import pathlib\nSCALE = int((pathlib.Path(__file__).parent / 'table.txt').read_text())\n"
    )
    folder = tmp_path / "mine"
    folder.mkdir()
    path = folder / copy_file.name
    write(path, "from scales.read import SCALE as read", "SCALE = tl.constexpr(read)")
    with pytest.raises(BuildError, match=r"^copying\.py:5: ModuleNotFoundError: No module named 'scales'"):
        describe_file(path, "sm_90")
    monkeypatch.setenv("PYTHONPATH", str(library.parent))
    before = describe_file(path, "sm_90")
    assert names(before) == ["copying.py", "scales/__init__.py", "scales/read.py", "scales/table.txt"]
    first = image(path, tmp_path / "cache")
    (library / "table.txt").write_text("6")
    assert describe_file(path, "sm_90").told.identity != before.told.identity
    assert image(path, tmp_path / "cache") != first


@pytest.mark.slow
def test_names_that_a_package_gives_to_its_modules_and_its_metadata_are_no_obstacle(
    copy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "elsewhere" / "scales"
    (library / "new").mkdir(parents=True)
    (library / "new" / "__init__.py").write_text("SCALE = 3\n")
    (library / "__init__.py").write_text(
        "import importlib.metadata, sys\nfrom scales import new\nsys.modules['scales.old'] = new\n"
        "VERSION = importlib.metadata.version('scales')\n"
    )
    metadata = library.parent / "scales-1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: scales\nVersion: 1.0\n")
    folder = tmp_path / "mine"
    folder.mkdir()
    path = folder / copy_file.name
    write(path, "from scales.old import SCALE as read", "SCALE = tl.constexpr(read)")
    monkeypatch.setenv("PYTHONPATH", str(library.parent))
    assert names(describe_file(path, "sm_90")) == [
        "copying.py",
        "scales-1.0.dist-info/METADATA",
        "scales/__init__.py",
        "scales/new/__init__.py",
    ]
    assert image(path, tmp_path / "cache")


@pytest.mark.slow
def test_a_file_that_lies_on_pythonpath_is_not_taken_for_an_installed_module(
    copy_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(copy_file.parent))
    assert names(describe_file(copy_file, "sm_90")) == ["copying.py"]


@pytest.mark.slow
def test_files_elsewhere_and_all_variables_are_refused_but_not_its_own_files(
    copy_file: Path, tmp_path: Path
) -> None:
    write(
        copy_file,
        "import tempfile, pathlib",
        "with tempfile.TemporaryDirectory() as name:",
        "    (pathlib.Path(name) / 'one').write_text('2')",
        "    SCALE = tl.constexpr(int((pathlib.Path(name) / 'one').read_text()))",
    )
    assert names(describe_file(copy_file, "sm_90")) == ["copying.py"]
    write(copy_file, "import os", "SCALE = tl.constexpr(len(dict(os.environ)))")
    with pytest.raises(BuildError, match=r"^copying\.py:6: it reads all environment variables, and each may"):
        describe_file(copy_file, "sm_90")
    folder = tmp_path / "mine"
    folder.mkdir()
    (tmp_path / "scale.txt").write_text("2")
    path = folder / copy_file.name
    write(path, f"SCALE = tl.constexpr(int(open({str(tmp_path / 'scale.txt')!r}).read()))")
    with pytest.raises(BuildError, match=r"^copying\.py reads .*/scale\.txt, which is beside none of its"):
        describe_file(path, "sm_90")


@pytest.mark.slow
@pytest.mark.parametrize("read", ['os.environ.get("MY_SCALE", "1")', 'os.getenv("MY_SCALE") or "1"'])
def test_a_variable_that_it_reads_belongs_to_the_kernels(
    copy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    write(copy_file, "import os", f"SCALE = tl.constexpr(int({read}))")
    found: dict[str, Description] = {}
    images = set()
    for value in ("", "2", "3"):
        monkeypatch.setenv("MY_SCALE", value)
        if not value:
            monkeypatch.delenv("MY_SCALE")
        found[value] = describe_file(copy_file, "sm_90")
        images.add(image(copy_file, tmp_path / "cache"))
    assert len({one.told.identity for one in found.values()}) == len(images) == 3
    assert [one.told.environment for one in found.values()] == [{}, {"MY_SCALE": "2"}, {"MY_SCALE": "3"}]
    monkeypatch.setenv("SOMETHING_ELSE", "1")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert describe_file(copy_file, "sm_90").told.identity == found["3"].told.identity


def installed(tmp_path: Path, name: str, **modules: str) -> Path:
    """A distribution that pip has installed into a folder site-packages. Returns its package's folder."""
    project = tmp_path / f"source of {name}"
    (project / name).mkdir(parents=True)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        f'[project]\nname = "{name}"\nversion = "1"\n'
    )
    for module, text in modules.items():
        (project / name / f"{module}.py").write_text(text)
    target = tmp_path / "lib" / "site-packages"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, "--upgrade", "--target", str(target), str(project)], check=True, capture_output=True
    )
    return target / name


@pytest.mark.slow
def test_an_installed_library_of_kernels_travels_whole_and_other_packages_stay(
    copy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = "from factors import one\nfrom kernel_library.pieces import SCALE\nimport near\n"
    modules = {
        "__init__": "",
        "pieces": "import triton.language as tl\nSCALE = tl.constexpr(4)\n",
        "near": "",
        "copying": HEAD + head + SCALED.replace("SCALE, mask", "one(SCALE), mask"),
    }
    factor = "import triton\n@triton.jit\ndef one(x):\n    return x * 1\n"
    installed(tmp_path, "factors", __init__=factor)
    library = installed(tmp_path, "kernel_library", **modules)
    monkeypatch.setenv("PYTHONPATH", str(library.parent))
    path = library / "copying.py"
    before = describe_file(path, "sm_90")
    assert {name for name in names(before) if "/" not in name} == {
        "__init__.py",
        "copying.py",
        "near.py",
        "pieces.py",
    }
    assert "kernel_library/pieces.py" in names(before)
    assert not any("factors" in name or "triton" in name for name in names(before))
    # What they compute is known by Triton's hash of the code.
    (library.parent / "factors" / "__init__.py").write_text(factor.replace("x * 1", "x * 7"))
    after = describe_file(path, "sm_90")
    assert [after.unit(kernel) for kernel in after.units] != [before.unit(kernel) for kernel in before.units]


@pytest.mark.slow
def test_the_kernels_that_ship_are_the_files_of_their_folder(copy_file: Path) -> None:
    description = describe_file(shipped_file(), "gfx950")
    assert names(description) == sorted(file.name for file in shipped_file().parent.glob("*.py"))
    assert not description.told.environment
    assert not any("code" in unit or "environment" in unit for unit in description.units.values())
