"""The architectures that can be traced: their families and resolutions."""

from __future__ import annotations

import fnmatch
import hashlib
import importlib
import importlib.util
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from tile_oracle.errors import HarnessError

LIBRARIES = ("torch", "torchvision", "timm")
SAMPLE = "sample"
ALL = "all"

_TRANSFORMERS = frozenset(
    (
        *("beit", "cait", "convit", "crossvit", "deepseek_vit", "deit", "eva", "gemma4_vit", "hiera"),
        *("hieradet_sam2", "mlp_mixer", "mvitv2", "naflexvit", "nest", "pit", "qwen3_vit", "sequencer"),
        *("swin_transformer", "swin_transformer_v2", "swin_transformer_v2_cr", "tnt", "twins"),
        *("vision_transformer", "vision_transformer_relpos", "vision_transformer_sam", "volo", "xcit"),
    )
)
"""Families with a patch embedding and few other convolutions: one architecture represents the family."""

_FAMILY_OF_MODULE = {
    "inception": "inception_v3",
    "maxvit": "maxxvit",
    "mnasnet": "efficientnet",
    "mobilenetv2": "efficientnet",
}
"""torchvision module -> the timm module that defines the same family."""

_LEFT_OUT = frozenset({"torchvision/regnet_y_128gf"})
"""torchvision's regnets cannot be built on the meta device, and the weights of this one take 2.6 GB."""

_DILATED = (
    "timm/efficientnet_b2",
    "timm/regnety_032",
    "timm/res2net50_26w_4s",
    "timm/resnest50d",
    "timm/resnet50",
    "timm/resnetv2_50",
    "timm/resnext50_32x4d",
    "timm/xception65",
    "timm/skresnet34",
    "timm/convnext_tiny",
    "timm/convnextv2_nano",
    "timm/cspdarknet53",
    "timm/nfnet_l0",
    "timm/rexnet_150",
)
"""Backbones also traced with output_stride 8 and 16, as in segmentation: dilation in place of strides."""

_ALTERNATE_EXTENTS = (128, 160, 192, 256, 288, 320, 384, 448, 512)

_VIDEO_RESOLUTIONS: Mapping[str, tuple[tuple[int, int, int], ...]] = {
    "video_resnet": ((16, 112, 112), (8, 160, 160), (32, 128, 171)),
    "video_s3d": ((16, 224, 224), (32, 256, 256), (64, 224, 224)),
    "video_mvit": ((16, 224, 224),),
    "video_swin_transformer": ((16, 112, 112), (32, 224, 224)),
}


@dataclass(frozen=True)
class Architecture:
    """One model of a library.

    family: the module that defines it, or its backbone; whole families are held out. resolutions:
    ([frames,] height, width) in pixels. task: classification, video, detection, segmentation or
    optical_flow. output_stride: the model option of that name, 0 for the default.
    """

    library: str
    name: str
    family: str
    resolutions: tuple[tuple[int, ...], ...]
    task: str = "classification"
    output_stride: int = 0

    @property
    def label(self) -> str:
        option = f"[output_stride={self.output_stride}]" if self.output_stride else ""
        return f"{self.library}/{self.name}{option}"


def import_libraries() -> tuple[ModuleType, ModuleType, ModuleType]:
    """Returns torch, torchvision and timm. Raises HarnessError, with the install command, if one is
    missing."""
    try:
        torch = importlib.import_module("torch")
        _define_torchvision_operators(torch)
        return torch, importlib.import_module("torchvision"), importlib.import_module("timm")
    except ImportError as error:
        raise HarnessError(
            f"tracing needs PyTorch, torchvision and timm ({error}): pip install -e '.[crawl]' "
            "(a CPU build of PyTorch is enough)"
        ) from None


_kept_operators: list[Any] = []


def _define_torchvision_operators(torch: ModuleType) -> None:
    """Makes torchvision importable where its compiled operators do not load, as with some CPU builds of
    torch.

    Its import then fails when it registers fake versions of these two operators. Declaring them first lets
    the import succeed; tracing calls neither. The library object must live as long as the operators.
    """
    if _kept_operators or importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
        _kept_operators.append(None)
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept_operators.append(library)


def library_versions() -> dict[str, str]:
    """Library -> version, without the local part after a plus sign (`2.3.0+cpu` -> `2.3.0`)."""
    return {module.__name__: str(module.__version__).split("+")[0] for module in import_libraries()}


def list_architectures() -> tuple[Architecture, ...]:
    """All architectures that can be traced, sorted by label. Raises HarnessError if a library is missing."""
    _, _, timm = import_libraries()
    found = [*_torchvision_architectures(), *_timm_architectures(timm)]
    known = {architecture.label: architecture for architecture in found}
    for label in _DILATED:
        if label in known:
            found += [
                replace(known[label], output_stride=stride, resolutions=((extent, extent),))
                for stride, extent in ((8, 320), (16, 513))
            ]
    return tuple(sorted((a for a in found if a.label not in _LEFT_OUT), key=lambda a: a.label))


def choose_architectures(
    architectures: Sequence[Architecture], patterns: Iterable[str], per_family: int
) -> tuple[Architecture, ...]:
    """The architectures that match at least one of the patterns, in the given order.

    A pattern is `all`, a label with the wildcards * and ?, or `sample`: of each family per_family
    architectures plus a tenth of its size, evenly spaced over its sorted names; one architecture of a
    transformer family; and all video, detection, segmentation, optical flow and dilated ones. Raises
    HarnessError for a pattern that matches nothing.
    """
    chosen: set[Architecture] = set()
    for pattern in patterns:
        if pattern == SAMPLE:
            matched = _sample(architectures, per_family)
        elif pattern == ALL:
            matched = set(architectures)
        else:
            matched = {a for a in architectures if _matches(a, pattern)}
        if not matched:
            raise HarnessError(
                f"no architecture matches {pattern!r}; a label is such as timm/resnet50, and "
                "--list --architectures 'timm/resnet*' shows what a pattern matches"
            )
        chosen |= matched
    return tuple(architecture for architecture in architectures if architecture in chosen)


def _matches(architecture: Architecture, pattern: str) -> bool:
    name = f"{architecture.library}/{architecture.name}"
    literal_brackets = pattern.replace("[", "[[]")
    return any(fnmatch.fnmatchcase(text, literal_brackets) for text in (name, architecture.label))


def _sample(architectures: Iterable[Architecture], per_family: int) -> set[Architecture]:
    families: dict[tuple[str, str], list[Architecture]] = defaultdict(list)
    chosen = set()
    for architecture in architectures:
        if architecture.output_stride or architecture.task != "classification":
            chosen.add(architecture)
        else:
            families[architecture.library, architecture.family].append(architecture)
    for (_, family), members in families.items():
        wanted = 1 if family in _TRANSFORMERS else per_family + len(members) // 10
        count = min(wanted, len(members))
        chosen |= {members[(2 * i + 1) * len(members) // (2 * count)] for i in range(count)}
    return chosen


def _alternate(name: str, native: int) -> int:
    """Another common extent, chosen by a hash of the name."""
    others = [extent for extent in _ALTERNATE_EXTENTS if extent != native]
    return others[int(hashlib.sha256(name.encode()).hexdigest(), 16) % len(others)]


def _timm_architectures(timm: ModuleType) -> list[Architecture]:
    entry_points = importlib.import_module("timm.models")
    found = []
    for name in timm.list_models():
        module = entry_points.model_entrypoint(name).__module__
        config = entry_points.get_pretrained_cfg(name)
        channels, *extents = config.input_size if config else (3, 224, 224)
        if channels != 3:
            continue
        resolutions = [tuple(extents)]
        if config is not None and not config.fixed_input_size and extents[0] == extents[1]:
            resolutions.append((_alternate(name, extents[0]),) * 2)
        found.append(Architecture("timm", name, module.rsplit(".", 1)[-1], tuple(resolutions)))
    return found


def _torchvision_architectures() -> list[Architecture]:
    models = importlib.import_module("torchvision.models")
    found = []
    for name in models.list_models():
        defined_in = models.get_model_builder(name).__module__.removeprefix("torchvision.models.")
        task, _, module = defined_in.rpartition(".")
        if task == "quantization":
            continue
        family = _FAMILY_OF_MODULE.get(module, module)
        resolutions: tuple[tuple[int, ...], ...]
        if task == "video":
            family = f"video_{module}"
            resolutions = _VIDEO_RESOLUTIONS.get(family, ((16, 112, 112),))
        elif task == "detection":
            family = _backbone_family(name)
            resolutions = ((320, 320),) if "320" in name else ((512, 512), (800, 1344))
        elif task == "segmentation":
            family, resolutions = _backbone_family(name), ((520, 520), (512, 1024))
        elif task == "optical_flow":
            resolutions = ((368, 496),)
        else:
            native = 299 if name == "inception_v3" else 224
            resolutions = ((native, native),)
            if not name.startswith(("vit_", "maxvit_")):
                resolutions += ((_alternate(name, native),) * 2,)
            if name.startswith("swin_v2"):
                family = "swin_transformer_v2"
        found.append(Architecture("torchvision", name, family, resolutions, task or "classification"))
    return found


def _backbone_family(name: str) -> str:
    for part, family in (("mobilenet_v3", "mobilenetv3"), ("vgg", "vgg")):
        if part in name:
            return family
    return "resnet"
