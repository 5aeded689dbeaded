"""Composable Kernel's C++ heuristic of attention (fmha_ml_heuristic.hpp) against its LightGBM model.

The published folder is a model of 68 columns without names, so the columns' order and codes stand in the
header alone, and are compared with nothing but a problem's own sizes. What is compared: LightGBM gets the
columns that the model has, as what they are; the scores are the model's of these columns; the picks are the
best scores, and kernels of equal score stay in their order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import cast

import numpy as np

from tile_oracle.errors import ModelError
from tile_oracle.features.feature_table import Array
from tile_oracle.judge.ranking import best_first
from tile_oracle.kernel import NamedKernel
from tile_oracle.model.model_text import read_model_text
from tile_oracle.model.store import SPEC_FILE, read_json
from tile_oracle.operations.attention.problem import AttentionProblem
from tile_oracle.problem import Problem
from tile_oracle.problem_set import list_problem_sets, load_problem_set
from tile_oracle.selector.c_predictor import model_text
from tile_oracle.selector.ck_tile_parity import answers_of, compiled, include_folder
from tile_oracle.selector.parity import MOST_PROBLEMS, Answers, Parity, compare

HEADER = Path("ck_tile", "dispatcher", "fmha_ml_heuristic.hpp")
OP_TYPE = "fmha"
_ARCH, _TOLERANCE = "gfx950", 1e-9
_PIPELINES = ("qr", "qr_async", "qr_async_trload", "qr_async_trload_v3", "qr_pagedkv")
_TILES = ((128, 128, 32), (128, 64, 32), (64, 64, 32), (64, 128, 64), (32, 64, 32), (16, 32, 64))
_SIZES = ("batch", "seq_q", "seq_kv", "heads", "kv_heads", "head_dim", "head_dim")
"""A problem's sizes that are the first columns."""


def is_fmha(model: Path) -> bool:
    """Returns whether a model is of attention: its specification says so or, as in the published one, is
    absent."""
    spec = model / SPEC_FILE
    if not spec.is_file():
        return model.is_file() or (model / "model_tflops.lgbm").is_file()
    return str(read_json(spec).get("op_type", "")).startswith(OP_TYPE)


def fmha_parity(model: Path, checkout: Path, problems: Sequence[Problem] = ()) -> Parity:
    """Compares scores and picks over a pool of made-up tiles. Raises ModelError for other problems, and
    BuildError where the header does not compile or run."""
    import lightgbm as lgb

    include, (where, text) = include_folder(checkout, HEADER), model_text(model)
    names = read_model_text(text, str(where)).feature_names
    spec = read_json(model / SPEC_FILE) if (model / SPEC_FILE).is_file() else {"log_targets": ["tflops"]}
    logged = "tflops" in spec.get("log_targets", ())
    own = [cast(AttentionProblem, one) for one in problems or _shipped() if one.op == AttentionProblem.op]
    if not own or len(own) < len(problems):
        raise ModelError(f"{HEADER.name} picks kernels of attention alone: name such problems, or none")
    booster, kernels, parity = lgb.Booster(model_str=text), _kernels(own[0]), Parity(f"{include / HEADER}", 0)
    parity.kernels = len(kernels)
    with tempfile.TemporaryDirectory() as work:
        program = compiled(include, HEADER, "fmha_driver.cpp", _ARCH, Path(work))
        lines = {one.id: _problem_line(one) for one in own}
        asked = answers_of(program, text, logged, [_kernel_line(one) for one in kernels], lines, len(names))

    def of_the_model(problem: Problem) -> Answers:
        found = asked.answers(problem).features
        rows: Array = np.zeros((len(kernels), len(names)))
        if found is not None:
            rows[:, : found.shape[1]] = found
        rows[:, : len(_SIZES)] = [float(getattr(problem, name)) for name in _SIZES]
        scores = np.asarray(booster.predict(rows, raw_score=True, num_threads=1))
        scores = np.expm1(scores) if logged else scores
        return Answers(
            scores, best_first(scores.tolist(), [f"{place:09}" for place in range(len(rows))]), rows
        )

    shown = [*_SIZES, *names[len(_SIZES) :]]
    compare(parity, own, kernels, (of_the_model, asked.answers), shown, _TOLERANCE)
    parity.remarks += asked.faults(own[0], np.array([float(getattr(own[0], name)) for name in _SIZES]))
    parity.remarks.append(
        "no feature_spec.json is published: the columns' order and codes are the header's own"
    )
    return parity


def _shipped() -> list[Problem]:
    """Attention of the shipped sets, evenly."""
    found = dict.fromkeys(
        problem
        for name in list_problem_sets()
        if "training" not in name
        for problem in load_problem_set(name).problems
        if problem.op == AttentionProblem.op and problem.dtype in ("bf16", "fp16")
    )
    return list(found)[:: max(1, -(-len(found) // MOST_PROBLEMS))]


def _kernels(problem: AttentionProblem) -> list[NamedKernel]:
    return [
        NamedKernel(problem.kind, "ck", "fmha_fwd", (
            ("pipeline", pipeline), ("tile_m0", m), ("tile_n0", n), ("tile_k0", k), ("tile_n1", hdim),
            ("tile_k1", k), ("tile_k0max", hdim), ("pad", pad),
        ))
        for pipeline, (m, n, k), hdim, pad in product(_PIPELINES, _TILES, (64, 128), (0, 1))
    ]  # fmt: skip


def _kernel_line(kernel: NamedKernel) -> str:
    has = kernel.configuration
    sizes = [has[f"tile_{name}"] for name in ("m0", "n0", "k0", "n1", "k1", "k0max")]
    return " ".join(map(str, (kernel.dtype, has["tile_n1"], has["pipeline"], 0, *sizes, has["pad"])))


def _problem_line(one: AttentionProblem) -> str:
    sizes = (one.batch, one.heads, one.kv_heads, one.seq_q, one.seq_kv, one.head_dim)
    return " ".join(map(str, (one.dtype, 2 * one.causal, *sizes)))
