"""Sampling problem sets from synthetic traces."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, GroupedConvProblem
from tools.crawl.select import (
    PINNED_TO_TRAINING,
    TRAINING_LIMITS,
    VALIDATION_LIMITS,
    Selection,
    SelectionOptions,
    allocate,
    band_of,
    hold_out,
    kind_of,
    select,
)
from tools.crawl.trace import Trace

FAMILIES = ("resnet", *(f"net{letter}" for letter in "abcdefghijk"), "video_a", "video_b")
EVERYWHERE = "forward-bf16-n1-c40-k48-i30x30-f3x3-p1"


def network(family: str) -> Trace:
    """A made-up network with layers of every kind; widths are its own, but for one layer all share."""
    width = 16 + 8 * FAMILIES.index(family)
    ids = [EVERYWHERE]
    for extent in (56, 28, 14, 7):
        size, deep = f"i{extent}x{extent}", f"i8x{extent}x{extent}"
        ids += [
            f"forward-bf16-n1-c3-k{width}-{size}-f3x3-s2-p1",
            f"forward-bf16-n1-c{width}-k{4 * width}-{size}-f1x1",
            f"forward-bf16-n1-c{width}-k{width}-{size}-f3x3-p1",
            f"forward-bf16-n1-c{width}-k{2 * width}-{size}-f3x3-s2-p1",
            f"forward-bf16-n1-c{width}-k{width}-{size}-f3x3-p2-d2",
            f"forward-bf16-n1-g{width}-c{width}-k{width}-{size}-f3x3-p1",
            f"forward-bf16-n1-g4-c{4 * width}-k{4 * width}-{size}-f3x3-p1",
            f"forward-bf16-n1-c{width}-k{width}-{size}-f5x5-p2",
            f"forward-bf16-n1-c{width + 3}-k{width}-{size}-f3x3-p1",
        ]
        if family.startswith("video_"):
            ids.append(f"forward-bf16-n1-c{width}-k{width}-{deep}-f3x3x3-p1")
    layers = tuple(GroupedConvProblem.from_id(id_) for id_ in ids)
    return Trace(f"lib/{family}50", family, (224, 224), layers)


TRACES = tuple(network(family) for family in FAMILIES)


@cache
def chosen(direction: str = "forward", traces: tuple[Trace, ...] = TRACES, **options: object) -> Selection:
    counts = {"training_count": 400, "validation_count": 90}
    return select(traces, SelectionOptions(direction, **counts | options))


def layers(problems: object) -> set[GroupedConvProblem]:
    return {dataclasses.replace(c.problem, N=1, direction="forward", dtype="bf16") for c in problems}


class TestAllocate:
    shares = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 100), max_size=8)
    capacity = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 60), max_size=8)

    @given(st.integers(0, 300), shares, capacity)
    def test_nothing_is_lost_and_nothing_overflows(self, total, shares, capacity) -> None:
        given_ = allocate(total, shares, capacity)
        assert set(given_) == set(capacity)
        assert sum(given_.values()) == min(total, sum(capacity.values()))
        assert all(0 <= given_[key] <= capacity[key] for key in capacity)

    @given(st.integers(1, 300), st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 50), min_size=1))
    def test_with_room_for_all_each_gets_its_share_to_within_one(self, total, shares) -> None:
        given_ = allocate(total, shares, dict.fromkeys(shares, total))
        for key, share in shares.items():
            assert abs(given_[key] - total * share / sum(shares.values())) < 1

    def test_unused_shares_go_to_the_others_in_proportion(self) -> None:
        assert allocate(90, {"a": 1, "b": 1, "c": 2}, {"a": 6, "b": 99, "c": 99}) == {
            "a": 6,
            "b": 28,
            "c": 56,
        }


class TestHoldOut:
    def test_a_quarter_of_the_image_and_of_the_video_families_leaves(self) -> None:
        held_out = hold_out(FAMILIES, seed=1)
        assert len(held_out) == 3 + 1
        assert sum(family.startswith("video_") for family in held_out) == 1

    @given(st.sets(st.sampled_from(FAMILIES)), st.integers())
    def test_pinned_families_never_leave_and_order_does_not_matter(self, families, seed) -> None:
        held_out = hold_out(families, seed)
        assert held_out == hold_out(sorted(families, reverse=True), seed)
        assert held_out <= families - PINNED_TO_TRAINING

    def test_another_seed_holds_out_others(self) -> None:
        assert len({hold_out(FAMILIES, seed) for seed in range(9)}) > 1

    def test_one_family_alone_is_for_training(self) -> None:
        assert hold_out(["neta"], seed=1) == frozenset()


@pytest.mark.parametrize("direction", DIRECTIONS)
class TestSelect:
    def test_the_numbers_asked_for_are_chosen_each_once(self, direction: str) -> None:
        selection = chosen(direction)
        for side, count in ((selection.training, 400), (selection.validation, 90)):
            assert len({c.problem for c in side}) == len(side) == count
            assert {(c.problem.direction, c.problem.dtype) for c in side} == {(direction, "bf16")}

    def test_no_layer_is_on_both_sides_at_any_batch_size(self, direction: str) -> None:
        selection = chosen(direction)
        assert not layers(selection.training) & layers(selection.validation)

    def test_sources_say_which_side_a_problem_may_be_on(self, direction: str) -> None:
        selection = chosen(direction)
        assert set(selection.held_out) == hold_out(FAMILIES, 1)
        held_out = {f"lib/{family}50@224x224" for family in selection.held_out}
        synthetic = {c.source for c in selection.validation if c.source.startswith("synthetic:")}
        assert {c.source for c in selection.validation} == held_out | synthetic
        assert not {c.source for c in selection.training} & held_out

    @pytest.mark.slow
    def test_a_layer_that_both_sides_have_is_for_training(self, direction: str) -> None:
        everywhere = GroupedConvProblem.from_id(EVERYWHERE)
        selection = chosen(direction, training_count=10**6, validation_count=10**6, synthetic=False)
        assert everywhere in layers(selection.training)
        assert everywhere not in layers(selection.validation)
        assert selection.shared_layers == 1

    @pytest.mark.slow
    def test_it_depends_on_neither_the_order_of_the_traces_nor_the_run(self, direction: str) -> None:
        shuffled = tuple(random.Random(3).sample(TRACES, len(TRACES)))
        again = chosen(direction, traces=shuffled)
        assert (again.training, again.validation) == (
            chosen(direction).training,
            chosen(direction).validation,
        )

    @pytest.mark.slow
    def test_another_seed_chooses_others(self, direction: str) -> None:
        assert {c.problem for c in chosen(direction, seed=2).training} != {
            c.problem for c in chosen(direction).training
        }

    def test_every_kind_gets_its_share(self, direction: str) -> None:
        selection = chosen(direction)
        for side in (selection.training, selection.validation):
            kinds = Counter(kind_of(c.problem) for c in side)
            assert {"1x1", "3x3", "depthwise", "grouped", "strided", "dilated", "3D"} <= set(kinds)
            assert max(kinds.values()) < 0.3 * len(side)
            assert kinds["depthwise"] + kinds["grouped"] > 0.2 * len(side)

    def test_no_problem_is_above_its_sets_limits(self, direction: str) -> None:
        selection = chosen(direction, batch_sizes=(1, 4096))
        for side, limits in (
            (selection.training, TRAINING_LIMITS),
            (selection.validation, VALIDATION_LIMITS),
        ):
            assert all(c.problem.bytes <= limits.max_bytes for c in side)
            assert any(c.problem.N == 4096 for c in side)

    def test_much_work_on_little_data_is_limited_too(self, direction: str) -> None:
        ids = [f"forward-bf16-n1-c{c}-k{c}-i56x56-f7x7-p3" for c in (2048, 700, 500)]
        ranks = [GroupedConvProblem.from_id(id_) for id_ in ids]  # 1290, 151 and 77 GFLOP
        traces = tuple(
            dataclasses.replace(t, layers=tuple(dataclasses.replace(p, Wi=56 + i) for p in ranks))
            for i, t in enumerate(TRACES)
        )
        everything = {"training_count": 10**6, "validation_count": 10**6, "synthetic": False}
        selection = chosen(direction, traces=traces, batch_sizes=(1,), **everything)
        assert {p.C for p in layers(selection.training)} == {700, 500}
        assert {p.C for p in layers(selection.validation)} == {500}

    def test_without_additions_all_is_from_the_traces(self, direction: str) -> None:
        selection = chosen(direction, synthetic=False)
        assert all(c.source.startswith("lib/") for c in (*selection.training, *selection.validation))

    def test_families_take_turns(self, direction: str) -> None:
        sources = Counter(c.source for c in chosen(direction, synthetic=False).training)
        assert len(sources) == len(FAMILIES) - len(hold_out(FAMILIES, 1))
        assert max(sources.values()) < 3 * min(sources.values())


@pytest.mark.slow
def test_a_trace_that_failed_moves_no_other_family_to_the_other_side() -> None:
    broken = tuple(dataclasses.replace(t, layers=(), error="no") if t.family == "netd" else t for t in TRACES)
    assert "netd" in chosen().held_out
    assert set(chosen(traces=broken).held_out) == set(chosen().held_out) - {"netd"}


def test_the_three_directions_choose_different_layers() -> None:
    forward, data, weight = (layers(chosen(direction).training) for direction in DIRECTIONS)
    assert len(forward & data) < 0.8 * len(forward)
    assert len(data & weight) < 0.8 * len(data)


def test_traces_of_one_family_make_a_training_set_only() -> None:
    selection = chosen(traces=(network("neta"),), synthetic=False)
    assert selection.training
    assert not selection.validation


@pytest.mark.parametrize(
    ("id_", "kind"),
    [
        ("forward-bf16-n1-c8-k8-i9x9x9-f1x1x1", "3D"),
        ("forward-bf16-n1-g8-c8-k8-i9x9-f3x3-d2", "dilated"),
        ("forward-bf16-n1-g8-c8-k16-i9x9-f3x3", "depthwise"),
        ("forward-bf16-n1-g4-c8-k8-i9x9-f3x3", "grouped"),
        ("forward-bf16-n1-c3-k8-i9x9-f7x7-s2", "few inputs"),
        ("forward-bf16-n1-c12-k8-i9x9-f7x7", "odd channels"),
        ("forward-bf16-n1-c8-k8-i9x9-f1x7", "large filter"),
        ("forward-bf16-n1-c8-k8-i9x9-f1x1-s2", "strided"),
        ("forward-bf16-n1-c8-k8-i9x9-f1x1", "1x1"),
        ("forward-bf16-n1-c8-k8-i9x9-f3x3-p1", "3x3"),
        ("forward-bf16-n1-c8-k8-i9x9-f2x2", "other"),
    ],
)
def test_the_rarest_property_is_the_kind(id_: str, kind: str) -> None:
    assert kind_of(GroupedConvProblem.from_id(id_)) == kind


def test_bands_of_work() -> None:
    assert [band_of(flops) for flops in (0, 999_999, 10**6, 10**9, 10**11, 10**12)] == [0, 0, 1, 4, 6, 6]
