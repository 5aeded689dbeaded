"""`Registry.run`: a caller's arrays through a real kernel in a worker, equal to the reference bit for bit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from evil_target import FLAG, EvilTarget, evil_kernel, small_problem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.device.test_reference import problems
from tests.integer_operands import integer_operands
from tests.registry.conftest import DTYPES, GEMM_DTYPES
from tests.samples import sampled
from tile_oracle.compiling.builder import Builder
from tile_oracle.device.reference import exact_output
from tile_oracle.errors import OperandError, TargetError
from tile_oracle.kernel import Kernel
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.problem.number_formats import decode, encode
from tile_oracle.registry import Registry
from tile_oracle.registry.operands import argument_names, axes
from tile_oracle.registry.registry import Candidates

CONV = problem_from_id("forward-bf16-n1-c8-k5-i7x6-f3x3-p1")


def operands(problem: Problem, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both operands and the exact result, in storage format."""
    first, second = integer_operands(problem, seed)
    result = encode(exact_output(problem, first, second), problem.dtype)
    return encode(first, problem.dtype), encode(second, problem.dtype), result


def same(problem: Problem, found: np.ndarray, exact: np.ndarray) -> bool:
    """Equal in every value; zeros of either sign are equal."""
    assert (found.dtype, found.shape) == (exact.dtype, problem.operand_shapes[2])
    return bool(np.array_equal(decode(found, problem.dtype), decode(exact, problem.dtype)))


def kinds() -> st.SearchStrategy[GroupedConvProblem]:
    """Small problems of every direction and rank, with groups, stride, padding and dilation."""
    return problems().map(lambda p: replace(p, dtype=DTYPES[p.direction, p.ndim]))


def ranking(registry: Registry, *kernels: Kernel) -> Registry:
    """The registry with a model that ranks these kernels of one kind, best first."""
    order = [(kernel, 1.0 / place) for place, kernel in enumerate(kernels, 1)]
    made = Candidates(kernels, lambda problem, k: order[:k], "made", "python")
    registry._loaded[kernels[0].kind] = made
    return registry


@pytest.fixture
def registry(make_registry: Callable[..., Registry], few_kernels: list[Kernel]) -> Registry:
    registry = make_registry(kernels=few_kernels)
    for kernel in few_kernels:
        ranking(registry, kernel)
    return registry


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problem=kinds(), seed=st.integers(0, 2**31))
def test_a_convolution_of_any_shape_is_exact(
    registry: Registry, problem: GroupedConvProblem, seed: int
) -> None:
    first, second, exact = operands(problem, seed)
    names = argument_names(problem)
    found = registry.run(problem, first, second)
    assert same(problem, found.output, exact)
    assert found.kernel.kind == problem.kind
    again = registry.run(problem, **dict(zip(names, (first, second), strict=False)))
    assert again.output.tobytes() == found.output.tobytes()
    assert again.cached


@pytest.mark.slow
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    layout=st.sampled_from(sorted(GEMM_DTYPES)),
    extents=st.tuples(*[st.integers(1, 40)] * 3),
    seed=st.integers(0, 2**31),
)
def test_a_matrix_product_is_exact(
    registry: Registry, layout: str, extents: tuple[int, int, int], seed: int
) -> None:
    problem = GemmProblem(GEMM_DTYPES[layout], layout, *extents)
    a, b, exact = operands(problem, seed)
    assert same(problem, registry.run(problem, a=a, b=b).output, exact)


def test_real_numbers_are_computed_as_numpy_does(registry: Registry) -> None:
    problem = problem_from_id("bwd_weight-fp32-n2-c6-k4-i9x8-f3x2-p1")
    generator = np.random.default_rng(0)
    x, dy = (generator.standard_normal(shape).astype(np.float32) for shape in problem.operand_shapes[:2])
    exact = exact_output(problem, x, dy)  # type: ignore[arg-type]
    np.testing.assert_allclose(registry.run(problem, x=x, dy=dy).output, exact, rtol=1e-4, atol=1e-5)


def test_nan_and_infinity_of_the_caller_come_through(registry: Registry) -> None:
    """The bits of any NaN, even of the poison that marks unwritten values."""
    problem = problem_from_id("forward-bf16-n1-c8-k16-i3x3-f1x1")
    x, w, _ = operands(problem)
    x = x.copy()
    x[0, 0, 0, 0, 0] = 0xFFFF
    x[0, 2, 2, 0, 0] = 0x7F80
    w = np.maximum(w, encode(np.array([1.0]), "bf16"))  # no zero meets the infinity
    found = decode(registry.run(problem, x=x, w=w).output, "bf16")
    assert np.isnan(found[0, 0, 0]).all()
    assert not np.isfinite(found[0, 2, 2]).any()
    assert np.isfinite(found[0, 1, 1]).all()


def test_the_callers_arrays_stay_as_they_are(registry: Registry) -> None:
    x, w, exact = operands(CONV)
    x.flags.writeable = w.flags.writeable = False
    before = x.tobytes(), w.tobytes()
    first = registry.run(CONV, x, w).output
    first += 1
    assert same(CONV, registry.run(CONV, x, w).output, exact)
    assert (x.tobytes(), w.tobytes()) == before


# ---- what does not fit ---------------------------------------------------------------------------

X, W, _ = operands(CONV)
WRONG: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((X,), {}, "a problem of forward takes x and w, not 1 by position"),
    ((), {}, "a problem of forward takes x and w, not nothing"),
    ((X, W, X), {}, "a problem of forward takes x and w, not 3 by position"),
    ((), {"x": X, "dy": W}, "a problem of forward takes x and w, not x, dy"),
    ((X,), {"x": W}, "a problem of forward takes x and w, not 1 by position, x"),
    ((X, W[:, :4]), {}, f"w has shape 1x4x3x3x8: {CONV.id} wants 1x5x3x3x8, axes G K/G Y X C/G"),
    ((X[0], W), {}, f"x has shape 7x6x1x8: {CONV.id} wants 1x7x6x1x8, axes N Hi Wi G C/G"),
    ((X.astype(np.float32), W), {}, f"x is float32: {CONV.id} wants uint16, the bits of bf16"),
    ((X.astype(">u2"), W), {}, f"x is uint16 of foreign byte order: {CONV.id} wants uint16"),
    ((X.tolist(), W), {}, "x is of type list: give a numpy array of uint16"),
    ((X, np.asfortranarray(W)), {}, "kernels read C order: give np.ascontiguousarray(w)"),
    ((np.broadcast_to(X[:, :1], X.shape), W), {}, "give np.ascontiguousarray(x)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("given_", "named", "message"), WRONG, ids=[message[-40:] for _, _, message in WRONG]
)
def test_an_array_that_does_not_fit_gives_one_line(
    registry: Registry, given_: tuple[Any, ...], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(OperandError) as raised:
        registry.run(CONV, *given_, **named)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "name", "shown"),
    [
        ("bwd_data-fp32-n1-c4-k6-i5x5x5-f2x2x2", "dx", "N Di Hi Wi G C/G"),
        ("bwd_data-fp32-n1-c4-k6-i5x5x5-f2x2x2", "dy", "N Do Ho Wo G K/G"),
        ("bwd_weight-fp32-n1-c4-k6-i5x5-f2x2", "dw", "G K/G Y X C/G"),
        ("gemm-bf16-crr-m3-n4-k5", "a", "K M"),
        ("gemm-bf16-crr-m3-n4-k5", "b", "K N"),
        ("gemm-bf16-rcr-m3-n4-k5", "b", "N K"),
    ],
)
def test_axes_are_named_as_the_operand_shapes_lie(text: str, name: str, shown: str) -> None:
    problem = problem_from_id(text)
    place = argument_names(problem).index(name)
    assert axes(problem, name) == shown
    assert len(shown.split()) == len(problem.operand_shapes[place])


# ---- kernels that misbehave ----------------------------------------------------------------------

EVIL = small_problem()
GOOD = evil_kernel("good")


@pytest.mark.parametrize(
    ("mode", "status", "detail"),
    sampled(
        [
            ("segfault", "crash", "killed by SIGSEGV"),
            ("overrun", "crash", "killed by SIGSEGV"),
            ("underrun", "wrong", "wrote outside its output or workspace"),
            ("unwritten", "wrong", "left 35 of 245 values unwritten"),
            ("error_code", "wrong", "the kernel returned 7"),
            ("refuses", "unsupported", "the kernel refused the problem"),
            ("other_abi", "build_error", "its ABI is 2, tile-oracle's 1"),
            ("compile_error", "build_error", "this kernel does not compile"),
            ("loop", "timeout", "no result after"),
        ],
        every=3,
    ),
)
def test_a_kernel_that_misbehaves_is_passed_over_and_the_caller_lives(
    mode: str,
    status: str,
    detail: str,
    make_registry: Callable[..., Registry],
    evil_builder: Builder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = evil_kernel(mode)
    target = EvilTarget(evil_builder, timeout_s=2.0 if mode == "loop" else 60.0)
    registry = ranking(make_registry(target=target), bad, GOOD)
    first, second, exact = operands(EVIL)
    assert registry.select(EVIL).kernel == bad
    found = registry.run(EVIL, first, second)
    assert same(EVIL, found.output, exact)
    assert found.kernel == GOOD
    assert [(one.kernel, one.status) for one in found.failed] == [(bad, status)]
    assert detail in found.failed[0].detail
    assert f"{bad.name} on {EVIL.id}: {status}" in caplog.text
    again = registry.run(EVIL, first, second)
    assert (again.kernel, again.failed) == (GOOD, ())


def test_if_every_kernel_fails_the_reasons_are_in_one_line(
    make_registry: Callable[..., Registry], evil_builder: Builder
) -> None:
    registry = ranking(make_registry(target=EvilTarget(evil_builder)), evil_kernel("error_code"))
    first, second, _ = operands(EVIL)
    with pytest.raises(TargetError, match=r"no kernel runs forward-fp32.*: wrong: the kernel returned 7"):
        registry.run(EVIL, first, second)


def test_a_worker_that_dies_between_runs_is_replaced(
    make_registry: Callable[..., Registry], evil_builder: Builder
) -> None:
    registry = ranking(make_registry(target=EvilTarget(evil_builder)), GOOD)
    first, second, exact = operands(EVIL)
    registry.run(EVIL, first, second)
    for _ in range(2):
        pid = registry._machine.supervisor().worker_pid
        assert pid is not None
        os.killpg(pid, signal.SIGKILL)
        assert same(EVIL, registry.run(EVIL, first, second).output, exact)
        assert registry._machine.supervisor().worker_pid != pid


def test_a_kernel_that_was_good_when_measured_and_crashes_later(
    make_registry: Callable[..., Registry],
    evil_builder: Builder,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:
    flag = tmp_path / "flag"
    monkeypatch.setenv(FLAG, str(flag))
    sturdy = evil_kernel("slow")  # the only one that ignores the flag
    registry = ranking(make_registry(target=EvilTarget(evil_builder)), GOOD, sturdy)
    first, second, exact = operands(EVIL)
    assert registry.run(EVIL, first, second).kernel == GOOD
    flag.touch()
    found = registry.run(EVIL, first, second)
    assert same(EVIL, found.output, exact)
    assert (found.kernel, found.failed[0].status) == (sturdy, "crash")
    flag.unlink()
    alone = ranking(make_registry(target=EvilTarget(evil_builder)), GOOD)
    alone.run(EVIL, first, second)
    flag.touch()
    with pytest.raises(TargetError, match=r"no kernel runs .*: crash: killed by SIGSEGV"):
        alone.run(EVIL, first, second)
    for ask in (alone.select, alone.rank):
        with pytest.raises(TargetError, match=r"can run forward-fp32.*: those that could have failed here"):
            ask(EVIL)


def test_data_that_find_no_room_are_refused_and_nothing_is_left_behind(
    make_registry: Callable[..., Registry],
    evil_builder: Builder,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:
    from tile_oracle.registry import operands as module

    registry = ranking(make_registry(target=EvilTarget(evil_builder)), GOOD)
    first, second, _ = operands(EVIL)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_SHARED_MEMORY", tmp_path / "missing")
        patch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path / "missing too"))
        with pytest.raises(OperandError, match="set TMPDIR to a folder with enough room"):
            registry.run(EVIL, first, second)
    (tmp_path / "shared").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(module, "_SHARED_MEMORY", tmp_path / "shared")
        registry.run(EVIL, first, second)
    assert list((tmp_path / "shared").iterdir()) == []
    supervisor = registry._machine.supervisor()
    assert supervisor.worker_pid is not None
    registry.close()
    assert supervisor.worker_pid is None
    with pytest.raises(TargetError, match="the registry is closed"):
        registry.run(EVIL, first, second)
