"""Network members of a model: predictions, files, and what adds to an advantage."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.errors import ModelError
from tile_oracle.features.columns import Columns, pair_columns
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model import network as module
from tile_oracle.model.model_text import numbers_of
from tile_oracle.model.network import KERNEL, LEAK, Category, Inputs, Layer, NetworkMember
from tile_oracle.model.pick_reasons import pick_reasons
from tile_oracle.model.ranker import Ranker
from tile_oracle.operations.gemm.problem import GemmProblem

SCHEMA = schema_named("gemm_pool_2")
HARDWARE = hardware_features("sm_90")
KNOWN = "gemm_bf16_rcr_triton.tiles.BLOCK_K=64.BLOCK_M=64.BLOCK_N=64.GROUP_M=8.num_stages=5.num_warps=4"
OTHER = "gemm_bf16_rcr_cublaslt.a66.cluster=3.stages=35.tile=12"
PROBLEM = GemmProblem("bf16", "rcr", 64, 4096, 1024)


def columns(*names: str, problem: GemmProblem = PROBLEM) -> Columns:
    return pair_columns([problem], [parse_kernel_name(name) for name in names])


def feature(name: str, kernel: str) -> float:
    return float(SCHEMA.compute(columns(kernel), HARDWARE, [name])[0, 0])


def member(hidden: int = 0, seed: int = 0, prior: str = "roofline") -> NetworkMember:
    """Two numbers, and a category that the first kernel is of. Without hidden units its output is a sum."""
    inputs = Inputs(
        ("log2_M", "kernel_tile_n"),
        ("kernel_tile_n",),
        np.array([6.0, 5.0]),
        np.array([2.0, 1.0]),
        (Category(("kernel_tile_m", "kernel_waves"), ((64.0, 4.0),)),),
    )
    generator = np.random.default_rng(seed)

    def layer(width: int, outputs: int) -> Layer:
        return Layer(generator.normal(size=(width, outputs)), generator.normal(size=outputs))

    if not hidden:
        network = (Layer(np.array([[0.5], [0.25], [2.0]]), np.array([0.125])),)
        return NetworkMember(SCHEMA, inputs, (network,), prior)
    networks = tuple((layer(3, hidden), layer(hidden, 4), layer(4, 1)) for _ in range(2))
    return NetworkMember(SCHEMA, inputs, networks, prior)


def test_without_hidden_units_it_is_a_weighted_sum_added_to_the_prior() -> None:
    found = member().log_time(columns(KNOWN, OTHER), HARDWARE)
    for score, name, is_known in zip(found, (KNOWN, OTHER), (1.0, 0.0), strict=True):
        tile = np.clip(np.log2(1.0 + feature("kernel_tile_n", name)) - 5.0, -4.0, 4.0)
        expected = feature("roofline", name) + 0.25 * tile + 2.0 * is_known + 0.125
        assert score == pytest.approx(expected, abs=1e-8)


def test_inputs_far_from_the_training_rows_are_cut_off() -> None:
    one, more = (
        member(prior="").log_time(columns(KNOWN, problem=GemmProblem("bf16", "rcr", m, 64, 64)), HARDWARE)[0]
        for m in (1 << 14, 1 << 17)
    )
    assert one == more


def test_hidden_units_are_leaky_and_networks_are_averaged() -> None:
    both = member(hidden=5)
    rows = columns(KNOWN, OTHER)
    features = SCHEMA.compute(rows, HARDWARE, both.inputs.columns)
    is_known = np.array([[1.0], [0.0]])
    total = np.zeros(2)
    for network in both.networks:
        values = np.hstack([both.inputs.numbers(features), is_known])
        for layer in network[:-1]:
            values = values @ layer.weights + layer.bias
            values = np.where(values > 0, values, LEAK * values)
        total += (values @ network[-1].weights + network[-1].bias)[:, 0]
    prior = SCHEMA.compute(rows, HARDWARE, ["roofline"])[:, 0]
    assert both.log_time(rows, HARDWARE) == pytest.approx(prior + total / 2, abs=1e-8)


def test_a_pair_has_the_same_score_in_every_table() -> None:
    net = member(hidden=16)
    alone = [net.log_time(columns(name), HARDWARE)[0] for name in (KNOWN, OTHER)]
    assert net.log_time(columns(KNOWN, OTHER, KNOWN), HARDWARE).tolist() == [*alone, alone[0]]


def test_rows_that_are_computed_in_several_parts_have_the_same_scores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = member(hidden=16)
    problems = [GemmProblem("bf16", "rcr", 1 << n % 12, 64 * (n + 1), 512) for n in range(25)]
    rows = pair_columns(problems, [parse_kernel_name(name) for name in (KNOWN, OTHER)])
    together = net.log_time(rows, HARDWARE)
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 7)
    assert net.log_time(rows, HARDWARE).tolist() == together.tolist()
    assert len(together) == 50
    assert len(set(together.tolist())) > 20


def test_a_file_gives_the_same_scores_to_the_precision_of_its_weights() -> None:
    net = member(hidden=5)
    read = NetworkMember.from_json(json.loads(json.dumps(net.as_json())), [SCHEMA])
    rows = columns(KNOWN, OTHER)
    assert read.log_time(rows, HARDWARE) == pytest.approx(net.log_time(rows, HARDWARE), rel=5e-3)
    again = NetworkMember.from_json(json.loads(json.dumps(read.as_json())), [SCHEMA])
    assert again.log_time(rows, HARDWARE).tolist() == read.log_time(rows, HARDWARE).tolist()


def _cut(document: dict[str, Any]) -> None:
    document["networks"][0][0]["weights"] = document["networks"][0][0]["weights"][:-4]


def _infinite(document: dict[str, Any]) -> None:
    layer = document["networks"][0][0]
    planes = bytearray(zlib.decompress(base64.b64decode(layer["weights"])))
    planes[0], planes[len(planes) // 2] = 0x7C, 0  # the first half float is infinite
    layer["weights"] = base64.b64encode(zlib.compress(bytes(planes))).decode()


@pytest.mark.parametrize(
    "damage",
    [
        _cut,
        _infinite,
        lambda document: document.pop("inputs"),
        lambda document: document.update(networks=[]),
        lambda document: document.update(schema="gemm_own_1"),
        lambda document: document.update(prior="colour"),
        lambda document: document["inputs"].update(mean=[0.0]),
        lambda document: document["inputs"].update(scale=[0.0, 1.0]),
        lambda document: document["inputs"]["columns"].append("colour"),
        lambda document: document["inputs"]["categories"][0].update(values=[[1.0]]),
        lambda document: document["networks"][0][0].update(outputs=0),
        lambda document: document["networks"][0].pop(),
        lambda document: document["networks"][0][0].update(weights="!"),
        lambda document: document["networks"][0][0].update(weights="AAAA"),
    ],
)
def test_a_damaged_file_is_refused(damage: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(json.dumps(member(hidden=5).as_json()))
    damage(document)
    with pytest.raises(ModelError, match="network"):
        NetworkMember.from_json(document, [SCHEMA])


@pytest.mark.parametrize("prior", ["roofline", ""])
def test_shares_add_up_to_the_advantage(prior: str) -> None:
    net = member(hidden=32, seed=3, prior=prior)
    picks, others = columns(KNOWN, OTHER), columns(OTHER, KNOWN)
    shares = {name: share for name, share, _, _ in net.shares(picks, others, HARDWARE)}
    advantage = net.log_time(others, HARDWARE) - net.log_time(picks, HARDWARE)
    # The integral over a kink of a hidden unit is not exact.
    assert sum(shares.values()) == pytest.approx(advantage, rel=0.02, abs=0.02)
    assert set(shares) == {"log2_M", "kernel_tile_n", KERNEL} | ({prior} - {""})
    assert shares["log2_M"].tolist() == [0.0, 0.0]


def test_shares_of_a_sum_are_exact() -> None:
    shares = {
        name: (share, pick, other)
        for name, share, pick, other in member().shares(columns(KNOWN), columns(OTHER), HARDWARE)
    }
    assert shares[KERNEL][0] == pytest.approx([-2.0])
    share, pick, other = shares["kernel_tile_n"]
    assert pick == [feature("kernel_tile_n", KNOWN)]
    assert other == [feature("kernel_tile_n", OTHER)]
    difference = np.log2(1 + feature("kernel_tile_n", OTHER)) - np.log2(1 + feature("kernel_tile_n", KNOWN))
    assert share == pytest.approx([0.25 * difference])


def test_reasons_of_a_pick_are_the_networks_shares() -> None:
    net = member()
    ranker = Ranker("sm_90", (net,), {"network": 1.0})
    (reason,) = pick_reasons(ranker, columns(KNOWN), columns(OTHER), most=8)
    advantage = net.log_time(columns(OTHER), HARDWARE) - net.log_time(columns(KNOWN), HARDWARE)
    assert reason.advantage == pytest.approx(advantage[0], abs=1e-6)
    assert {one.name for one in reason.features} == {"kernel_tile_n", "roofline", KERNEL}
    assert next(one for one in reason.features if one.name == KERNEL).advantage == pytest.approx(-2.0)


# Numbers in a model's text are read exactly, and nothing else is.


@given(st.lists(st.floats()))
def test_every_double_comes_back(values: list[float]) -> None:
    found = numbers_of(" ".join(map(repr, values)))
    assert found.dtype == np.float64
    assert np.array_equal(found, np.array(values, dtype=np.float64), equal_nan=True)


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=24), max_size=20))
def test_long_decimals_are_rounded_as_python_rounds_them(values: list[object]) -> None:
    texts = [str(value) for value in values]
    assert np.array_equal(numbers_of(" ".join(texts)), np.array([float(text) for text in texts]))


@pytest.mark.parametrize("text", ["1 2 x", "1,2", "1-2", "x", "1 2-", "1_000", "0x10", "1 -", "e5"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no list of numbers"):
        numbers_of(text)
