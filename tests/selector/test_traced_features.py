"""Formulas as native programs: numpy's bits for every column, and what each depends on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.selector.made_problems import random_problems
from tests.selector.native_program import NativeProgram
from tile_oracle.errors import ModelError
from tile_oracle.features import feature_table as features
from tile_oracle.features.code_table import CODE_COLUMNS, CodeTable
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.feature_table import Feature, FeatureSchema, FeatureTable
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import SCHEMAS, schema_named
from tile_oracle.features.schemas.grouped_conv_own import GROUPED_CONV_TERMS
from tile_oracle.files.data_files import data_folder
from tile_oracle.kernel import Kernel, NamedKernel, parse_kernel_name
from tile_oracle.model.store import kernels_trained_on
from tile_oracle.operation import operation_named
from tile_oracle.operations.attention.features import ATTENTION_POOL
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import Kind, Problem
from tile_oracle.selector.program import ByteWriter, ProgramMaker
from tile_oracle.selector.selector_file import problem_fields, shared_words
from tile_oracle.selector.trace import NUMPY_OF, Graph, Node, Pool

HARDWARE = hardware_features("gfx950")
OF_NVIDIA = hardware_features("sm_90")
CONV_KINDS = [
    Kind.of("grouped_conv", direction=direction, dtype=dtype, ndim=ndim)
    for direction, dtype, ndim in (("forward", "bf16", 2), ("bwd_data", "fp16", 3), ("bwd_weight", "fp32", 2))
]
GEMM_KINDS = [
    Kind.of("gemm", dtype=dtype, layout=layout) for dtype, layout in (("bf16", "rcr"), ("fp8", "crr"))
]
FORWARD = CONV_KINDS[0]
POOLS = [
    one
    for op in ("scaled_gemm", "fused_gemm", "fused_moe", "paged_attention")
    if (one := operation_named(op).for_models.pool)
]
ALL_SCHEMAS = [*SCHEMAS.values(), ATTENTION_POOL, *POOLS, GROUPED_CONV_TERMS]
NAMED_KINDS = {
    "gemm_universal": [Kind.of("gemm", dtype="bf16", layout=layout) for layout in ("rcr", "crr")],
    "attention": [Kind.of("attention", dtype="bf16", head_dim=64, causal=causal) for causal in (0, 1)],
    "scaled_gemm": [Kind.of("scaled_gemm", dtype="fp8_e4m3", scale=scale) for scale in ("row", "block")],
    "fused_moe": [
        Kind.of("fused_moe", dtype="fp8_e4m3", product=product, scale=scale)
        for product, scale in (("gate_up", "block"), ("down", "row"))
    ],
    "paged_attention": [
        Kind.of("paged_attention", dtype="bf16", kv_dtype=kv_dtype, head_dim=head_dim)
        for kv_dtype, head_dim in (("bf16", 128), ("fp8_e4m3", 576))
    ],
    "fused_gemm": [
        Kind.of("fused_gemm", dtype="bf16", layout=layout, epilogue=epilogue)
        for layout, epilogue in (("rcr", "silu_mul"), ("crr", "bias_gelu"))
    ],
    "grouped_conv": CONV_KINDS[:2],
}
"""Kinds of problems whose kernels are ranked by name."""
KNOW_NAMES = ("gemm_bf16_sm_90", "attention_fwd_bf16_sm_90")


def kinds_of(schema: FeatureSchema) -> list[Kind]:
    if schema.from_names:
        return NAMED_KINDS[schema.op]
    return GEMM_KINDS if schema.op.startswith("gemm") else CONV_KINDS


def some_kernels(kind: Kind, count: int = 90) -> list[Kernel]:
    """A sample of the whole largest pool."""
    return sample(pool_of_kind(kind, "gfx950", "full"), count)


def sample(pool: Sequence[Kernel], count: int) -> list[Kernel]:
    return list(pool[:: max(1, len(pool) // count)])


def kernels_by_name(kind: Kind, count: int = 90) -> list[Kernel]:
    """A sample of the native kernels, Triton's and cuBLASLt's that the shipped models were trained on; made
    ones of Triton and cuDNN where there is no such model."""
    folders = (data_folder("models") / name for name in KNOW_NAMES)
    names = sorted(name for folder in folders for name in kernels_trained_on(folder))
    prefix = operation_named(kind.op).kernel_prefix(kind)
    known = [parse_kernel_name(name) for name in names if name.startswith(prefix)]
    return sample(known or [*made_kernels(kind)], count)


def made_kernels(kind: Kind) -> Iterator[Kernel]:
    for m, n, warps in product((16, 64, 128), (32, 256), (2, 4, 8)):
        yield NamedKernel(kind, "triton", "tiles", (("BLOCK_M", m), ("BLOCK_N", n), ("num_warps", warps)))
        yield NamedKernel(kind, "cudnn", f"e{m}", (("stages", warps), ("tile", n)))


def made_code(kernels: Sequence[Kernel]) -> CodeTable:
    """Facts for every second kernel."""
    random = np.random.default_rng(0)
    return CodeTable({k.name: {c: int(random.integers(0, 400)) for c in CODE_COLUMNS} for k in kernels[::2]})


def pool_of(kind: Kind, kernels: Sequence[Kernel], hardware: Mapping[str, float] = HARDWARE) -> Pool:
    return Pool(kernels, shared_words(kind), problem_fields(kernels[0].op), hardware)


def native_columns(pool: Pool, nodes: Sequence[Node], problems: Sequence[Problem]) -> Any:
    """(problems, kernels, nodes), each value from where native code has it."""
    maker = ProgramMaker(pool.problem_fields)
    places = {i: maker.place(node) for i, node in enumerate(nodes) if node.kind != "kernel"}
    program = NativeProgram.of(maker)
    found = np.empty((len(problems), len(pool.kernels), len(nodes)))
    for row, problem in enumerate(problems):
        inputs = [getattr(problem, name) for name in pool.problem_fields]
        values = dict(zip(places, program.values(inputs, list(places.values())), strict=True))
        for i, node in enumerate(nodes):
            if node.kind == "kernel":
                found[row, :, i] = node.values
            else:
                found[row, :, i] = values[i] if node.partition is None else values[i][node.partition.of]
    return found


@pytest.mark.parametrize("schema", ALL_SCHEMAS, ids=lambda schema: schema.name)
def test_every_column_of_every_schema_bit_for_bit(schema: FeatureSchema) -> None:
    for seed, kind in enumerate(kinds_of(schema)):
        kernels = kernels_by_name(kind) if schema.from_names else some_kernels(kind)
        problems, hardware = random_problems(kind, 25, seed), OF_NVIDIA if schema.from_names else HARDWARE
        pool = pool_of(kind, kernels, hardware)
        code = made_code(kernels).columns([k.name for k in kernels]) if schema.optional else {}
        native = native_columns(pool, pool.trace(schema, schema.names, code), problems)
        rows = pair_columns(problems, kernels)
        rows |= {name: np.tile(column, len(problems)) for name, column in code.items()}
        expected = schema.compute(rows, hardware).reshape(native.shape)
        wrong = [
            name
            for i, name in enumerate(schema.names)
            if (native[:, :, i].view(np.int64) != expected[:, :, i].view(np.int64)).any()
        ]
        assert not wrong, f"{kind}: {wrong}"


def test_the_dependencies_of_a_feature_follow_from_its_formula() -> None:
    kind = FORWARD
    kernels = some_kernels(kind)
    schema = schema_named("grouped_conv_own_1")
    names = ("log2_M", "tile_m", "lds_kib", "log2_tiles_m", "fill_n", "log2_tiles", "vectors_fit")
    nodes = dict(zip(names, pool_of(kind, kernels).trace(schema, names), strict=True))
    assert {name: node.kind for name, node in nodes.items()} == {
        "log2_M": "constant", "tile_m": "kernel", "lds_kib": "kernel", "log2_tiles_m": "interaction",
        "fill_n": "interaction", "log2_tiles": "interaction", "vectors_fit": "interaction",
    }  # fmt: skip

    def classes(*fields: str) -> int:
        return len({tuple(getattr(kernel, field) for field in fields) for kernel in kernels})

    counts = {n: node.partition.count for n, node in nodes.items() if node.partition is not None}
    assert counts["log2_tiles_m"] == classes("tile_m")
    assert counts["fill_n"] == classes("tile_n")
    assert counts["log2_tiles"] == classes("tile_m", "tile_n", "num_groups_to_merge")
    assert counts["vectors_fit"] == len({(min(k.vector_b, 16), min(k.vector_c, 16)) for k in kernels})


def test_values_equal_for_the_whole_pool_are_constants() -> None:
    kind = FORWARD
    kernels = [k for k in some_kernels(kind, 400) if k.tile_m == 64]
    schema = schema_named("grouped_conv_own_1")
    assert {n.kind for n in pool_of(kind, kernels).trace(schema, ["tile_m", "fill_m"])} == {"constant"}


# ---- what cannot be traced -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (lambda t: np.cumsum(t.N), "feature odd: numpy.cumsum cannot be traced"),
        (lambda t: np.sin(t.N), "feature odd: numpy.sin of float columns cannot be traced"),
        (lambda t: np.log2(t.N), "feature odd: numpy.log2 of float columns cannot be traced"),
        (lambda t: np.add.reduce(t.N), "feature odd: numpy.add with reduce or options cannot be traced"),
        (lambda t: t.N if t.N > 1 else t.C, "feature odd: a formula branches on a column's value in Python"),
        (lambda t: t.N + np.arange(3.0), "feature odd: a formula creates an array"),
        (lambda t: np.asarray(t.N, dtype=np.float64), "feature odd: a formula turns a column into a plain"),
        (lambda t: t.N.astype(np.int64) * t.C.astype(np.int64), "numpy.multiply of integer columns"),
        (lambda t: (t.N > 1) + (t.C > 1), "numpy.add of flag columns"),
        (lambda t: t.N.astype(np.int32), r"astype\(int32\) cannot be traced"),
        (lambda t: t.moon, "feature odd: schema s needs the column moon"),
    ],
)
def test_a_formula_that_cannot_be_traced_is_named(formula: Any, message: str) -> None:
    kind = FORWARD
    schema = FeatureSchema("s", "grouped_conv", (Feature("odd", formula, ""),))
    with pytest.raises(ModelError, match=message):
        pool_of(kind, some_kernels(kind, 5)).trace(schema, ["odd"])


def test_a_formula_of_everything_that_can_be_traced() -> None:
    """One formula that numpy and native code agree on, of operations that no schema has yet."""

    def formula(t: FeatureTable) -> Any:
        whole = np.rint(np.sqrt(t.Hi * t.tile_m)) - np.floor(t.Wi / t.tile_n) + np.trunc(-t.C / 7)
        few = (~(t.Hi > t.tile_m)) | ((t.Wi >= 9) & (t.tile_n != 64))
        share = np.divide(t.N, t.K - 64, out=np.ones_like(t.N), where=t.K - 64 > 0)
        whole = np.where(few, np.abs(whole), -whole)
        return whole + few * share + features.log2(t.N % t.tile_k + 1) * np.maximum(share, t.tile_k)

    kind = FORWARD
    kernels, problems = some_kernels(kind, 30), random_problems(kind, 40)
    schema = FeatureSchema("s", "grouped_conv", (Feature("odd", formula, ""),))
    pool = pool_of(kind, kernels)
    native = native_columns(pool, pool.trace(schema, ["odd"]), problems)[:, :, 0]
    expected = schema.compute(pair_columns(problems, kernels), HARDWARE).reshape(native.shape)
    assert (native.view(np.int64) == expected.view(np.int64)).all()


# ---- operations ----------------------------------------------------------------------------------

_WHOLE = st.one_of(st.integers(-50, 50), st.integers(0, 2**31), st.integers(2**51, 2**54)).map(float)
_NUMBERS = st.one_of(
    _WHOLE, st.floats(1e-9, 1e9), st.floats(-60, 60), st.floats(-0.7, 0.7), st.sampled_from([0.5, 1.5, -2.5])
).map(lambda x: x + 0.0)  # never -0.0: which of 0.0 and -0.0 is the larger, numpy leaves open


_ARITY = {"log2": 1, "log": 1, "exp": 1, "expm1": 1, "where": 3}
_ROWS = 6


@given(
    inputs=st.lists(_NUMBERS, min_size=3, max_size=3),
    columns=st.lists(st.lists(_NUMBERS, min_size=_ROWS, max_size=_ROWS), min_size=3, max_size=3),
    single=st.lists(st.booleans(), min_size=3, max_size=3),
)
@settings(max_examples=100)
def test_each_operation_gives_numpys_bits(
    inputs: list[float], columns: list[list[float]], single: list[bool]
) -> None:
    """On one value a problem, and on values of classes with and without such."""
    graph, maker = Graph(), ProgramMaker(tuple("abc"))
    of_problem = [graph.of_problem(name) for name in "abc"]
    mixed = [  # the column itself, but as something that could change with the problem
        graph.apply("maximum", graph.fixed(column), graph.apply("minimum", one, graph.fixed(column)))
        for one, column in zip(of_problem, columns, strict=True)
    ]
    operands = [p if one else m for p, m, one in zip(of_problem, mixed, single, strict=True)]
    values = [
        np.full(_ROWS, x) if one else np.array(c) for x, c, one in zip(inputs, columns, single, strict=True)
    ]
    nodes, expected = [], []
    for name, of_numpy in NUMPY_OF.items():
        arity = _ARITY.get(name, getattr(of_numpy, "nin", 2))
        whole = name == "common_bits"  # of whole numbers only
        for given_to, numbers in ((of_problem, [np.array([x]) for x in inputs]), (operands, values)):
            used = [graph.apply("rint", n) for n in given_to] if whole else given_to
            numbers = [np.rint(x) for x in numbers] if whole else numbers
            with np.errstate(all="ignore"):
                expected.append(np.asarray(of_numpy(*numbers[:arity]), dtype=np.float64))
            nodes.append(graph.apply(name, *used[:arity]))
    places = [maker.place(node) for node in nodes]
    found = NativeProgram.of(maker).values(inputs, places)
    for name, node, native, right in zip(np.repeat(list(NUMPY_OF), 2), nodes, found, expected, strict=True):
        by_row = native if node.partition is None else native[node.partition.of]
        assert _same(np.broadcast_to(by_row, right.shape), right), name


def test_non_integers_have_the_bits_of_the_smallest_integer() -> None:
    """Converting NaN or 1e300 to an integer is undefined in C++, and processor-dependent in numpy."""
    least = -(2.0**63)
    for value, as_integer in (
        (np.nan, least), (np.inf, least), (-np.inf, least), (1e300, least), (-1e300, least), (2.0**63, least),
        (least, least), (-1.0, -1.0), (2.0**62, 2.0**62), (6.9, 6.0), (-6.9, -6.0), (-0.0, 0.0),
    ):  # fmt: skip
        graph, maker = Graph(), ProgramMaker(("a", "b"))
        place = maker.place(graph.apply("common_bits", graph.of_problem("a"), graph.of_problem("b")))
        program = NativeProgram.of(maker)
        for other in (-1.0, np.nan, 3.0):
            inputs = np.array([value, other])
            found = program.values(inputs, [place])[0]
            right = NUMPY_OF["common_bits"](np.array([value]), np.array([other])).astype(np.float64)
            assert _same(np.broadcast_to(found, (1,)), right), (value, other)
            if other == -1.0:
                assert right[0] == as_integer


def _same(a: Any, b: Any) -> bool:
    return bool(
        ((np.ascontiguousarray(a).view(np.int64) == b.view(np.int64)) | (np.isnan(a) & np.isnan(b))).all()
    )


def test_bytes_that_are_not_a_program_are_refused() -> None:
    kind = FORWARD
    pool = pool_of(kind, some_kernels(kind, 20))
    maker = ProgramMaker(pool.problem_fields)
    for node in pool.trace(schema_named("grouped_conv_own_1"), ["log2_tiles", "tail", "vectors_fit"]):
        maker.place(node)
    writer = ByteWriter()
    maker.write(writer)
    good, random = writer.written(), np.random.default_rng(0)
    with pytest.raises(ValueError, match="ends too early"):
        NativeProgram(good[: len(good) // 2])
    refused = 0
    for _ in range(400):  # a damaged program is refused, or runs inside its memory
        data = bytearray(good)
        data[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
        try:
            NativeProgram(bytes(data))
        except ValueError:
            refused += 1
    assert refused > 50
