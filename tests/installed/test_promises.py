"""What README, usage.md and the tutorials promise, in new environments with the wheels (`make installed`).

Only the time is less: small pools, short measurements. `make installed INSTALLED_EXTRAS="triton fleet"` runs
what is left out for its time.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.browser.conftest import Open, browser, open_page  # noqa: F401 - fixtures
from tests.docs.test_docs import GUIDE, ROOT, blocks, commands, shortly
from tests.installed.environment import KINDS, MADE, command, environment, packages
from tests.pytest_project import CLOCK_THAT_JUMPS, SHORTLY
from tile_oracle.problem_set import format_problem_set, load_problem_set

pytestmark = pytest.mark.skipif(not MADE, reason="make installed")

OPERATIONS = ("forward", "bwd_data", "bwd_weight", "gemm", "attention", "softmax", "rms_norm")
SESSION = f"--kernel-set tiny --target cpu {' '.join(SHORTLY)} --allow no-baseline,cannot-tell"
TRITON = {
    "rms_norm": "BLOCK == 1024 and num_warps == 4",
    "softmax": "BLOCK == 1024 and num_warps == 4",
    "attention": "function == 'attention_decode' and SPLITS == 4",
    "gemm": "function == 'tiles' and BLOCK_M == 64 and BLOCK_N == 64",
}
"""Operation -> a filter that leaves a few kernels."""


def data() -> Path:
    return packages(environment("native")) / "tile_oracle" / "_data"


def shipped(pattern: str) -> list[Path]:
    return sorted((data() / "models").glob(pattern)) if MADE else []


ORACLES = {path.parent.name: path.parent.parent.parent for path in shipped("*/*/*/*.parquet")}
"""Problem set with a shipped oracle -> its model's folder."""


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all folders lie. They share a cache of kernels, with those of other xdist workers, too."""
    base = tmp_path_factory.getbasetemp()
    made = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "home"
    made.mkdir(exist_ok=True)
    return made


@pytest.fixture
def folder(home: Path, request: pytest.FixtureRequest) -> Path:
    """An empty folder."""
    made = home / "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
    made.mkdir()
    return made


def works(line: str, folder: Path, *more: str, kind: str = "native", statuses: tuple[int, ...] = (0,)) -> str:
    """What a command prints, which ends with one of these statuses."""
    done = command(kind, line, folder, *more)
    assert done.returncode in statuses, f"{line}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_the_checkout_cannot_be_reached(kind: str, folder: Path) -> None:
    program = environment(kind) / "bin" / "python"
    found = works(f"{program} -c 'import tile_oracle; print(tile_oracle.__file__)'", folder, kind=kind)
    assert Path(found.strip()).is_relative_to(packages(environment(kind)))
    refused = command(kind, f"{program} -c 'open(\"{ROOT}/problems/forward_smoke.csv\")'", folder)
    assert f"{ROOT}/problems/forward_smoke.csv is in the checkout" in refused.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_the_doctor_finds_all_that_a_session_needs(kind: str, folder: Path) -> None:
    told = works("tile-oracle doctor", folder, kind=kind)
    assert "target cpu: kernels can run here" in told


def session(name: str, folder: Path, kind: str = "native") -> None:
    """A session of which every problem gets an oracle."""
    works(f"pytest --problem-set {name} {SESSION} --run-name it", folder, kind=kind)
    assert (folder / "reports" / "it" / "report.html").is_file()
    found = pd.read_parquet(folder / "reports" / "it" / "selection.parquet")
    assert list(found.problem) == [problem.id for problem in load_problem_set(name).problems]
    assert found.oracle_kernel.notna().all()
    assert not found[["kernels_build_error", "kernels_wrong", "kernels_crash", "kernels_timeout"]].any(
        axis=None
    )


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_session_on_the_cpu_measures_every_problem(operation: str, folder: Path) -> None:
    session(f"{operation}_smoke", folder)


def test_a_session_of_the_wheel_for_any_platform(folder: Path) -> None:
    session("rms_norm_smoke", folder, "any")


def triton_pool(operation: str, arch: str, folder: Path, kind: str = "native") -> None:
    """Builds a few kernels of the pool for one kind of problem."""
    one = load_problem_set(f"{operation}_smoke").problems[:1]
    (folder / "one.csv").write_text(format_problem_set(one, [""], "a test's"))
    line = f"tile-oracle build --kernels triton --problem-set one.csv --arch {arch} -o built"
    works(line, folder, "--kernel-filter", TRITON[operation], kind=kind)
    assert list((folder / "built").rglob("*.zip"))


@pytest.mark.parametrize("arch", ["gfx950", "sm_90"])
@pytest.mark.parametrize("operation", TRITON)
def test_the_shipped_triton_kernels_compile(operation: str, arch: str, folder: Path) -> None:
    triton_pool(operation, arch, folder)


def test_the_shipped_triton_kernels_compile_from_the_wheel_for_any_platform(folder: Path) -> None:
    triton_pool("rms_norm", "gfx950", folder, "any")


def test_a_file_of_triton_kernels_compiles(folder: Path) -> None:
    shutil.copy(ROOT / "examples" / "own_triton_kernel" / "my_kernels.py", folder)
    works("tile-oracle build -o built --arch sm_90 --kernels my_kernels.py", folder,
          "--kernel-filter", "BLOCK_M == 64 and BLOCK_N == 64")  # fmt: skip


@pytest.mark.parametrize("arch", ["gfx950", "sm_90"])
@pytest.mark.parametrize(
    ("what", "more"), [("--direction forward", "tile_k == 128"), ("--op gemm", "tile_k == 64 and pad_m")]
)
def test_the_kernels_in_cpp_compile_for_gpus(what: str, more: str, arch: str, folder: Path) -> None:
    chosen = f"tile_m == 64 and tile_n == 64 and pipeline == 'compv4' and {more}"
    works(f"tile-oracle build -o built --arch {arch} {what}", folder, "--kernel-filter", chosen)
    assert [path for path in (folder / "built").rglob("*") if path.suffix in (".hsaco", ".cubin", ".ptx")]


@pytest.mark.parametrize("name", ORACLES)
def test_every_shipped_oracle_is_replayed(name: str, folder: Path) -> None:
    # Without a model for all of its problems a set has no baseline.
    works(f"pytest --problem-set {name} --target replay --run-name it", folder, statuses=(0, 10))
    told = json.loads((folder / "reports" / "it" / "verdict.json").read_text())
    assert told["state"] in ("passed", "no baseline")


@pytest.mark.parametrize("model", sorted(set(ORACLES.values())), ids=lambda path: path.name)
def test_every_shipped_model_picks(model: Path, folder: Path) -> None:
    name = next(name for name, owner in ORACLES.items() if owner == model)
    problems = load_problem_set(name).problems
    problem = next(problem for problem in problems if f"_{problem.dtype}_" in model.name)
    (told,) = works(
        f"tile-oracle pick --predictions {problem.id} --model {model.name} --top 1 --json", folder
    ).splitlines()
    (pick,) = json.loads(told)["picks"]
    assert pick["kernel"]


def test_a_model_is_exported_and_its_folder_builds(folder: Path) -> None:
    works(
        "tile-oracle model export grouped_conv_forward_bf16_gfx950 -o selector --kernel-set default", folder
    )
    works("make -C selector", folder)
    (text,) = (folder / "selector").glob("*.selector")
    picked = works(f"selector/build/pick {text} N=8 C=64 K=64 Hi=56 Wi=56", folder)
    assert "grouped_conv_forward_bf16_2d_" in picked


def test_the_commands_of_the_guide(folder: Path) -> None:
    (folder / "clock_that_jumps.py").write_text(CLOCK_THAT_JUMPS)
    (folder / "my_shapes.csv").write_text(blocks(GUIDE, "csv")[0])
    for line in commands(GUIDE):
        runs = sorted((folder / "reports").glob("*/measurements"), key=lambda path: path.stat().st_mtime)
        if runs:
            line = line.replace("reports/RUN", str(runs[-1].parent.relative_to(folder)))
        works(line, folder, *shortly(line))


def test_a_night(folder: Path) -> None:
    (folder / "shapes.csv").write_text("N,C,K,Hi,Wi,Y,X\n1,8,8,6,6,3,3\n1,16,16,5,5,1,1\n")
    line = "tile-oracle night --problem-set shapes.csv --target cpu --state nights --summary night.md"
    works(f"{line} -- --kernel-set tiny {' '.join(SHORTLY)} --model none", folder)
    assert "shapes" in (folder / "night.md").read_text()


def test_a_fleet_of_this_machine(folder: Path) -> None:
    works("pytest --problem-set rms_norm_smoke --kernel-set tiny --target cpu --model none --fleet=local "
          "--run-name it", folder, *SHORTLY)  # fmt: skip
    assert (folder / "reports" / "it" / "report.html").is_file()


def test_the_report_opens_in_a_browser(folder: Path, open_page: Open) -> None:  # noqa: F811
    session("softmax_smoke", folder)
    page = open_page(folder / "reports" / "it" / "report.html")
    assert "softmax_smoke" in page.title() + page.locator("h1").inner_text()
    assert page.locator("#all-problems tbody tr").count() > 1
