"""Properties of the shipped training and validation sets of convolutions."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest

from tile_oracle.judge.slices import slices_of
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, GroupedConvProblem
from tile_oracle.problem_set import ProblemSet, load_problem_set

KINDS = ("training", "held_out")


@cache
def shipped(direction: str, kind: str) -> ProblemSet:
    if kind == "held_out":
        kind = "unseen_300" if direction == "forward" else "validation_300"
    return load_problem_set(f"{direction}_{kind}")


def layers(problem_set: ProblemSet) -> set[GroupedConvProblem]:
    return {dataclasses.replace(p, N=1, direction="forward", dtype="bf16") for p in problem_set.problems}


def architectures(problem_set: ProblemSet) -> set[str]:
    labels = {source.split("@")[0].split("[")[0] for source in problem_set.sources}
    return {label for label in labels if not label.startswith("synthetic:")}


def share(problem_set: ProblemSet, name: str) -> float:
    return sum(name in slices_of(p) for p in problem_set.problems) / len(problem_set.problems)


@pytest.mark.parametrize("direction", DIRECTIONS)
class TestBothKinds:
    def test_counts(self, direction: str) -> None:
        assert len(shipped(direction, "training").problems) >= 1300
        assert len(shipped(direction, "held_out").problems) == 300

    def test_no_architecture_and_no_layer_is_in_both(self, direction: str) -> None:
        validation = shipped(direction, "held_out")
        for other in DIRECTIONS:
            training = shipped(other, "training")
            assert not architectures(training) & architectures(validation)
            if other == direction:
                assert not layers(training) & layers(validation)

    @pytest.mark.parametrize("kind", KINDS)
    def test_direction_dtype_and_sources(self, direction: str, kind: str) -> None:
        problem_set = shipped(direction, kind)
        assert {(p.direction, p.dtype) for p in problem_set.problems} == {(direction, "bf16")}
        for source in problem_set.sources:
            assert source.startswith(("timm/", "torchvision/", "synthetic:"))
            assert source.startswith("synthetic:") or "@" in source
        synthetic = sum(source.startswith("synthetic:") for source in problem_set.sources)
        assert synthetic < 0.35 * len(problem_set.problems)

    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind_of_layer_is_there_and_none_drowns_the_rest(self, direction: str, kind: str) -> None:
        problem_set = shipped(direction, kind)
        count = len(problem_set.problems)
        assert sum(p.G > 1 for p in problem_set.problems) >= 0.2 * count
        assert share(problem_set, "dilated") * count >= 8
        assert share(problem_set, "3D") * count >= 12
        assert share(problem_set, "odd channels") >= 0.05
        assert share(problem_set, "depthwise") >= 0.1
        assert share(problem_set, "1x1") < 0.35


class TestThePublishedSet:
    def test_it_is_the_published_list_without_its_repetition(self) -> None:
        published = load_problem_set("forward_validation_300")
        numbers = {int(source.removeprefix("published/")) for source in published.sources}
        assert numbers == set(range(300)) - {212}
        assert {(p.direction, p.dtype, p.ndim) for p in published.problems} == {("forward", "bf16", 2)}
        assert sum(p.G == 1 for p in published.problems) == 230

    def test_none_of_its_layers_is_trained_on(self) -> None:
        assert not layers(load_problem_set("forward_validation_300")) & layers(shipped("forward", "training"))
