"""Whether a picker as it is deployed picks what the model folder picks: features, scores and picks, compared.

`compare` judges the answers of any engine; `own_export` those of what `tile-oracle model export` writes, by
its own C++.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import numpy as np

from tile_oracle.errors import ModelError, ProblemError
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.feature_table import Array
from tile_oracle.features.schemas import op_of_model
from tile_oracle.files.user_file import read_bytes
from tile_oracle.judge.ranking import best_first
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.network import NAME as NETWORK
from tile_oracle.model.predictor import Predictor, check_kind
from tile_oracle.model.ranker import constant_groups
from tile_oracle.model.store import read_json
from tile_oracle.problem import Kind, Problem, kind_text
from tile_oracle.problem_set import list_problem_sets, load_problem_set
from tile_oracle.selector.export import MANIFEST_FILE, is_export, manifest_trees
from tile_oracle.selector.ranker import NativeSelector
from tile_oracle.selector.selector_file import NativeModel
from tile_oracle.terminal.progress_line import steps

MOST_PROBLEMS = 100
"""Problems that are compared where none are named."""

NETWORK_TOLERANCE = 2e-5
"""Native code evaluates networks in single precision (docs/selector.md)."""

_MOST_BYTES = 1 << 30
_NAMED = 6


@dataclass(frozen=True)
class Answers:
    """What a picker says of one problem's candidates. scores: (kernels,), a greater one is better. order: the
    candidates' numbers, best first. features: (kernels, features) that the scores come from, if they show."""

    scores: Array
    order: Sequence[int]
    features: Array | None = None


Engine = Callable[[Problem], Answers]


@dataclass
class Parity:
    """What `compare` found. columns: the features that differ; None if the picker does not show them. firsts:
    feature, score, pick or order -> what differs first, a sentence. trees_only: `kernels` rows of features
    were compared, not problems."""

    of: str
    kernels: int
    problems: int = 0
    features: int = 0
    scores: int = 0
    picks: int = 0
    ties: int = 0
    orders: int = 0
    columns: list[str] | None = None
    trees_only: bool = False
    firsts: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether something was compared and nothing differs; a tie broken otherwise is none."""
        return self.problems > 0 and not (self.firsts or self.scores or self.picks or self.orders)

    def lines(self) -> list[str]:
        """Returns the result as text."""
        ends = [
            *(f"  first {what} that differs: {text}" for what, text in self.firsts.items()),
            *(f"  {text}" for text in self.remarks),
        ]
        pairs = self.kernels * self.problems
        if self.trees_only:
            said = "scores as" if self.passed else "DIFFERS from"
            heads = [
                f"{self.of}: {pairs:,} rows at thresholds",
                f"  scores    {self.scores:,} of {pairs:,} differ",
            ]
            return [*heads, *ends, f"  {said} the model"]
        shown = "not shown by it"
        if self.columns is not None:
            which = ", ".join(self.columns[:_NAMED]) + ", ..." * (len(self.columns) > _NAMED)
            shown = f"{self.features:,} of {pairs:,} rows differ{which and ': '}{which}"
        tied = f"; {self.ties:,} more are of equal score" if self.ties else ""
        return [
            f"{self.of}: {self.kernels:,} kernels x {self.problems:,} problems",
            f"  features  {shown}",
            f"  scores    {self.scores:,} of {pairs:,} differ",
            f"  picks     {self.picks:,} of {self.problems:,} differ{tied}",
            *ends,
            f"  {'picks as the model folder' if self.passed else 'DIFFERS from the model folder'}",
        ]


def compare(
    parity: Parity,
    problems: Sequence[Problem],
    kernels: Sequence[Kernel],
    engines: tuple[Engine, Engine],
    feature_names: Sequence[str] = (),
    tolerance: float = 0.0,
) -> Parity:
    """Compares the second engine with the first, the model folder's, on a whole pool.

    tolerance: of scores, relative to max(1, |score|); features may differ by rounding (1e-9). A pick
    differs if the folder's score of it is worse than the best by more than the tolerance.
    """
    names = [kernel.name for kernel in kernels]
    for problem in steps(f"comparing {parity.of}", problems):
        expected, found = (engine(problem) for engine in engines)
        parity.problems += 1
        if expected.features is not None and found.features is not None:
            parity.columns = parity.columns or []
            _compare_features(parity, problem, names, expected.features, found.features, feature_names)
        room = tolerance * np.maximum(1.0, np.abs(expected.scores))
        differ = ~(np.abs(expected.scores - found.scores) <= room)
        if differ.any():
            place = int(differ.argmax())
            parity.scores += int(differ.sum())
            values = f"{expected.scores[place]:.17g} in the folder, {found.scores[place]:.17g} deployed"
            parity.firsts.setdefault("score", f"{problem.id}, {names[place]}: {values}")
        pick, best = found.order[0], expected.order[0]
        if expected.scores[pick] < expected.scores[best] - room[best]:
            parity.picks += 1
            parity.firsts.setdefault(
                "pick", f"{problem.id}: {names[best]} by the folder, {names[pick]} deployed"
            )
        elif pick != best:
            parity.ties += 1
        unstable = [
            (one, other)
            for one, other in pairwise(found.order)
            if one > other and found.scores[one] == found.scores[other]
        ]
        if unstable:
            parity.orders += 1
            one, other = unstable[0]
            parity.firsts.setdefault(
                "order",
                f"{problem.id}: {names[one]} comes before {names[other]} of equal score, which is registered "
                "before it: the sort is not stable (std::stable_sort is), so chance picks of equal scores",
            )
    return parity


def _compare_features(
    parity: Parity, problem: Problem, names: list[str], expected: Array, found: Array, columns: Sequence[str]
) -> None:
    width = min(expected.shape[1], found.shape[1])
    one, other = expected[:, :width], found[:, :width]
    differ = ~(np.abs(one - other) <= 1e-9 * np.maximum(1.0, np.abs(one)))
    rows = differ.any(axis=1) | (expected.shape[1] != found.shape[1])
    parity.features += int(rows.sum())
    if not rows.any():
        return
    assert parity.columns is not None
    named = [columns[place] for place in np.flatnonzero(differ.any(axis=0)).tolist()]
    parity.columns += [name for name in named if name not in parity.columns]
    count = f"the deployed picker passes {found.shape[1]} features, the model has {expected.shape[1]}"
    text = "" if expected.shape[1] == found.shape[1] else f"{count}; "
    if differ.any():
        row = int(differ.any(axis=1).argmax())
        column = int(differ[row].argmax())
        text += (
            f"{problem.id}, {names[row]}: feature {column}, {columns[column]}, is {one[row, column]:.17g} in "
            f"the folder, {other[row, column]:.17g} deployed"
        )
    else:
        text += f"{problem.id}, {names[0]}: {columns[width]} is missing" if width < len(columns) else ""
    parity.firsts.setdefault("feature", text.removesuffix("; "))


def folder_engine(predictor: Predictor, kernels: Sequence[Kernel]) -> Engine:
    """Returns the model folder's own answers: minus predicted ln(time), and the order of its picks."""
    names = [kernel.name for kernel in kernels]

    def answer(problem: Problem) -> Answers:
        rows, groups = pair_columns([problem], kernels), constant_groups(1, len(kernels))
        scores = -predictor.ranker.log_time(rows, groups, predictor.threads)
        return Answers(scores, best_first(predictor.predict(problem, kernels).tolist(), names))

    return answer


def problems_like(kind: Kind) -> list[Problem]:
    """Problems of a kind, evenly from those of the shipped sets in its data type and layout; at most
    MOST_PROBLEMS."""
    found: dict[Problem, None] = {}
    for name in list_problem_sets():
        for problem in () if "training" in name else load_problem_set(name).problems:
            words = {name: value for name, value in kind.fields if name in ("dtype", "layout")}
            if problem.op == kind.op and (like := replace(problem, **words)).kind == kind:
                found[like] = None
    step = max(1, -(-len(found) // MOST_PROBLEMS))
    return list(found)[::step]


def selector_files(place: Path) -> list[Path]:
    """Returns a selector file, or all of an exported folder. Raises ModelError."""
    if place.is_file():
        return [place]
    found = sorted(place.glob("*.selector")) if is_export(place) else []
    if not found:
        raise ModelError(f"{place} is neither a .selector file nor a folder of `tile-oracle model export`")
    return found


def own_export(model: Path, place: Path, problems: Iterable[Problem] = ()) -> list[Parity]:
    """Compares a model folder with an export, a folder or one of its .selector files, for each kind.

    The C++ is that beside the file, compiled here if it is not the installed one's. problems: all of them
    have a selector; without any, `problems_like`. Raises ModelError, ProblemError, BuildError.
    """
    predictor, asked = Predictor.load(model), list(problems)
    tolerance = NETWORK_TOLERANCE if NETWORK in predictor.spec.targets else 0.0
    found, judged = [], set[Problem]()
    for file in selector_files(place):
        sources = file.parent if (file.parent / "src").is_dir() else None
        selector = NativeSelector(read_bytes(file, _MOST_BYTES), sources)
        kernels = [parse_kernel_name(name) for name in selector.names]
        kind = kernels[0].kind
        if kind.op != op_of_model(predictor.spec.op_type):
            raise ModelError(f"{file} picks for {kind_text(kind)}, the model {model} does not")
        check_kind(model, predictor.spec, kind)
        own = [problem for problem in asked if problem.kind == kind] if asked else problems_like(kind)
        judged.update(own)
        if not own:
            continue
        parity = Parity(f"{file} ({kind_text(kind)})", len(kernels))
        parity.remarks += _other_trees(model, file.parent)
        engines = (folder_engine(predictor, kernels), _selector_engine(selector))
        found.append(compare(parity, own, kernels, engines, tolerance=tolerance))
    left = next((problem for problem in asked if problem not in judged), None)
    if left is not None:
        raise ProblemError(f"{place} has no selector for {left.id}, {kind_text(left.kind)}")
    return found


def exports_beside(model: Path) -> list[Path]:
    """Returns the exports of a model that lie in its folder or beside it."""
    places = (model, model.resolve().parent)
    folders = sorted({one.resolve() for place in places if place.is_dir() for one in place.iterdir()})
    return [
        one
        for one in folders
        if one.is_dir()
        and is_export(one)
        and read_json(one / MANIFEST_FILE).get("model") == model.resolve().name
    ]


def _selector_engine(selector: NativeSelector) -> Engine:
    values_of = attrgetter(*selector.fields)

    def answer(problem: Problem) -> Answers:
        values = values_of(problem)
        order = [selector.pick(values), *selector.rank(values, selector.size)[0].tolist()]
        return Answers(-selector.log_times(values), list(dict.fromkeys(order)))

    return answer


def _other_trees(model: Path, export: Path) -> list[str]:
    if not is_export(export):
        return []
    recorded, own = (
        read_json(export / MANIFEST_FILE).get("forests_sha256"),
        manifest_trees(NativeModel.load(model)),
    )
    members = [name for name in own if not isinstance(recorded, dict) or recorded.get(name) != own[name]]
    return [f"{export} was made from other trees than the folder's: {', '.join(members)}"] if members else []
