"""Conversion of a model's text to a forest, and the errors for invalid texts."""

from __future__ import annotations

import gzip
import struct

import lightgbm as lgb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.selector.native_scorer import Constant, PerClass, PerKernel, Scorer
from tile_oracle.errors import ModelError
from tile_oracle.files.data_files import data_folder
from tile_oracle.model.model_text import Forest

SHIPPED = data_folder("models") / "grouped_conv_forward_bf16_gfx950" / "model_correction.lgbm.gz"


@pytest.fixture(scope="module")
def text() -> str:
    random = np.random.default_rng(0)
    x = np.column_stack([random.normal(size=300), random.integers(0, 50, 300)])
    label = x[:, 0] + (x[:, 1] % 3)
    params = {"verbosity": -1, "num_leaves": 9, "seed": 1, "min_data_per_group": 1, "cat_smooth": 1}
    data = lgb.Dataset(x, label=label, categorical_feature=[1], params=params)
    return str(lgb.train(params, data, 4).model_to_string())


def test_the_arrays_are_those_of_lightgbm(text: str) -> None:
    forest = Forest.from_text(text)
    booster = lgb.Booster(model_str=text)
    assert forest.feature_names == tuple(booster.feature_name())
    leaves = [
        booster.get_leaf_output(tree, leaf)
        for tree, count in enumerate(forest.num_leaves)
        for leaf in range(count)
    ]
    assert forest.leaf_value.tolist() == leaves
    assert forest.category_sets
    assert len(forest.threshold) == len(leaves) - 4


def test_equal_models_give_equal_bytes(text: str) -> None:
    once = Forest.from_text(text).to_bytes()
    assert Forest.from_text(lgb.Booster(model_str=text).model_to_string()).to_bytes() == once
    assert len(once) < len(text)


def test_a_shipped_model_is_read() -> None:
    text = gzip.decompress(SHIPPED.read_bytes()).decode()
    forest = Forest.from_text(text)
    assert len(forest.num_leaves) == lgb.Booster(model_str=text).num_trees() > 0
    assert not forest.category_sets


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("end of trees", "", "not a complete LightGBM model"),
        ("num_class=1", "num_class=3", "num_class=3"),
        ("max_feature_idx=1", "max_feature_idx=7", "feature_names has 2 entries for 8 features"),
        ("is_linear=0", "is_linear=1", "linear_tree=false"),
        ("num_leaves=9", "num_leaves=0", "no leaves"),
        ("num_leaves=9", "num_leaves=8", "has 8 values where 7 belong"),
        ("num_leaves=9", "num_leaves=x", "num_leaves of tree 0 is 'x'"),
        ("cat_boundaries=0", "cat_boundaries=1", "cat_boundaries of tree 0 do not fit"),
    ],
)
def test_invalid_model_texts(text: str, old: str, new: str, said: str) -> None:
    assert old in text
    with pytest.raises(ModelError, match=said) as raised:
        Forest.from_text(text.replace(old, new, 1), "model.lgbm")
    assert "model.lgbm" in str(raised.value)
    assert "\n" not in str(raised.value)


def with_part(data: bytes, place: int, value: int) -> bytes:
    """A forest's bytes with one number of its header changed."""
    return data[: 8 + 4 * place] + struct.pack("<I", value) + data[12 + 4 * place :]


class Bytes(Forest):
    """A forest whose bytes are given: what Scorer hands to the engine."""

    def to_bytes(self) -> bytes:
        return bytes(getattr(self, "given"))  # noqa: B009


def read(data: bytes, forest: Forest) -> Scorer:
    fake = Bytes(**{name: getattr(forest, name) for name in forest.__dataclass_fields__})
    object.__setattr__(fake, "given", data)
    return Scorer([fake], 1, [Constant(), Constant()])


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (0, 2, "version 2"),
        (1, 12345, "checksum"),
        (3, 9, "bytes where its header says"),
        (4, 2**32 - 1, "claims 4294967295"),
    ],
)
def test_bytes_with_another_header_are_refused(text: str, place: int, value: int, said: str) -> None:
    forest = Forest.from_text(text)
    with pytest.raises(ModelError, match=said):
        read(with_part(forest.to_bytes(), place, value), forest)


@settings(max_examples=120)
@given(data=st.data())
def test_damaged_trees_are_refused_or_score_a_number(text: str, data: st.DataObject) -> None:
    """Any numbers in the arrays give a one-line error or a forest of complete trees, never a crash."""
    forest = Forest.from_text(text)
    name = data.draw(
        st.sampled_from(["split_feature", "threshold", "decision_type", "left_child", "right_child"])
    )
    array = getattr(forest, name).copy()
    at = data.draw(st.integers(0, len(array) - 1))
    array[at] = (
        data.draw(st.sampled_from([0, 1, 2, 3, 5, 12, 17, 100]))
        if array.dtype.kind == "u"
        else (data.draw(st.sampled_from([-100, -9, -2, -1, 0, 1, 7, 8, 2**31 - 1])))
    )
    changed = Forest(**{key: getattr(forest, key) for key in forest.__dataclass_fields__} | {name: array})
    said = ""
    try:
        scorer = Scorer([changed], 1, [Constant(), Constant()])
    except ModelError as error:
        said = str(error)
    else:
        assert np.isfinite(scorer.score(np.zeros(2), {})).all()
    assert not said or (said.startswith("not a forest: ") and "\n" not in said)


@pytest.mark.parametrize("cut", [0, 1, 8, 39, 40, 200, -1])
def test_cut_bytes_are_refused(text: str, cut: int) -> None:
    forest = Forest.from_text(text)
    with pytest.raises(ModelError, match="not a forest"):
        read(forest.to_bytes()[:cut], forest)


def test_inconsistent_input_is_refused(text: str) -> None:
    forest = Forest.from_text(text)
    classes = np.array([0, 3], dtype=np.uint32)
    for features, said in (
        ([Constant()], "2 features, not 1"),
        ([Constant(), PerClass(classes, 3)], "candidate 1 into a class"),
        ([Constant(), PerClass(classes, 0)], "no classes"),
        ([Constant(), PerKernel(classes[:1], np.zeros(4))], "1 candidates, not 2"),
    ):
        with pytest.raises(ModelError, match=said):
            Scorer([forest], 2, features)
    with pytest.raises(ModelError, match="no forest"):
        Scorer([], 2, [])
    with pytest.raises(ModelError, match="must be best, scalar"):
        Scorer([forest], 2, [Constant(), Constant()], "sse9")
    scorer = Scorer([forest], 2, [Constant(), PerClass(classes, 4)])
    with pytest.raises(ModelError, match="3 values for 4 classes"):
        scorer.score(np.zeros(2), {1: np.zeros(3)})


def test_the_environment_names_the_instruction_set(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forest = Forest.from_text(text)
    monkeypatch.setenv("TILE_ORACLE_ISA", "scalar")
    assert Scorer([forest], 2, [Constant(), Constant()]).isa == "scalar"
    monkeypatch.setenv("TILE_ORACLE_ISA", "mmx")
    with pytest.raises(ModelError, match="TILE_ORACLE_ISA is mmx"):
        Scorer([forest], 2, [Constant(), Constant()])
