"""A project on a machine with an emulated GPU and a library over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from tests.kernels.emulated_gpu import machine as emulated
from tests.pytest_project import SHORTLY, Finished, Project
from tests.shims.libraries import build_library
from tile_oracle.libraries.offers import Offers, load_offers, offers_file


@dataclass(frozen=True)
class Machine:
    """library: its name and its file. calls: where it notes them."""

    project: Project
    gpu: emulated.EmulatedMachine
    name: str
    library: Path
    calls: Path

    def problems(self, *problems: str) -> None:
        """The problem set of the sessions."""
        self.project.problem_set("one.csv", problems)

    def run(self, *more: str, environment: dict[str, str] | None = None) -> Finished:
        options = [
            f"--target={self.gpu.arch}",
            "--problem-set=one.csv",
            f"--kernels={self.name}={self.library}",
        ]
        options += ["-v", "-p", emulated.PLUGIN, f"--toolchain={self.gpu.compiler}", *SHORTLY, *more]
        variables = {**self.gpu.environment(), "RECORD_TO": str(self.calls), **(environment or {})}
        return self.project.pytest(*options, environment=variables)

    @property
    def offers(self) -> Offers:
        (run,) = self.project.runs
        return load_offers(offers_file(run, self.name))

    def sweep(self) -> pd.DataFrame:
        """The first round. `name`: the kernel's name without operation and kind."""
        records = self.project.records()
        first = records[records["round"] == 0]
        return first.assign(name=first["kernel"].str.extract(rf"({self.name}\..*)", expand=False))


MakeMachine = Callable[[str], Machine]


@pytest.fixture
def machine_with(
    project: Project, emulated_machine: Callable[[str], emulated.EmulatedMachine], tmp_path: Path
) -> MakeMachine:
    """The machine with a library of tests/shims."""

    def make(name: str) -> Machine:
        library = build_library(name, tmp_path / "library")
        arch = "gfx950" if name in ("hipblaslt", "miopen") else "sm_90"
        return Machine(project, emulated_machine(arch), name, library, tmp_path / "calls")

    return make
