"""Predictions of a model folder for many pairs: by native code where it is worthwhile, else by LightGBM."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from tile_oracle.errors import BuildError, ModelError, TargetError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.features.feature_table import Array
from tile_oracle.kernel import Kernel
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.predictor import Predictor, ranker_of
from tile_oracle.problem import Problem
from tile_oracle.selector import native_library
from tile_oracle.selector.forest_scores import ForestScores, scorer_library
from tile_oracle.selector.ranker import NativeRanker
from tile_oracle.selector.selector_file import NativeModel

_log = logging.getLogger(__name__)

WORTH_COMPILING = 50_000
"""Pairs from which LightGBM takes longer than compiling the native library once."""


def load_predictor(folder: Path, pairs: int, threads: int = 1, code: CodeTable | None = None) -> Predictor:
    """Load the model in a folder to predict this number of pairs. Python computes the features; native code
    scores the trees, or LightGBM, which imports slowly. code: as for Predictor.knowing. Raises ModelError
    like Predictor.load.
    """
    code = CodeTable() if code is None else code
    try:
        if _may_be_native(pairs):
            model = NativeModel.load(folder, code)
            scorer_library()
            engines = {name: ForestScores(forests) for name, forests in model.forests.items()}
            return Predictor(folder, model.spec, model.ranker.scored_by(engines), threads)
    except (BuildError, ModelError, TargetError) as error:
        _log.debug("no native scores of %s: %s", folder, error)
    return Predictor.load(folder, threads).knowing(code)


def _may_be_native(pairs: int) -> bool:
    """Raises BuildError if it cannot be found out."""
    return pairs >= WORTH_COMPILING or native_library.is_compiled()


@dataclass
class FolderPredictor:
    """A model folder's predicted TFLOPS. Both engines give the same numbers, bit for bit.

    code: facts of further kernels' binaries. pairs: how many pairs will be predicted in all; for few, native
    code is used only if the library is compiled already.
    """

    folder: Path
    code: CodeTable
    pairs: int
    threads: int = 1
    _native: dict[tuple[str, ...], NativeRanker | None] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def _predictor(self) -> Predictor:
        return load_predictor(self.folder, self.pairs, self.threads, self.code)

    @cached_property
    def orders_only(self) -> bool:
        """Whether predictions only order kernels within a problem."""
        return ranker_of(self.folder, read_spec(self.folder), lambda folder, parts: ()).orders_only

    @cached_property
    def ranks_named(self) -> bool:
        """Whether kernels of Triton files and libraries have features, too."""
        return read_spec(self.folder).ranks_named

    def predict(self, problems: Sequence[Problem], kernels: Sequence[Kernel]) -> Array:
        """Predicted TFLOPS, (problems, kernels). Raises ModelError like Predictor.predict."""
        native = self._native_ranker(kernels) if problems and kernels else None
        if native is not None:
            try:
                return np.stack([native.tflops(problem) for problem in problems])
            except ModelError as error:
                _log.debug("native predictions of %s: %s", self.folder, error)
        return self._predictor.predict(problems, kernels)

    def predict_each(self, problems: Sequence[Problem], pools: Sequence[Sequence[Kernel]]) -> list[Array]:
        """Predicted TFLOPS of each problem's own kernels. Raises ModelError like Predictor.predict."""
        return self._predictor.predict_each(problems, pools)

    def _native_ranker(self, kernels: Sequence[Kernel]) -> NativeRanker | None:
        names = tuple(kernel.name for kernel in kernels)
        if names not in self._native:
            self._native[names] = self._loaded(kernels)
        return self._native[names]

    def _loaded(self, kernels: Sequence[Kernel]) -> NativeRanker | None:
        try:
            if not _may_be_native(self.pairs):
                return None
            return NativeRanker.load(self.folder, kernels, self.code)
        except (BuildError, ModelError, TargetError) as error:
            _log.debug("no native predictions of %s: %s", self.folder, error)
            return None
