"""Composable Kernel's C++ heuristic of GEMM against its model folder: `ck_tile_parity`.

The dispatcher's ml_heuristic.hpp of the user's checkout, with its keys and problems, is compiled for this
machine's CPU with ck_tile_driver/, which stands for the registry, the HIP runtime and LightGBM's functions:
these pass all calls on to lib_lightgbm.so and note what they were given.
"""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tile_oracle.arch import load_arch
from tile_oracle.errors import BuildError, ModelError
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.feature_table import Array
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas.gemm_published import WORD_CODES
from tile_oracle.judge.ranking import best_first
from tile_oracle.model.model_folder import read_booster_text
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.ranker import TreeMember
from tile_oracle.model.trees import mean_predictions
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.problem import Problem
from tile_oracle.selector.native_library import compile_in
from tile_oracle.selector.parity import Answers, Parity, compare
from tile_oracle.terminal.progress_line import wait

HEADER = Path("ck_tile", "dispatcher", "ml_heuristic.hpp")
_PLACES = ("dispatcher/include", "projects/composablekernel/dispatcher/include", "include", ".")
_DRIVER = Path(__file__).with_name("ck_tile_driver")
_TIMEOUT_S = 1800.0
_SCORE_TOLERANCE = 1e-9
"""Logarithms of C++ and NumPy differ in the last place."""

_TOLD = 4
"""Values of a row before its features: score, status, data type, number of features."""


@dataclass(frozen=True)
class Said:
    """What the driver wrote. known: which kernels have a KernelKey. rows: problem id -> (kernels, values) of
    those, orders: problem id -> their numbers, best first. log: what the program printed."""

    known: list[bool]
    rows: dict[str, Array]
    orders: dict[str, list[int]]
    width: int
    log: str

    def answers(self, problem: Problem) -> Answers:
        """Scores, order, and as many features as LightGBM was told of."""
        rows, order = self.rows[problem.id], self.orders[problem.id]
        count = min(int(rows[0, 3]), self.width)
        if sorted(order) != list(range(len(rows))):
            raise BuildError(f"the C++ heuristic does not rank each kernel once for {problem.id}")
        return Answers(rows[:, 0], order, rows[:, _TOLD : _TOLD + count])

    def faults(self, problem: Problem, expected: Array) -> list[str]:
        """Returns what is wrong with the calls of LightGBM. expected: the first kernel's features for a
        problem, or the first of them."""
        row, found = self.rows[problem.id][0], []
        as_doubles = row[_TOLD + self.width :][: min(int(row[3]) // 2, self.width, len(expected))]
        if row[2] == 0 and np.isclose(as_doubles, expected[: len(as_doubles)]).mean() > 0.9:
            found.append(
                "LightGBM is told FLOAT32 (data_type 0) of an array of doubles, and reads each of them as "
                "two numbers: it needs C_API_DTYPE_FLOAT64 (1)"
            )
        refused = sum(int((rows[:, 1] != 0).sum()) for rows in self.rows.values())
        if refused:
            said = next(
                (line for line in self.log.splitlines() if line.startswith("lightgbm: ")), "lightgbm: ?"
            )
            found.append(f"LightGBM refuses {refused:,} rows, whose score is then 0 ({said[10:]})")
        alike = sum(bool((rows[:, 0] == rows[0, 0]).all()) for rows in self.rows.values() if len(rows) > 1)
        if alike:
            found.append(f"all kernels have one score on {alike:,} problems: the pick is whichever is first")
        return found


def ck_tile_parity(
    model: Path, checkout: Path, kernels: Sequence[GemmKernel], problems: Sequence[Problem]
) -> Parity:
    """Compares features, scores and picks over the pool. Raises ModelError for a model that the header
    does not read, BuildError where it does not compile or run."""
    include = include_folder(checkout, HEADER)
    predictor = Predictor.load(model)
    member = next((one for one in predictor.ranker.members if one.name == "tflops"), None)
    one_model = isinstance(member, TreeMember) and len(member.boosters) == 1
    if not isinstance(member, TreeMember) or not one_model or set(predictor.ranker.weights) != {"tflops"}:
        raise ModelError(f"{model}: {HEADER.name} picks by one model_tflops.lgbm, which this model does not")
    absent = sorted(set(WORD_CODES["pipeline"]) - {kernel.pipeline for kernel in kernels})
    probes = [replace(kernels[0], pipeline=name) for name in absent]
    width = len(member.feature_names)
    hardware, logged = hardware_features(predictor.spec.arch), "tflops" in predictor.spec.log_targets

    def features(problem: Problem, pool: Sequence[GemmKernel]) -> Array:
        assert isinstance(member, TreeMember)
        return member.schema.compute(pair_columns([problem], pool), hardware, member.feature_names)

    lines = {p.id: f"{p.M} {p.N} {p.K} {p.split_k}" for p in problems}  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as work:
        program = compiled(include, HEADER, "driver.cpp", predictor.spec.arch, Path(work))
        text = read_booster_text(model, "tflops")[1]
        asked = answers_of(program, text, logged, [*map(_kernel_line, kernels)], lines, width)
        first = {problems[0].id: lines[problems[0].id]}
        probed = answers_of(program, text, logged, [*map(_kernel_line, probes)], first, width)
    have = [kernel for kernel, known in zip(kernels, asked.known, strict=True) if known]
    parity = Parity(f"{include / HEADER}", len(have))
    if lacking := [kernel for kernel in kernels if kernel not in have]:
        what = f"{len(lacking):,} kernels have no KernelKey in this checkout and were left out"
        parity.remarks.append(f"{what}: {lacking[0].name}, ...")
    if not have:
        raise ModelError(f"{include / HEADER} has a KernelKey for none of the {len(kernels):,} kernels")
    names = [kernel.name for kernel in have]

    def folder(problem: Problem) -> Answers:
        rows = features(problem, have)
        raw = mean_predictions(member.boosters, rows, predictor.threads)
        scores = np.expm1(raw) if logged else raw
        return Answers(scores, best_first(scores.tolist(), names), rows)

    compare(parity, problems, have, (folder, asked.answers), member.feature_names, _SCORE_TOLERANCE)
    parity.remarks += asked.faults(problems[0], features(problems[0], have[:1])[0])
    own = [kernel for kernel, known in zip(probes, probed.known, strict=True) if known]
    if own and "pipeline" in member.feature_names:
        place = member.feature_names.index("pipeline")
        codes = features(problems[0], own)[:, place], probed.answers(problems[0]).features
        for kernel, one, row in zip(own, codes[0], codes[1] if codes[1] is not None else (), strict=True):
            if len(row) > place and one != row[place] and asked.rows[problems[0].id][0, 2] == 1:
                text = f"pipeline {kernel.pipeline} is {one:g} in the folder, {row[place]:g} deployed"
                parity.remarks.append(f"not in this pool, but wrong in others: {text}")
    return parity


def include_folder(checkout: Path, header: Path) -> Path:
    """Returns the folder of a checkout that has a header of the dispatcher. Raises BuildError."""
    found = next((checkout / one for one in _PLACES if (checkout / one / header).is_file()), None)
    if found is None:
        raise BuildError(
            f"{checkout} has no dispatcher/include/{header}: give a checkout of Composable Kernel"
        )
    return found


def compiled(include: Path, header: Path, driver: str, arch: str, work: Path) -> Path:
    """Returns the program of a driver. Raises BuildError with the compiler's first error."""
    found = load_arch(arch)
    device = {
        "CUS": found.hardware.num_cus,
        "CLOCK_KHZ": 1000 * found.hardware.max_clock_mhz,
        "WAVE": found.hardware.wavefront_size,
        "LDS_BYTES": found.lds_limit_bytes,
        "THREADS": found.hardware.max_waves_per_cu * found.hardware.wavefront_size,
        "L2_BYTES": found.hardware.l2_cache_kb << 10,
    }
    folders = (_DRIVER, _DRIVER / "include", include.resolve())
    options = (
        *("-std=c++20", "-O1", "-w", "-ffp-contract=off", *(f"-I{one}" for one in folders)),
        *(f"-DTO_HIP_{name}={value}" for name, value in device.items()),
    )
    sources = [str(_DRIVER / name) for name in (driver, "lightgbm_calls.cpp")]
    compile_in(work, str(include / header), sources, options, ("-o", "driver", "-ldl", "-pthread"))
    return work / "driver"


def answers_of(
    program: Path, model: str, logged: bool, kernels: Sequence[str], problems: Mapping[str, str], width: int
) -> Said:
    """Returns what a driver says of kernels and problems, each a line of its input. Raises BuildError."""
    work = program.parent
    (work / "model.lgbm").write_text(model)
    lines = [str(len(kernels)), *kernels, str(len(problems)), *problems.values()]
    command = (str(program), str(_lightgbm()), "model.lgbm", str(int(logged)), str(width), "said")
    with wait("asking the C++ heuristic"):
        done = subprocess.run(
            command, input="\n".join(lines), cwd=work, env={"OMP_NUM_THREADS": "1"}, capture_output=True,
            text=True, errors="replace", check=False, timeout=_TIMEOUT_S,
        )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise BuildError(f"the C++ heuristic ended with status {done.returncode}, and said: {last[:300]}")
    values = np.fromfile(work / "said")
    known = [bool(one) for one in values[: len(kernels)]]
    count, columns = sum(known), _TOLD + 2 * width
    blocks = values[len(kernels) :].reshape(len(problems), count * columns + count)
    end = count * columns
    rows = {one: block[:end].reshape(count, columns) for one, block in zip(problems, blocks, strict=True)}
    orders = {one: block[end:].astype(int).tolist() for one, block in zip(problems, blocks, strict=True)}
    return Said(known, rows, orders, width, done.stderr)


def _kernel_line(kernel: GemmKernel) -> str:
    sizes = (*kernel.tile, *kernel.waves, *kernel.warp_tile)
    words = (kernel.pipeline, kernel.scheduler, kernel.epilogue)
    flags = (kernel.pad_m, kernel.pad_n, kernel.pad_k, kernel.persistent)
    return " ".join(map(str, (kernel.dtype, *kernel.layout, *sizes, *words, *map(int, flags))))


def _lightgbm() -> Path:
    spec = importlib.util.find_spec("lightgbm")
    places = (spec.submodule_search_locations if spec is not None else None) or ()
    found = [path for place in places for path in Path(place).rglob("lib_lightgbm.so")]
    if not found:
        raise BuildError("the lightgbm of this Python has no lib_lightgbm.so: pip install lightgbm")
    return found[0]
