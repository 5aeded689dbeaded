"""docs/support.md: what works for whom, as it is found by doing it with every shipped model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.selector.made_problems import random_problems
from tile_oracle.commands import open_registry
from tile_oracle.errors import HarnessError, ModelError
from tile_oracle.features.columns import pair_columns
from tile_oracle.files.data_files import data_folder
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.fitting_model import models_for, pool_of_model
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.pick_reasons import pick_reasons
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.ranker import constant_groups
from tile_oracle.model.store import SPEC_FILE, kernels_trained_on
from tile_oracle.problem import Problem
from tile_oracle.registry.registry import NATIVE, load_candidates
from tile_oracle.selector.export import export_model
from tile_oracle.selector.ranker import NativeRanker
from tile_oracle.training.training_range import TrainingRange
from tile_oracle.training.warm_start import WarmStart

PAGE = Path(__file__).parents[2] / "docs" / "support.md"
MODELS = sorted(path.parent for path in data_folder("models").glob(f"*/{SPEC_FILE}"))
WORKS = "works"
_MOST_KERNELS = 12


@cache
def some_kernels(folder: Path) -> tuple[Kernel, ...]:
    """Kernels of one kind that the model knows."""
    first = parse_kernel_name(min(kernels_trained_on(folder)))
    return pool_of_model(folder, first.kind)[:_MOST_KERNELS]


@cache
def problem_of(folder: Path) -> Problem:
    return random_problems(some_kernels(folder)[0].kind, 1)[0]


@cache
def predictor_of(folder: Path) -> Predictor:
    return Predictor.load(folder)


def found_by_itself(folder: Path, place: Path) -> str:
    kernels = some_kernels(folder)
    spec = read_spec(folder)
    device = spec.devices[0] if spec.devices else ""
    taken = models_for(kernels[0].kind, spec.arch, kernels=kernels, device=device).folder
    return WORKS if taken == folder.resolve() else "name it"


def predicts(folder: Path, place: Path) -> str:
    ranked = predictor_of(folder).rank(problem_of(folder), some_kernels(folder))
    return WORKS if len(ranked) == len(some_kernels(folder)) else "not yet"


def predicts_a_list(folder: Path, place: Path) -> str:
    file = place / "names.txt"
    file.write_text("".join(f"{kernel.name}\n" for kernel in some_kernels(folder)))
    listed = open_registry.kernels_in_file(str(file), some_kernels(folder)[0].kind)
    return WORKS if tuple(listed) == some_kernels(folder) else "not yet"


def picks_natively(folder: Path, place: Path) -> str:
    candidates = load_candidates(
        problem_of(folder), read_spec(folder).arch, some_kernels(folder), folder, engine=NATIVE
    )
    assert candidates.rank is not None, candidates.why
    (first, _), *_ = candidates.rank(problem_of(folder), 1)
    return (
        WORKS if first == predictor_of(folder).select(problem_of(folder), some_kernels(folder)) else "not yet"
    )


def has_the_same_bits(folder: Path, place: Path) -> str:
    kernels, problem = some_kernels(folder), problem_of(folder)
    rows, groups = pair_columns([problem], kernels), constant_groups(1, len(kernels))
    native = NativeRanker.load(folder, kernels).log_time(problem)
    expected = predictor_of(folder).ranker.log_time(rows, groups)
    if (native == expected).all():
        return WORKS
    return "single precision" if np.abs(native - expected).max() < 1e-4 else "not yet"


def exports(folder: Path, place: Path) -> str:
    done = export_model(folder, some_kernels(folder), place / "selector")
    manifest = json.loads((done.folder / "manifest.json").read_text())
    return WORKS if manifest["model"] == folder.name else "not yet"


def gives_reasons(folder: Path, place: Path) -> str:
    kernels, problem = some_kernels(folder), problem_of(folder)
    order = [kernel for kernel, _ in predictor_of(folder).rank(problem, kernels)]
    first, last = (pair_columns([problem], [kernel]) for kernel in (order[0], order[-1]))
    (reason,) = pick_reasons(predictor_of(folder).ranker, first, last, most=3)
    return WORKS if reason.features else "not yet"


def knows_its_range(folder: Path, place: Path) -> str:
    return "not yet" if TrainingRange.of(folder) is None else WORKS


def grows_further(folder: Path, place: Path) -> str:
    spec = read_spec(folder)
    kind = {"arch": spec.arch, "dtype": spec.dtype}
    try:
        WarmStart.of(folder, kind)
    except ModelError:
        return "not yet"
    return WORKS


ROWS: dict[str, Callable[[Path, Path], str]] = {
    "found by itself": found_by_itself,
    "`pick --predictions`": predicts,
    "`pick --predictions --kernels FILE`": predicts_a_list,
    "`pick`, natively": picks_natively,
    "native times: Python's bits": has_the_same_bits,
    "export to C++": exports,
    "reasons of a pick": gives_reasons,
    "what is outside of its training": knows_its_range,
    "warm start": grows_further,
}
"""What is done with a model -> a function that does it and says what came of it."""


def column(folder: Path, place: Path) -> list[str]:
    cells = []
    for name, done in ROWS.items():
        own = place / str(len(cells))
        own.mkdir()
        try:
            cells.append(done(folder, own))
        except HarnessError as error:
            cells.append(f"not yet: {name}: {error}")
    return cells


def cells_of_the_page() -> dict[str, list[str]]:
    """Model -> its cells, in the order of ROWS. Models with the same cells share a row of the page."""
    section, *_ = PAGE.read_text().partition("## What works for which operation")
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, *rows = table
    assert head == ["model", *ROWS]
    return {name: cells[1:] for cells in rows for name in re.findall(r"`(\w+)`", cells[0])}


def test_the_page_has_every_shipped_model() -> None:
    assert sorted(cells_of_the_page()) == [folder.name for folder in MODELS]


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(one, id=one.name, marks=[pytest.mark.slow] * one.name.startswith("gemm"))
        for one in MODELS
    ],
)
def test_the_page_says_what_works_with_a_model(folder: Path, tmp_path: Path) -> None:
    assert column(folder, tmp_path) == cells_of_the_page()[folder.name]
