"""Which model folder fits a pool: `find_model`, `find_model_of`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tile_oracle.model.model_folder import ModelSpec, read_spec
from tile_oracle.model.roofline import NAME as ROOFLINE
from tile_oracle.model.store import MANY_DEVICES, kernels_trained_on, model_folders, shipped_models
from tile_oracle.operation import operation_named
from tile_oracle.problem import Kind


def find_model_of(
    kind: Kind, arch: str, device: str = "", models: Path | None = None, *, named: Collection[str] = ()
) -> Path | None:
    """`find_model` for a kind of problem."""
    direction, ndim, layout = (kind.words.get(name) for name in ("direction", "ndim", "layout"))
    return find_model(
        None if direction is None else str(direction),
        kind.dtype,
        arch,
        op=operation_named(kind.op).model_type,
        ndim=None if ndim is None else int(ndim),
        layout=None if layout is None else str(layout),
        device=device,
        models=models,
        named=named,
    )


def find_model(
    direction: str | None,
    dtype: str,
    arch: str,
    op: str = "grouped_conv",
    ndim: int | None = None,
    layout: str | None = None,
    device: str = "",
    models: Path | None = None,
    *,
    named: Collection[str] = (),
) -> Path | None:
    """The folder in models/ that fits this kind of problem, the architecture and the kernels, or None.

    named: the names of the candidates that come from Triton files or libraries. With any of these, the folder
    is one of a model that ranks such kernels and was trained on at least half of them; of several, on the
    most. Without, it is one of a model of native kernels. A model that was trained on layouts fits these
    alone; one that lists none (its records had no layouts, or it is older) fits all, and comes after those
    that list the layout. Among equals the first by name counts.

    device: the CPU's name; a model for `cpu` that lists the CPUs of its measurements is used for these only.
    "": any. A folder of the roofline model is not considered. Raises ModelError for a folder that cannot be
    read.
    """
    best: tuple[int, bool] | None = None
    found = None
    for folder in model_folders(models if models is not None else shipped_models()):
        spec = read_spec(folder)
        fits = (
            (spec.op_type, spec.dtype, spec.arch) == (op, dtype, arch)
            and spec.targets != (ROOFLINE,)
            and spec.ranks_named == bool(named)
            and spec.direction in (None, direction)
            and (not spec.ndims or ndim in (None, *spec.ndims))
            and (not spec.layouts or layout in (None, *spec.layouts))
            and _of_device(spec, arch, device)
        )
        if not fits:
            continue
        known = len(kernels_trained_on(folder).intersection(named)) if named else 0
        if 2 * known < len(named):
            continue
        rank = (known, layout in spec.layouts)
        if best is None or rank > best:
            best, found = rank, folder
    return found


def _of_device(spec: ModelSpec, arch: str, device: str) -> bool:
    """Whether a model is valid on a device: models of CPUs are, on those of their measurements."""
    return arch != MANY_DEVICES or not (device and spec.devices) or device in spec.devices
