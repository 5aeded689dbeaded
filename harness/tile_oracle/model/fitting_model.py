"""Which model ranks the kernels of a kind of problem: `models_for`, for all that looks for a model.

A model fits if it was trained for the kind and can rank at least half of the candidates by its features
(`_rankable`). Of several that fit, the first of these differences decides:

1. one that was trained on at least half of the candidates, or does not say on which kernels;
2. one's own before a shipped one;
3. one that was measured on this device;
4. one that names the problem's layout among those of its training;
5. one that was trained on more of the candidates, in tenths of them;
6. of models of other devices, the one that learned from more problems;
7. the newer one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from tile_oracle.errors import ModelError
from tile_oracle.features.schemas.configuration import family_of
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.kernel.named import lacks_fields
from tile_oracle.libraries.libraries import is_library_name
from tile_oracle.model.model_folder import ModelSpec, is_of_another, read_spec
from tile_oracle.model.predictor import kind_refusal
from tile_oracle.model.roofline import NAME as ROOFLINE
from tile_oracle.model.store import MANY_DEVICES, model_folders, read_manifest, shipped_models
from tile_oracle.operation import operation_named
from tile_oracle.problem import Kind, kind_text

Rank = tuple[bool, bool, bool, bool, int, int, str]


@dataclass(frozen=True)
class Considered:
    """A model folder that was considered. why_not: why it was not taken, "" for the one that was. fits:
    whether it could have been. candidates, trained: how many kernels are to be ranked, and how many of them
    it was trained on; None if its folder does not list them."""

    folder: Path
    why_not: str = ""
    fits: bool = True
    candidates: int = 0
    trained: int | None = None
    rank: Rank = (False, False, False, False, 0, 0, "")
    """What decides, in the order of the module's list; larger is better."""

    @cached_property
    def origin(self) -> str:
        """Whose it is, and how many of the candidates it knows."""
        whose = "shipped" if _is_shipped(self.folder) else f"your own, {self.folder}"
        if not self.candidates:
            return whose
        if self.trained is None:
            return f"{whose}; does not list the kernels that it was trained on"
        return f"{whose}; trained on {self.trained:,} of the {self.candidates:,} candidates"

    def as_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "taken": not self.why_not,
            "why_not": self.why_not,
            "candidates": self.candidates,
            "trained_on_candidates": self.trained,
        }


@dataclass(frozen=True)
class ModelsFor:
    """The models for a kind of problem on an architecture. considered: those of the operation, those that fit
    first, the best of them in front."""

    kind: Kind
    arch: str
    considered: tuple[Considered, ...] = ()

    @property
    def taken(self) -> Considered | None:
        """The model that ranks this kind; None if none fits."""
        return next((one for one in self.considered if not one.why_not), None)

    @property
    def folder(self) -> Path | None:
        return None if self.taken is None else self.taken.folder

    @property
    def required(self) -> Path:
        """The model's folder. Raises ModelError if none fits."""
        if self.folder is None:
            raise ModelError(f"{self.why_none}: use --model")
        return self.folder

    @property
    def why_none(self) -> str:
        """That no model fits and why those of the architecture do not, in one line; "" if one does."""
        if self.taken is not None:
            return ""
        kind = f"{kind_text(self.kind)} on {self.arch}"
        near = [one for one in self.considered if read_spec(one.folder).arch == self.arch]
        reasons = "; ".join(f"{one.folder.name} {one.why_not}" for one in near)
        return f"no model fits {kind}: {reasons}" if near else f"no model was trained for {kind}"


def lines_on(looked: Iterable[ModelsFor]) -> list[str]:
    """Returns what was taken for these kinds, how many of the candidates it was trained on, and what else
    fits."""
    taken: dict[Path, list[Considered]] = {}
    others: dict[Path, str] = {}
    for one in (each for found in looked for each in found.considered):
        if not one.why_not:
            taken.setdefault(one.folder, []).append(one)
        elif one.fits:
            others.setdefault(one.folder, one.why_not)
    return [
        *(f"model: {folder.resolve().name} ({_origin(several)})" for folder, several in taken.items()),
        *(f"model: not {folder}, which {why}" for folder, why in others.items() if folder not in taken),
    ]


def _origin(several: Sequence[Considered]) -> str:
    """Whose a model is, and how many of the candidates of several kinds it was trained on."""
    known = [one.trained for one in several if one.trained is not None]
    return replace(
        several[0],
        candidates=sum(one.candidates for one in several),
        trained=sum(known) if len(known) == len(several) else None,
    ).origin


def named_for(folder: Path, kind: Kind, arch: str, kernels: Collection[Kernel] = ()) -> ModelsFor:
    """Returns the model that was asked for by its name. Raises ModelError for a folder that cannot be
    read."""
    known = Considered(folder, candidates=len(kernels), trained=_known(folder, kernels))
    return ModelsFor(kind, arch, (known,))


def models_for(
    kind: Kind,
    arch: str,
    places: Iterable[Path] | None = None,
    *,
    kernels: Collection[Kernel] = (),
    device: str = "",
) -> ModelsFor:
    """Returns the models for this kind of problem, and which of them is taken.

    places: the folders of model folders (default: that of the shipped ones). kernels: the candidates of this
    kind; none: those of the model's own pool. device: the device's name, "" for any; a model for `cpu` is
    valid on the CPUs of its measurements alone. A folder of the roofline model is not considered. Raises
    ModelError for a folder that cannot be read.
    """
    operation = operation_named(kind.op).model_type
    folders = dict.fromkeys(
        folder.resolve()
        for place in ((shipped_models(),) if places is None else places)
        for folder in model_folders(place)
    )
    specs = ((folder, read_spec(folder)) for folder in folders if not is_of_another(folder, operation))
    found = [
        _considered(folder, spec, kind, arch, kernels, device)
        for folder, spec in specs
        if spec.op_type == operation and spec.targets != (ROOFLINE,)
    ]
    fitting = sorted((one for one in found if one.fits), key=lambda one: one.folder.name)
    fitting.sort(key=lambda one: one.rank, reverse=True)
    others = [replace(one, why_not=_after(one, fitting[0], device)) for one in fitting[1:]]
    return ModelsFor(kind, arch, (*fitting[:1], *others, *(one for one in found if not one.fits)))


def pool_of_model(folder: Path, kind: Kind) -> tuple[Kernel, ...]:
    """Returns the kernels of a kind among which a model picks, by name: those that it was trained on, without
    the algorithms of libraries, since only the library says which of them a problem has. Raises
    ModelError."""
    prefix = operation_named(kind.op).kernel_prefix(kind)
    names = (name for name in _trained(folder) or () if name.startswith(prefix) and not is_library_name(name))
    return tuple(kernel for kernel in map(parse_kernel_name, sorted(names)) if kernel.kind == kind)


def rankable(folder: Path, kernels: Sequence[Kernel]) -> Sequence[Kernel]:
    """Returns those of the kernels that have features for a model. Raises ModelError."""
    if read_spec(folder).ranks_named:
        return kernels
    return [kernel for kernel in kernels if not lacks_fields(kernel)]


def _considered(
    folder: Path, spec: ModelSpec, kind: Kind, arch: str, kernels: Collection[Kernel], device: str
) -> Considered:
    """Returns a model of the operation: why it does not fit, or what decides between it and others that
    do."""
    why = _refusal(spec, kind, arch, device)
    able = len(kernels) if why else _rankable(folder, spec, kernels)
    if 2 * able < len(kernels):
        what = "knows the functions of" if spec.ranks_named else "ranks kernels by their fields, which has"
        why = f"{what} {able:,} of the {len(kernels):,} candidates"
    if why:
        return Considered(folder, why, fits=False)
    trained, manifest = _known(folder, kernels), read_manifest(folder)
    share = 1.0 if trained is None or not kernels else trained / len(kernels)
    rank = (
        share >= 0.5,
        not _is_shipped(folder),
        device in spec.devices,
        kind.words.get("layout") in spec.layouts,
        round(10 * share),
        0 if device in spec.devices else int(manifest.get("unique_shapes") or 0),
        str(manifest.get("timestamp") or ""),
    )
    return Considered(folder, "", True, len(kernels), trained, rank)


def _after(one: Considered, other: Considered, device: str) -> str:
    """Returns why another one is taken."""
    pairs = enumerate(zip(one.rank, other.rank, strict=True))
    first = next((place for place, (mine, theirs) in pairs if mine != theirs), len(one.rank))
    known = f"was trained on {one.trained} of the {one.candidates} candidates"
    return (
        f"fits, but {known}",
        "fits, but is shipped, and your own comes first",
        f"fits, but was not measured on {device}",
        "fits, but does not say that it knows the layout",
        f"fits, but {known}, the other on {other.trained}",
        "fits, but learned from fewer problems",
        f"fits, but is older ({one.rank[-1][:16].replace('T', ' ') or 'undated'})",
        "fits, but its name comes later",
    )[first]


def _refusal(spec: ModelSpec, kind: Kind, arch: str, device: str) -> str:
    """Returns why a model of this operation is not for the kind, architecture or device; "" if it is."""
    if spec.arch != arch:
        return f"was trained for {spec.arch}, not {arch}"
    against = kind_refusal(spec, kind)
    layout = kind.words.get("layout")
    if against is not None:
        return against
    if spec.layouts and layout is not None and layout not in spec.layouts:
        return f"was trained for layout {' and '.join(spec.layouts)}, not {layout}"
    if arch == MANY_DEVICES and device and spec.devices and device not in spec.devices:
        return f"was measured on {' and '.join(spec.devices)}, not on {device}"
    return ""


def _rankable(folder: Path, spec: ModelSpec, kernels: Collection[Kernel]) -> int:
    """Returns how many of the kernels a model can rank by its features.

    A model of families reads the fields of their kernels. A model of several sources reads numbers from any
    name, but a function or a pipeline is a code that means something only if it was trained (`family_of`).
    """
    if not spec.ranks_named:
        return sum(not lacks_fields(kernel) for kernel in kernels)
    trained = _trained(folder)
    if trained is None:
        return len(kernels)
    known = _families(trained)
    return sum(family_of(kernel.name) in known for kernel in kernels)


def _known(folder: Path, kernels: Collection[Kernel]) -> int | None:
    """Returns how many of the kernels a model was trained on; None if its folder does not list them."""
    trained = _trained(folder)
    return None if trained is None else sum(kernel.name in trained for kernel in kernels)


def _trained(folder: Path) -> frozenset[str] | None:
    names = read_manifest(folder).get("kernels")
    return frozenset(map(str, names)) if names else None


@lru_cache(maxsize=64)
def _families(names: frozenset[str]) -> frozenset[str]:
    return frozenset(map(family_of, names))


def _is_shipped(folder: Path) -> bool:
    return folder.resolve().parent == shipped_models().resolve()
