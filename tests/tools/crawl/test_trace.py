"""Tracing real architectures. All tests except those of the geometry need PyTorch and the model libraries."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tile_oracle.errors import HarnessError
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tools.crawl.catalogue import (
    Architecture,
    choose_architectures,
    import_libraries,
    list_architectures,
)
from tools.crawl.collect import collect
from tools.crawl.select import hold_out
from tools.crawl.trace import layer_of, trace
from tools.crawl.trace_file import TraceFile

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("timm") is None,
    reason="PyTorch and timm are an optional extra: pip install -e '.[crawl]'",
)

RESNET18 = [
    "c3-k64-i224x224-f7x7-s2-p3",
    "c64-k64-i56x56-f3x3-p1",
    "c64-k128-i56x56-f3x3-s2-p1",
    "c128-k128-i28x28-f3x3-p1",
    "c64-k128-i56x56-f1x1-s2",
    "c128-k256-i28x28-f3x3-s2-p1",
    "c256-k256-i14x14-f3x3-p1",
    "c128-k256-i28x28-f1x1-s2",
    "c256-k512-i14x14-f3x3-s2-p1",
    "c512-k512-i7x7-f3x3-p1",
    "c256-k512-i14x14-f1x1-s2",
]


def test_without_pytorch_the_error_says_how_to_install_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(HarnessError, match=r"pip install -e '\.\[crawl\]'"):
        import_libraries()


def test_patterns_choose_labels() -> None:
    plain = [Architecture("timm", name, "resnet", ((224, 224),)) for name in ("resnet50", "resnet50t")]
    dilated = [dataclasses.replace(plain[0], output_stride=stride) for stride in (16, 8)]
    everything = (plain[0], *dilated, plain[1])
    assert choose_architectures(everything, ["timm/resnet50"], 1) == (plain[0], *dilated)
    assert choose_architectures(everything, ["timm/resnet50[output_stride=8]"], 1) == (dilated[1],)
    assert choose_architectures(everything, ["timm/resnet50?"], 1) == (plain[1],)
    assert choose_architectures(everything, ["timm/resnet50?", "timm/*50"], 1) == everything
    assert choose_architectures(everything, ["all"], 1) == everything
    assert choose_architectures(everything, ["sample"], 1) == (*dilated, plain[1])
    with pytest.raises(HarnessError, match="no architecture matches 'resnet'"):
        choose_architectures(everything, ["resnet"], 1)


class TestLayerOf:
    def test_a_grouped_convolution(self) -> None:
        shapes = (2, 12, 20, 30), (6, 4, 3, 5)
        layer = layer_of(*shapes, [2, 1], [1, 2], [1, 3], False, [0, 0], 3)
        assert isinstance(layer, GroupedConvProblem)
        assert layer.id == "forward-bf16-n1-g3-c12-k6-i20x30-f3x5-s2x1-p1x2-d1x3"

    def test_three_dimensions_and_several_inputs_an_image(self) -> None:
        layer = layer_of((6, 8, 4, 9, 9), (16, 8, 3, 1, 1), [1] * 3, [1, 0, 0], [1] * 3, False, [0] * 3, 1)
        assert isinstance(layer, GroupedConvProblem)
        assert layer.id == "forward-bf16-n3-c8-k16-i4x9x9-f3x1x1-p1x0x0"

    @pytest.mark.slow
    @given(
        st.integers(1, 30),
        st.integers(1, 5),
        st.integers(1, 4),
        st.integers(0, 3),
        st.integers(1, 3),
        st.integers(0, 2),
    )
    def test_a_transposed_one_is_the_convolution_that_it_undoes(
        self, extent, taps, stride, pad, dilation, extra
    ) -> None:
        assume(extra < stride)
        image = (2, 6, extent, extent), (6, 4, taps, taps)
        layer = layer_of(*image, [stride] * 2, [pad] * 2, [dilation] * 2, True, [extra] * 2, 1)
        wide = (extent - 1) * stride - 2 * pad + dilation * (taps - 1) + extra + 1
        if wide < 1:
            assert isinstance(layer, str)
        else:
            assert isinstance(layer, GroupedConvProblem)
            assert (layer.C, layer.K, layer.Hi, layer.Ho) == (4, 6, wide, extent)

    def test_invalid_problems_are_refused_with_a_reason(self) -> None:
        assert layer_of((2, 8, 50), (8, 8, 3), [1], [1], [1], False, [0], 1) == "1D"
        folded = layer_of((1, 16, 9, 9), (16, 8, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 2)
        assert folded == "batch folded into another dimension"


@needs_torch
class TestRealArchitectures:
    def test_the_convolutions_of_a_well_known_network(self) -> None:
        made = trace(Architecture("torchvision", "resnet18", "resnet", ()), (224, 224))
        assert [layer.id.removeprefix("forward-bf16-n1-") for layer in made.layers] == RESNET18
        assert (made.error, made.left_out) == ("", ())
        assert made.source == "torchvision/resnet18@224x224"

    def test_padding_is_the_one_that_runs(self) -> None:
        made = trace(Architecture("timm", "tf_mobilenetv3_small_minimal_100", "mobilenetv3", ()), (224, 224))
        # "same" padding of a strided filter is one-sided: one pixel is added before the convolution
        assert made.layers[0].id == "forward-bf16-n1-c3-k16-i225x225-f3x3-s2"

    def test_dilation_takes_the_place_of_stride(self) -> None:
        made = trace(Architecture("timm", "resnet50", "resnet", (), output_stride=8), (320, 320))
        assert {max(layer.dilation) for layer in made.layers} == {1, 2, 4}

    def test_clips(self) -> None:
        made = trace(Architecture("torchvision", "r3d_18", "video_resnet", (), "video"), (16, 112, 112))
        assert {layer.ndim for layer in made.layers} == {3}
        assert made.layers[0].id == "forward-bf16-n1-c3-k64-i16x112x112-f3x7x7-s1x2x2-p1x3x3"

    def test_a_batch_that_became_groups_is_left_out_and_counted(self) -> None:
        made = trace(Architecture("timm", "tf_efficientnet_cc_b0_4e", "efficientnet", ()), (224, 224))
        assert dict(made.left_out)["batch folded into another dimension"] > 0
        assert all(layer.N == 1 for layer in made.layers)

    def test_a_model_that_does_not_run_says_why(self) -> None:
        made = trace(Architecture("torchvision", "vit_b_16", "vision_transformer", ()), (200, 200))
        assert (made.layers, made.error[:14]) == ((), "AssertionError")

    def test_every_architecture_of_the_sample_has_a_family_and_a_resolution(self) -> None:
        everything = list_architectures()
        assert len(everything) > 1000
        sample = choose_architectures(everything, ["sample"], 3)
        assert 300 < len(sample) < 500
        assert {a.family for a in sample} == {a.family for a in everything}
        assert all(a.resolutions for a in sample)
        held_out = hold_out({a.family for a in sample}, 1)
        assert any(a.task == "video" and a.family in held_out for a in sample)

    def test_nothing_is_traced_twice(self, tmp_path) -> None:
        architectures = [
            Architecture("torchvision", "squeezenet1_1", "squeezenet", ((224, 224),)),
            Architecture("torchvision", "resnet18", "resnet", ((224, 224), (160, 160))),
        ]
        file, seen = TraceFile(tmp_path / "t.jsonl", {"torch": "1"}), []
        first = collect(architectures[:1], file, seen.append)
        both = collect(architectures, TraceFile(file.path, {"torch": "1"}), seen.append)
        assert both[0].layers == first[0].layers
        assert [(p.done, p.total, p.trace.source) for p in seen] == [
            (1, 1, "torchvision/squeezenet1_1@224x224"),
            (2, 3, "torchvision/resnet18@224x224"),
            (3, 3, "torchvision/resnet18@160x160"),
        ]
        smaller = collect(architectures[1:], file, seen.append, resolutions=((64, 96),))
        assert [t.source for t in smaller] == ["torchvision/resnet18@64x96"]
