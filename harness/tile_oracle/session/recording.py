"""The recorded measurements that a session replays: finding and describing them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.errors import ProblemError, RecordError
from tile_oracle.judge.baseline import slug
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.libraries.libraries import LIBRARIES
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.store import (
    model_folders,
    named_model_folder,
    oracle_device,
    read_manifest,
    shipped_models,
)
from tile_oracle.pickers.installed import file_of, picker_names
from tile_oracle.problem_set import ProblemSet, load_problem_sets, problem_set_of_ids
from tile_oracle.record.dataset import load_records, measurements_folder
from tile_oracle.record.dataset_file import digest_of, read_about
from tile_oracle.record.final import check_caches
from tile_oracle.record.journal import names_in, parts_in
from tile_oracle.record.run import purpose_of
from tile_oracle.session.models import AUTO, WORDS
from tile_oracle.session.options import SessionOptions

if TYPE_CHECKING:
    import pandas as pd

KERNEL_SET, KERNEL_FILTER = "kernel set", "kernel filter"
"""The keys of the measured pool in a run's purpose and in an oracle file's footer."""
KERNEL_SOURCES = "kernels"
"""The key of --kernels in a run's purpose; absent without it."""

_ARCH_ORDER = ("gfx950", "gfx942", "gfx90a", "sm_90", "cpu")


@dataclass(frozen=True)
class Recording:
    """Measurements of one device, to be replayed.

    paths: where they are. why: how they were chosen. kernel_set, kernel_filter, kernel_sources (--kernels):
    the measured pool, "" if unknown. digest: SHA-256 over the files' content.
    """

    paths: tuple[Path, ...]
    why: str
    records: pd.DataFrame
    arch: str
    target: str
    device: str
    kernel_set: str
    kernel_filter: str
    digest: str
    kernel_sources: str = ""

    def forget_records(self) -> None:
        """Frees the memory of the records; `kernels` stays."""
        self.kernels  # noqa: B018  read from the records
        # No slice of them: it would keep them all.
        object.__setattr__(self, "records", type(self.records)(columns=self.records.columns))

    def check(self, problem_set: ProblemSet, kernels: Iterable[Kernel]) -> None:
        """Raises RecordError if no pair of a set was recorded: such a session would judge nothing."""
        of_set = self.records["problem"].isin([problem.id for problem in problem_set.problems])
        of_pool = self.records["kernel"].isin([kernel.name for kernel in kernels])
        if not (of_set & of_pool).any():
            lacks = "none of its kernels" if of_set.any() else "none of its problems"
            raise RecordError(
                f"--problem-set {problem_set.name} cannot be replayed from {self.paths[0]}: {lacks} "
                f"{'(see --kernel-set) ' if of_set.any() else ''}is recorded there"
            )

    def problem_set(self) -> ProblemSet:
        """Returns all recorded problems, in the order of the records. Raises RecordError."""
        try:
            return problem_set_of_ids(map(str, self.records["problem"].unique()), self.paths[0])
        except ProblemError as error:
            raise RecordError(f"{self.paths[0]}: {error}") from None

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """The recorded kernels, by name."""
        return tuple(parse_kernel_name(str(name)) for name in sorted(self.records["kernel"].unique()))

    def of_libraries(self) -> dict[str, tuple[Kernel, ...]]:
        """Problem id -> the libraries' algorithms that were recorded for it."""
        recorded = {kernel.name: kernel for kernel in self.kernels if kernel.source in LIBRARIES}
        if not recorded:
            return {}
        pairs = self.records[["problem", "kernel"]].astype(str)
        pairs = pairs[pairs["kernel"].isin(list(recorded))].drop_duplicates()
        found: dict[str, list[Kernel]] = {}
        for problem, name in zip(pairs["problem"], pairs["kernel"], strict=True):
            found.setdefault(problem, []).append(recorded[name])
        return {problem: tuple(kernels) for problem, kernels in found.items()}

    def lines(self) -> list[str]:
        """Returns the source of the records, for the session's header."""
        import pandas as pd

        records = self.records
        times = pd.to_datetime(records["time"], utc=True).dropna()
        days = sorted({f"{time:%Y-%m-%d}" for time in (times.min(), times.max())}) if len(times) else []
        when = f"measured {' to '.join(days)}" if days else "at unknown times"
        pairs = int((~records.duplicated(["problem", "kernel"])).sum())
        return [
            f"records: {pairs:,} pairs of {records['problem'].nunique():,} problems and "
            f"{records['kernel'].nunique():,} kernels, {when} on {self.device or 'an unnamed device'} "
            f"({self.target or self.arch})",
            *(f"oracle: {path}" for path in self.paths),
        ]


def replays(options: SessionOptions) -> bool:
    """Returns whether the session replays records. Raises RecordError for contradictory options."""
    if options.oracle is not None and options.target not in ("auto", "replay"):
        raise RecordError(
            f"--oracle replays records, --target {options.target} measures: give one of them, not both"
        )
    return options.oracle is not None or options.target == "replay"


def find_recording(options: SessionOptions) -> Recording:
    """Returns the records of --oracle, or those shipped with a model for these problem sets.

    Raises RecordError if there are none, or several devices; ModelError if --model names no folder,
    ProblemSetError for an unknown set.
    """
    return _load(*(_shipped(options) if options.oracle is None else ((options.oracle,), "")))


def pool_of_sources(paths: Sequence[Path]) -> tuple[str, str]:
    """Returns the kernel set and filter that runs and oracle files were measured with; "" if they do not
    state them or disagree. Raises RecordError for any other source."""
    abouts = [_about(path) for path in paths]
    return _agreed(abouts, KERNEL_SET), _agreed(abouts, KERNEL_FILTER)


def _load(paths: Sequence[Path], why: str) -> Recording:
    records = load_records(paths, compact=True)
    if records.empty:
        raise RecordError(f"{paths[0]} holds no record: there is nothing to replay")
    check_caches(records)
    kernel_set, kernel_filter = pool_of_sources(paths)
    arch = _one(records, "arch", paths[0])
    if not arch:
        raise RecordError(
            f"{paths[0]} does not name the architecture of its records: record or import it again"
        )
    return Recording(
        paths=tuple(paths),
        why=why,
        records=records,
        arch=arch,
        target=_one(records, "target", paths[0]),
        device=_one(records, "device", paths[0]),
        kernel_set=kernel_set,
        kernel_filter=kernel_filter,
        digest=_digest(paths),
        kernel_sources=_agreed([_about(path) for path in paths], KERNEL_SOURCES),
    )


def _one(records: pd.DataFrame, column: str, path: Path) -> str:
    found = sorted({str(value) for value in records[column].dropna().unique()} - {""})
    if len(found) > 1:
        raise RecordError(
            f"{path} has records of {len(found)} {column}s ({', '.join(found[:3])}): an oracle has one; "
            "`tile-oracle runs merge --format oracle --device NAME` selects it"
        )
    return found[0] if found else ""


def _about(path: Path) -> dict[str, Any]:
    return purpose_of(path) if path.is_dir() else read_about(path)


def _agreed(abouts: Sequence[dict[str, Any]], name: str) -> str:
    found = {str(about.get(name) or "") for about in abouts}
    return found.pop() if len(found) == 1 else ""


def _digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        folder = measurements_folder(path) if measurements_folder(path).is_dir() else path
        for file in parts_in(folder) or names_in(folder, "", ".parquet") or [path]:
            digest.update(digest_of(file).encode())
    return digest.hexdigest()


# ---- oracles shipped with models --------------------------------------------------------------------


@dataclass(frozen=True)
class _Shipped:
    """own: whether the model is the user's. accepted: whether a baseline lies beside it. created: when the
    model was trained."""

    arch: str
    model: str
    device: str
    path: Path
    own: bool
    accepted: bool
    created: str


def _shipped(options: SessionOptions) -> tuple[tuple[Path, ...], str]:
    """Returns a file for every problem set, all of one device.

    Of several devices it is one with an oracle of the user's own models, then the first architecture in the
    order of --target auto (GPUs before CPUs, whose records are one machine's), then the one that has a
    baseline, then that of the newest model.
    """
    sets = load_problem_sets(options.problem_set or "")
    names = [part.name for part in sets.parts or (sets,)]
    of_set = {name: _oracles_of(options, name) for name in names}
    devices = [
        {(one.arch, one.device): one for one in reversed(of_set[name])} for name in dict.fromkeys(names)
    ]
    common = sorted(set(devices[0]).intersection(*devices[1:]))
    common.sort(key=lambda key: min(found[key].created for found in devices), reverse=True)
    common.sort(
        key=lambda key: (
            not all(found[key].own for found in devices),
            _place(key[0]),
            not all(found[key].accepted for found in devices),
        )
    )
    if not common:
        lacking = next((name for name in names if not of_set[name]), names[0])
        whose = f"the model {options.model}" if options.model != AUTO else "any model"
        raise RecordError(
            f"no oracle is shipped with {whose} for --problem-set {lacking}"
            + (f" --kernel-set {options.kernel_set}" if options.kernel_set_asked else "")
            + ": give --oracle a run's folder or a file of `tile-oracle runs merge --format oracle`"
        )
    chosen = [found[common[0]] for found in devices]
    why = f"shipped with {' and '.join(dict.fromkeys(one.model for one in chosen))}"
    others = [
        f"--model {one.model} ({one.device})" if one.model != chosen[0].model else f"--oracle {one.path}"
        for one in (devices[0][key] for key in common[1:])
    ]
    if others:
        why += f" ({common[0][1]}); {' or '.join(others)} replays another device's"
    return tuple(one.path for one in chosen), why


def _place(arch: str) -> int:
    return _ARCH_ORDER.index(arch) if arch in _ARCH_ORDER else len(_ARCH_ORDER)


def _oracles_of(options: SessionOptions, problem_set: str) -> list[_Shipped]:
    """Returns the oracle files for a set: those of the user's own models first, and within a model the
    default pool."""
    wanted = {slug(name) for name in (options.set_name, options.kernel_set)}
    found = []
    for folder in _model_folders(options):
        # The folder in which `baseline_path` puts the baselines of a model of this name.
        paths = (folder.parent / slug(folder.name)).glob(f"*/{slug(problem_set)}/*.parquet")
        if options.kernel_set_asked:
            paths = (path for path in paths if path.stem in wanted)
        for path in sorted(paths, key=lambda path: (path.stem != "default", path)):
            arch, created = read_spec(folder).arch, str(read_manifest(folder).get("timestamp") or "")
            own = folder.parent != shipped_models().resolve()
            device = oracle_device(path)
            accepted = path.with_suffix(".json").is_file()
            found.append(_Shipped(arch, folder.name, device, path, own, accepted, created))
    return found


def _model_folders(options: SessionOptions) -> list[Path]:
    """Returns the folder of --model; all of the user's and all shipped ones if it names none."""
    roots = tuple(dict.fromkeys((options.models_dir, shipped_models())))
    if options.model not in (*WORDS, *picker_names()) and file_of(options.model) is None:
        named = named_model_folder(options.model, roots)
        folders = [] if named is None else [named]
    else:
        folders = [folder for root in roots for folder in model_folders(root)]
    return list(dict.fromkeys(folder.resolve() for folder in folders))
