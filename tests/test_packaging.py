"""The wheel is complete: it works away from the checkout, in a new environment."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import textwrap
import venv
import zipfile
from pathlib import Path

import pytest

from tests.processes import run_python

ROOT = Path(__file__).resolve().parent.parent


NOT_IN_THE_WHEEL = ("/training.parquet", "/out_of_fold.parquet")
"""Files of the shipped models that only a checkout has."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new environment with the wheel; the dependencies are this environment's."""
    place = tmp_path_factory.mktemp("installed")
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)],
        check=True,
        capture_output=True,
    )
    own = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    # A plain path line: the editable install's own .pth over there is not followed.
    (Path(own) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


def run(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{installed}{os.pathsep}{os.environ['PATH']}"}
    for name in ("PYTHONPATH", "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    return subprocess.run(
        [str(installed / words[0]), *words[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_the_wheel_holds_code_kernels_problems_and_models(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("kernels", "problems", "models", "selector"):
        files = {str(p.relative_to(ROOT)) for p in (ROOT / folder).rglob("*") if p.is_file()}
        files = {name for name in files if "__pycache__" not in name and "/out-of-fold/" not in name}
        files = {name for name in files if not name.endswith(NOT_IN_THE_WHEEL)}
        assert files
        assert {f"tile_oracle/_data/{name}" for name in files} <= names
    assert {"tile_oracle/plugin.py", "tile_oracle/py.typed", "tile_oracle/suite/test_kernels.py"} <= names
    # The training data of shipped models are only needed to train them again, from a checkout.
    assert not [name for name in names if name.endswith(NOT_IN_THE_WHEEL)]
    assert not [name for name in names if name.startswith(("tools/", "tests/", "reports/", "benchmarks/"))]


@pytest.mark.slow
def test_an_installed_plugin_measures_away_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    where = run(installed, tmp_path, "python", "-c", "import tile_oracle; print(tile_oracle.__file__)").stdout
    assert str(installed.parent) in where
    done = run(
        installed,
        tmp_path,
        "python",
        "-m",
        "pytest",
        "--problem-set=forward_smoke",
        "--kernel-set=tiny",
        "--kernel-budget=2ms",
        "-k=c64-k256-i56x56 and basic_v1",
        "--allow=no-baseline,incomplete,nothing-judged",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tile_oracle" not in done.stderr
    assert list((tmp_path / "reports").glob("forward_smoke-*/measurements/*.parquet"))


@pytest.mark.slow
def test_the_command_is_installed(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "tile-oracle", "problems")
    assert done.returncode == 0
    assert "forward_validation_300" in done.stdout


@pytest.mark.slow
def test_a_checkout_s_demo_needs_nothing_that_only_tests_need() -> None:
    """`make demo` installs no more than users have, and pytest loads the conftest files of tests/ as well."""
    program = """
        import sys
        import pytest

        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "hypothesis":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, Absent())
        sys.exit(pytest.main(sys.argv[1:]))
    """
    asked = ("--problem-set", "forward_smoke", "--collect-only", "-q", "--model", "none")
    plain = ("-p", "no:hypothesispytest", "-p", "no:cacheprovider")
    done = run_python("-c", textwrap.dedent(program), *asked, *plain, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "240 tests collected" in done.stdout
