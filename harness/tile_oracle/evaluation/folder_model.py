"""Model folders that rank many pairs: by native code where it is worthwhile, else by LightGBM."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from tile_oracle.arch import load_arch
from tile_oracle.errors import BuildError, ModelError, TargetError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.features.feature_table import Array
from tile_oracle.judge.pair_numbers import pair_numbers
from tile_oracle.judge.picker import FOLDER, NO_MODEL, Origin, Picker, Pool
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.kernel.named import lacks_fields, source_of
from tile_oracle.libraries.libraries import is_library_name
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.predictor import Predictor, ranker_of
from tile_oracle.problem import Kind, Problem, problem_from_id
from tile_oracle.process.cores import usable_cores
from tile_oracle.record.dataset_file import digest_of
from tile_oracle.record.journal import names_in
from tile_oracle.record.not_built import not_built
from tile_oracle.selector import native_library
from tile_oracle.selector.ranker import NativeRanker
from tile_oracle.terminal.progress_line import steps
from tile_oracle.training.neighbours import CONSTRAINT

_log = logging.getLogger(__name__)

WORTH_COMPILING = 50_000
"""Pairs from which LightGBM takes longer than compiling the native library once."""

PROBLEMS_AT_ONCE = 50
"""For a single one, making the columns takes most of the time."""


def _may_be_native(pairs: int) -> bool:
    """Raises BuildError if it cannot be found out."""
    return pairs >= WORTH_COMPILING or native_library.is_compiled()


@dataclass(eq=False)
class FolderModel:
    """The model in a folder. All engines give the same numbers, bit for bit; of networks to single precision.

    pairs: how many pairs will be predicted in all; for few, native code is used only if the library is
    compiled already. code: facts of further kernels' binaries.
    """

    folder: Path
    pairs: int = 0
    code: CodeTable = field(default_factory=CodeTable)
    threads: int = 1
    _natives: dict[Kind, NativeRanker | None] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def predictor(self) -> Predictor:
        """Raises ModelError like Predictor.load."""
        return Predictor.load(self.folder, self.threads).knowing(self.code)

    @cached_property
    def orders_only(self) -> bool:
        """Whether predictions only order kernels within a problem."""
        return ranker_of(self.folder, read_spec(self.folder), lambda folder, parts: ()).orders_only

    @cached_property
    def ranks_named(self) -> bool:
        """Whether kernels of Triton files and libraries have features, too."""
        return read_spec(self.folder).ranks_named

    def rank(self, problems: Sequence[Problem], pool: Pool) -> tuple[pd.DataFrame | None, Origin]:
        """Returns predicted TFLOPS of the candidates that have features. Raises ModelError like
        Predictor.predict."""
        by_kind: dict[Kind, list[tuple[Problem, Sequence[Kernel]]]] = {}
        for problem in problems:
            kernels = pool(problem)
            if not self.ranks_named:
                kernels = [kernel for kernel in kernels if not lacks_fields(kernel)]
            if kernels:
                by_kind.setdefault(problem.kind, []).append((problem, kernels))
        for kind, several in by_kind.items():
            self._load_native(kind, several)
        parts = [
            (kind, several[first : first + PROBLEMS_AT_ONCE])
            for kind, several in by_kind.items()
            for first in range(0, len(several), PROBLEMS_AT_ONCE)
        ]
        sizes = [float(sum(len(kernels) for _, kernels in part)) for _, part in parts]
        # By number: there is a name for every pair, and few different ones.
        pairs = [pair for several in by_kind.values() for pair in several]
        ids = {name: n for n, name in enumerate(sorted({problem.id for problem, _ in pairs}))}
        names = {name: n for n, name in enumerate(sorted({one.name for _, pool in pairs for one in pool}))}
        problem_codes, kernel_codes, tflops, spent_us = [], [], [], []
        for kind, part in steps("ranking the kernels", parts, sizes):
            some, pools = [problem for problem, _ in part], [kernels for _, kernels in part]
            native = self._natives.get(kind)
            if native is None:
                self.predictor  # noqa: B018  loading it is no part of a pick
            began = time.perf_counter()
            predicted = self._tflops(some, pools, native)
            spent_us.append(1e6 * (time.perf_counter() - began) / len(some))
            problem_codes.append(
                np.repeat([ids[one.id] for one in some], [len(kernels) for kernels in pools])
            )
            kernel_codes.append([names[kernel.name] for kernels in pools for kernel in kernels])
            tflops.append(predicted)
        if not tflops:
            return None, Origin(NO_MODEL, detail="no kernel of the kernel set is built")
        table = pd.DataFrame(
            {
                "problem": pd.Categorical.from_codes(np.concatenate(problem_codes), list(ids)),
                "kernel": pd.Categorical.from_codes(np.concatenate(kernel_codes), list(names)),
                "predicted_tflops": np.concatenate(tflops),
            }
        )
        us = float(np.median(spent_us))
        return table, Origin(FOLDER, self.folder.name, order_only=self.orders_only, us_per_pick=us)

    def _tflops(
        self, problems: Sequence[Problem], pools: Sequence[Sequence[Kernel]], native: NativeRanker | None
    ) -> Array:
        """Returns predicted TFLOPS of each problem's own kernels, one problem after the other."""
        if native is not None and all(native.knows(kernels) for kernels in pools):
            try:
                return np.concatenate(
                    [native.tflops_among(one, kernels) for one, kernels in zip(problems, pools, strict=True)]
                )
            except ModelError as error:
                _log.debug("native predictions of %s: %s", self.folder, error)
        return np.concatenate(self.predictor.predict_each(problems, pools))

    def _load_native(self, kind: Kind, asked: Sequence[tuple[Problem, Sequence[Kernel]]]) -> None:
        """Loads native code for the kernels of all these problems. A library offers other kernels for each
        problem: a single one, after others, is no reason to load the model again."""
        loaded = self._natives.get(kind)
        if kind in self._natives and (
            loaded is None or len(asked) == 1 or all(loaded.knows(kernels) for _, kernels in asked)
        ):
            return
        kernels = list({kernel.name: kernel for _, pool in asked for kernel in pool}.values())
        self._natives[kind] = None
        try:
            if _may_be_native(self.pairs):
                self._natives[kind] = NativeRanker.load(self.folder, kernels, self.code)
        except (BuildError, ModelError, TargetError) as error:
            _log.debug("no native predictions of %s: %s", self.folder, error)


@dataclass(frozen=True)
class Folders(Picker):
    """A model folder for each kind of problem. detail: as of the origin."""

    arch: str
    detail: str = ""
    _loaded: dict[Path, FolderModel] = field(default_factory=dict, init=False, repr=False, compare=False)

    def rank(
        self, problems: Sequence[Problem], pool: Pool, records: pd.DataFrame | None = None
    ) -> tuple[pd.DataFrame | None, Origin]:
        """As Picker.rank; problems of other kinds are not ranked."""
        ranked, order_only, spent_us = [], False, []
        for folder in dict.fromkeys(self.folders.values()):
            own = [problem for problem in problems if self.folders.get(problem.kind) == folder]
            if records is None:
                model = self._loaded.setdefault(folder, FolderModel(folder))
            else:  # timing has ended, so prediction may use all cores
                pairs = sum(len(pool(problem)) for problem in own)
                model = FolderModel(folder, pairs, CodeTable.of(records), usable_cores())
            table, origin = model.rank(own, pool)
            ranked += [] if table is None else [table]
            order_only |= origin.order_only
            spent_us += [origin.us_per_pick] * len(own) if origin.us_per_pick is not None else []
        if not ranked:
            return None, Origin(NO_MODEL, detail="no kernel of the kernel set is built")
        table = pd.concat(ranked, ignore_index=True) if len(ranked) > 1 else ranked[0]
        identity = ""
        others = {read_spec(folder).arch for folder in self.folders.values()} - {self.arch, ""}
        detail = f"trained for {' and '.join(sorted(others))}, not {self.arch}" if others else self.detail
        if records is not None:
            table, identity = without_refused(table, records, self.arch), self._identity()
        us = float(np.mean(spent_us)) if spent_us else None
        origin = Origin(FOLDER, self.name, detail, order_only=order_only, us_per_pick=us, identity=identity)
        return table, origin

    def _identity(self) -> str:
        digests = []
        for folder in dict.fromkeys(self.folders.values()):
            digest = hashlib.sha256()
            for path in (path for path in names_in(folder, "", "") if path.is_file()):
                digest.update(f"{path.name} {digest_of(path)}\n".encode())
            digests.append(f"{folder.name} sha256:{digest.hexdigest()[:12]}")
        return ", ".join(digests)


def pool_recorded(records: pd.DataFrame) -> Pool:
    """Returns the recorded kernels that are built, for the problems that they match; those of libraries for
    the problems that they were recorded for, since a library offers others for each."""
    lacking = not_built(records)
    kernels = {name: parse_kernel_name(name) for name in sorted(set(map(str, records["kernel"].unique())))}
    own = pool_of([one for name, one in kernels.items() if name not in lacking and not is_library_name(name)])
    offered: dict[str, list[Kernel]] = {}
    of_libraries = records[records["kernel"].isin([name for name in kernels if is_library_name(name)])]
    pairs = (
        of_libraries[["problem", "kernel"]].drop_duplicates().astype(str).sort_values(["problem", "kernel"])
    )
    for problem_id, name in pairs.itertuples(index=False):
        offered.setdefault(problem_id, []).append(kernels[name])
    return lambda problem: [*own(problem), *offered.get(problem.id, ())]


def pool_of(kernels: Sequence[Kernel]) -> Pool:
    """Returns those of the kernels that are for a problem."""
    by_kind: dict[Kind, Sequence[Kernel]] = {}

    def pool(problem: Problem) -> Sequence[Kernel]:
        if problem.kind not in by_kind:
            by_kind[problem.kind] = [kernel for kernel in kernels if kernel.matches(problem)]
        return by_kind[problem.kind]

    return pool


def without_refused(rankings: pd.DataFrame, records: pd.DataFrame, arch: str) -> pd.DataFrame:
    """Returns the rankings without the kernels that the architecture's rules refuse for the problem, because
    a dispatcher checks the rules first (as tile_oracle.registry does). A kernel of a Triton file or a library
    is a candidate where it was measured, and its declaration does not exclude the problem. Pairs that were
    measured as ok are kept in any case."""
    ok = (records["status"] == "ok").to_numpy(dtype=bool)
    ranked, recorded = pair_numbers(rankings, records)
    of_files = [name for name in rankings["kernel"].unique() if source_of(name)]
    if of_files:
        refuses = records["detail"].fillna("").str.startswith(CONSTRAINT)
        excluded = (records["status"] == "unsupported") & refuses
        known = np.isin(ranked, recorded[(~excluded).to_numpy(dtype=bool)])
        kept = known | ~rankings["kernel"].isin(of_files).to_numpy()
        rankings, ranked = rankings[kept].reset_index(drop=True), ranked[kept]
    doubtful = rankings[~np.isin(ranked, recorded[ok])]
    judge, refused = load_arch(arch), []
    pairs = doubtful[["problem", "kernel"]].astype(str)
    for row, problem_id, name in zip(doubtful.index, pairs["problem"], pairs["kernel"], strict=True):
        if judge.problem_refusal(parse_kernel_name(name), problem_from_id(problem_id)) is not None:
            refused.append(row)
    return rankings.drop(index=refused).reset_index(drop=True) if refused else rankings
