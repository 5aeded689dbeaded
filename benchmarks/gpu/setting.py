"""Where the benchmarks of this folder run, and whole pytest sessions with the plugin as they start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.gpu.run import load_plugin
from tile_oracle.arch import load_arch
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import Problem
from tile_oracle.problem_set import format_problem_set, load_problem_sets
from tile_oracle.record.dataset import load_records
from tile_oracle.targets.gpu_presence import amd_presence, nvidia_presence
from tile_oracle.targets.resolve import amd_targets

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
_MOST_RUNS = 1000


@dataclass(frozen=True)
class Setting:
    """target: a GPU's, or cpu for a dry run, which asserts no figure and measures little.

    kernels: a folder that `tile-oracle build` made, or None to compile. out: where runs and figures go.
    """

    target: str
    kernels: Path | None
    out: Path

    @property
    def dry(self) -> bool:
        return self.target == "cpu"

    @property
    def kernel_set(self) -> str:
        return "tiny" if self.dry else "default"


def why_no_setting() -> str:
    """Why there is nothing to run on, or ""."""
    if os.environ.get("TILE_ORACLE_FIGURES_TARGET"):
        return ""
    amd, nvidia = amd_presence(), nvidia_presence()
    return "" if amd.usable or nvidia.usable else f"{amd.why}; {nvidia.why}"


def _found() -> str:
    amd = amd_presence()
    return next(iter(amd_targets(amd)), "sm_90") if amd.usable else "sm_90"


def find_setting() -> Setting:
    """From TILE_ORACLE_FIGURES_TARGET (a dry run: cpu), _KERNELS and _OUT."""
    given = os.environ.get
    target = given("TILE_ORACLE_FIGURES_TARGET") or _found()
    kernels, out = given("TILE_ORACLE_FIGURES_KERNELS"), given("TILE_ORACLE_FIGURES_OUT")
    folder = Path(out or ROOT / "reports" / "gpu-figures").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return Setting(target, Path(kernels).resolve() if kernels else None, folder)


@dataclass(frozen=True)
class Session:
    """A pytest session that ended. wall_s: from its start to its end, collection and report included."""

    folder: Path
    status: int
    wall_s: float
    output: str

    @property
    def records(self) -> pd.DataFrame:
        return load_records(self.folder)


def pytest_command(setting: Setting, *options: str) -> list[str]:
    """Options with their values in one word: pytest would take a folder behind a space for its rootdir's."""
    ini = setting.out / "pytest.ini"
    ini.write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-c", str(ini), f"--rootdir={setting.out}"]
    command += load_plugin()
    command += ["-p", "no:cacheprovider", f"--target={setting.target}"]
    if setting.dry:
        command.append(f"--kernel-set={setting.kernel_set}")
    if setting.kernels is not None:
        command.append(f"--build-dir={setting.kernels}")
    return [*command, f"--report-dir={setting.out / 'runs'}", "--model=none", *options]


def environment() -> dict[str, str]:
    """This process's, less what pytest and its plugins left, with the checkout to import from."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
    search = os.pathsep.join(
        filter(None, [str(ROOT / "harness"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    )
    return kept | {"PYTHONPATH": search, "COLUMNS": "120"}


def run_session(setting: Setting, name: str, problems: Path, *options: str) -> Session:
    """Raises AssertionError when the session could not measure at all.

    The run is called by `name`, or by name and a number where an earlier one is.
    """
    runs = setting.out / "runs"
    names = (name, *(f"{name}-{number}" for number in range(2, _MOST_RUNS)))
    name = next(one for one in names if not (runs / one).exists())
    command = pytest_command(setting, f"--problem-set={problems}", f"--run-name={name}", *options)
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=setting.out,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    wall_s = time.monotonic() - began
    folder = runs / name
    (setting.out / f"{name}.log").write_text(done.stdout)
    # 1: some pair failed, which the records say, too.
    assert done.returncode in (0, 1), f"{' '.join(command)}\n{done.stdout[-4000:]}"
    assert (folder / "measurements").is_dir(), f"nothing was measured\n{done.stdout[-4000:]}"
    return Session(folder, done.returncode, wall_s, done.stdout)


def some_problems(setting: Setting, name: str, count: int) -> Path:
    """A problem set's file in the output folder with `count` problems of a set, evenly spread over it."""
    problems = load_problem_sets(name).problems
    step = max(1, len(problems) // count)
    return write_problems(setting, f"{Path(name).stem}-{count}", problems[::step][:count])


def write_problems(setting: Setting, name: str, problems: Sequence[Problem]) -> Path:
    path = setting.out / f"{name}.csv"
    path.write_text(format_problem_set(problems, [""] * len(problems), f"{name}: made by benchmarks/gpu"))
    return path


def some_kernels(problem: GroupedConvProblem, most: int) -> list[str]:
    """Names of kernels of sm_90's default pool that can take a problem, evenly spread over the pool."""
    pool, arch = pool_of_kind(problem.kind, "sm_90"), load_arch("sm_90")
    able = [kernel.name for kernel in arch.able(pool, problem)]
    return able[:: max(1, len(able) // most)][:most]


def note(setting: Setting, name: str, figures: Any) -> None:
    """Prints figures, and keeps them in figures.json of the output folder."""
    found: Mapping[str, Any] = asdict(figures) if is_dataclass(figures) else dict(figures)  # type: ignore[arg-type]
    path = setting.out / "figures.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known[name] = {"target": setting.target, **found}
    path.write_text(json.dumps(known, indent=1, default=str) + "\n")
    print(f"\n{name}: {json.dumps(known[name], default=str)[:2000]}")
