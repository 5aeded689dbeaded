"""Problems and kernels of every operation come back from their ids, names and rows, and no two share one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tile_oracle.errors import KernelError, ProblemError, RuleError
from tile_oracle.kernel import Kernel, kernel_from_row, parse_kernel_name
from tile_oracle.operation import operation_named, operation_names
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import Problem, problem_from_id, problem_from_row
from tile_oracle.problem_set import list_problem_sets, load_problem_set

OPERATIONS = pytest.mark.parametrize("op", operation_names())
NUMBERS = st.one_of(st.integers(0, 40), st.sampled_from((64, 128, 4096)))


@cache
def shipped() -> dict[str, list[Problem]]:
    found = defaultdict(list)
    for name in list_problem_sets():
        if "training" not in name:
            for problem in load_problem_set(name).problems:
                found[problem.op].append(problem)
    return found


@cache
def kernels_of(op: str) -> list[Kernel]:
    found: list[Kernel] = []
    for kind in operation_named(op).kinds({}):
        for arch, rules in (("cpu", "default"), ("gfx950", "default"), ("gfx950", "full-tests")):
            try:
                found += pool_of_kind(kind, arch, rules)[::7]
            except RuleError:
                continue
    return found


def rows_of(one: Any) -> list[dict[str, Any]]:
    """The row as it is, of NumPy's types, and of texts, with a column more."""
    row = one.as_row()
    numpy = {bool: np.bool_, int: np.int64, str: str}
    return [
        row,
        {name: numpy[type(value)](value) for name, value in row.items()},
        {name: str(value) for name, value in row.items()} | {"latency_ms": "1.5"},
    ]


def changed(data: st.DataObject, one: Any, others: list[Any]) -> tuple[Any, str]:
    """It with a value of another in one field, and the field; itself if there is no such one."""
    field = data.draw(st.sampled_from(one.field_names()))
    value = getattr(data.draw(st.sampled_from(others)), field)
    if type(value) is int:
        value = data.draw(NUMBERS | st.just(value))
    if type(value) is bool:
        value = data.draw(st.booleans())
    try:
        return replace(one, **{field: value}), field
    except (ProblemError, KernelError):
        return one, field


@OPERATIONS
@settings(max_examples=60)
@given(data=st.data())
def test_problems_are_known_by_every_field(op: str, data: st.DataObject) -> None:
    problem = data.draw(st.sampled_from(shipped()[op]))
    other, field = changed(data, problem, shipped()[op])
    for one in (problem, other):
        assert type(one).from_id(one.id) == one == problem_from_id(one.id)
        for row in rows_of(one):
            assert problem_from_row(row | {"op": op}) == one
        assert one.key == (op, *one.as_row().values())
    same = other == problem
    assert (other.id == problem.id, other.key == problem.key) == (same, same)
    assert (other.family == problem.family) == (same or field in operation_named(op).family_varies)


@OPERATIONS
@settings(max_examples=60)
@given(data=st.data())
def test_kernels_are_known_by_every_field(op: str, data: st.DataObject) -> None:
    kernel = data.draw(st.sampled_from(kernels_of(op)))
    other, _ = changed(data, kernel, kernels_of(op))
    for one in (kernel, other):
        assert parse_kernel_name(one.name) == one
        assert one.name == operation_named(op).kernel_prefix(one.kind) + one.short_name
        for row in rows_of(one):
            assert kernel_from_row(row, op) == one
    assert (other.name == kernel.name) == (other == kernel)


@OPERATIONS
def test_shipped_problems_have_ids_of_their_own(op: str) -> None:
    problems = set(shipped()[op])
    assert len({problem.id for problem in problems}) == len(problems)
    assert all(problem_from_id(problem.id) == problem for problem in problems)


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("scaled_gemm", ("N", "K")),
        ("fused_gemm", ("M", "N", "K", "batch")),
        ("fused_moe", ("experts", "hidden", "intermediate")),
        ("fused_moe_fp8", ("experts", "hidden", "intermediate")),
        ("fused_moe_fp8_rows", ("experts", "hidden", "intermediate")),
        ("paged_attention", ("heads", "kv_heads", "head_dim")),
    ],
)
def test_no_layer_is_in_training_and_in_validation(op: str, fields: tuple[str, ...]) -> None:
    def layers(one: str) -> set[tuple[object, ...]]:
        problems = load_problem_set(one).problems
        return {tuple(getattr(problem, name) for name in fields) for problem in problems}

    shipped_sets = set(list_problem_sets())
    learnt = {f"{op}_{kind}training" for kind in ("", "more_", "wide_")}
    training = set().union(*map(layers, learnt & shipped_sets))
    validation = set().union(*map(layers, {f"{op}_validation", f"{op}_unseen"} & shipped_sets))
    assert training
    assert validation
    assert not training & validation
