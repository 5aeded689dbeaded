"""Records the convolutions of an architecture on PyTorch's meta device: shapes only, no weights."""

from __future__ import annotations

import importlib
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tile_oracle.errors import ProblemError
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tools.crawl.catalogue import Architecture, import_libraries

_BATCH = 2
"""Batch size of a trace. With two images it is visible whether a dimension scales with the batch."""


@dataclass(frozen=True)
class Trace:
    """The convolutions of one architecture on one image or clip of one resolution.

    layers: distinct convolutions in order of first use, as forward bf16 problems; N is per image. left_out:
    (reason, number) of the convolutions that no such problem describes. error: why the trace failed, or "".
    seconds: time of the trace.
    """

    architecture: str
    family: str
    resolution: tuple[int, ...]
    layers: tuple[GroupedConvProblem, ...] = ()
    left_out: tuple[tuple[str, int], ...] = ()
    error: str = ""
    seconds: float = 0.0

    @property
    def source(self) -> str:
        return f"{self.architecture}@{'x'.join(map(str, self.resolution))}"


def trace(architecture: Architecture, resolution: tuple[int, ...]) -> Trace:
    """Runs the architecture on meta tensors. Any exception becomes the trace's error: some published models
    do not run at some resolutions, and that must not stop a crawl."""
    torch, _, timm = import_libraries()
    started = time.perf_counter()
    layers: dict[GroupedConvProblem, None] = {}
    left_out: Counter[str] = Counter()
    error = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calls = _convolutions(torch, timm, architecture, resolution)
        for call in calls:
            layer = layer_of(*call)
            if isinstance(layer, str):
                left_out[layer] += 1
            else:
                layers.setdefault(layer)
    except Exception as raised:
        error = " ".join(f"{type(raised).__name__}: {raised}".split())[:200]
    return Trace(
        architecture.label,
        architecture.family,
        resolution,
        tuple(layers),
        tuple(sorted(left_out.items())),
        error,
        time.perf_counter() - started,
    )


def _convolutions(
    torch: ModuleType, timm: ModuleType, architecture: Architecture, resolution: tuple[int, ...]
) -> list[tuple[Any, ...]]:
    """(input shape, weight shape, stride, padding, dilation, transposed, output padding, groups) of each
    call. Recorded in PyTorch's dispatcher, below modules and functions, so the padding is the effective
    one."""
    calls: list[tuple[Any, ...]] = []
    convolution = torch.ops.aten.convolution.default
    mode: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode

    class Recorder(mode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            if func is convolution:
                x, weight, _, *geometry = args
                calls.append((tuple(x.shape), tuple(weight.shape), *geometry))
            return func(*args, **(kwargs or {}))

    model = _build(torch, timm, architecture).eval()
    images = torch.empty((_BATCH, 3, *resolution), device="meta")
    with torch.no_grad(), torch.device("meta"), Recorder():
        if architecture.task == "detection":
            model.backbone(images)  # the rest depends on the values of boxes
        elif architecture.task == "optical_flow":
            model(images, images, num_flow_updates=1)
        else:
            model(images)
    return calls


def _build(torch: ModuleType, timm: ModuleType, architecture: Architecture) -> Any:
    options: dict[str, Any] = {}
    if architecture.library == "timm":
        if architecture.output_stride:
            options["output_stride"] = architecture.output_stride
        with torch.device("meta"):
            return timm.create_model(architecture.name, pretrained=False, **options)
    models = importlib.import_module("torchvision.models")
    options["weights"] = None
    if architecture.task in ("detection", "segmentation"):
        options["weights_backbone"] = None
    if architecture.family == "regnet":  # reads its block widths from tensors while it is built
        return models.get_model(architecture.name, **options).to("meta")
    with torch.device("meta"):
        return models.get_model(architecture.name, **options)


def layer_of(
    x: tuple[int, ...],
    weight: tuple[int, ...],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> GroupedConvProblem | str:
    """Converts a call of PyTorch's convolution on a batch of two to the forward bf16 problem of one image.

    Returns the reason as text if there is no such problem. A transposed convolution becomes the convolution
    whose data gradient it is. Shapes as in PyTorch: x (batch, channels, extents), weight (outputs, inputs /
    groups, filter extents).
    """
    ndim = len(x) - 2
    if ndim not in (2, 3):
        return f"{ndim}D"
    if x[0] % _BATCH:
        return "batch folded into another dimension"
    spatial, filter_ = x[2:], weight[2:]
    channels_in, channels_out = x[1], weight[0]
    if transposed:
        channels_in, channels_out = weight[1] * groups, x[1]
        spatial = tuple(
            (i - 1) * s - 2 * p + d * (f - 1) + o + 1
            for i, s, p, d, f, o in zip(
                spatial, stride, padding, dilation, filter_, output_padding, strict=True
            )
        )
    row: dict[str, Any] = {"N": x[0] // _BATCH, "C": channels_in, "K": channels_out, "G": groups}
    axes = zip("dhw"[3 - ndim :], spatial, filter_, stride, padding, dilation, strict=True)
    for axis, i, f, s, p, d in axes:
        row[{"d": "Di", "h": "Hi", "w": "Wi"}[axis]] = i
        row[{"d": "Z", "h": "Y", "w": "X"}[axis]] = f
        row |= {f"stride_{axis}": s, f"pad_{axis}": p, f"dilation_{axis}": d}
    try:
        return GroupedConvProblem("forward", "bf16", ndim, **{k: int(v) for k, v in row.items()})
    except ProblemError as error:
        return str(error)[:100]
