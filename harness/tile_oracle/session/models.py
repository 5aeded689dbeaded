"""The model that a session judges, and its baseline."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.arch import load_arch
from tile_oracle.build.kernel_source import NATIVE
from tile_oracle.errors import GateError, ModelError
from tile_oracle.judge.baseline import Baseline
from tile_oracle.judge.baseline_file import baseline_path, load_baseline
from tile_oracle.kernel import Kernel, NamedKernel
from tile_oracle.model.store import (
    SPEC_FILE,
    model_names,
    model_places,
    named_model_folder,
    shipped_models,
)
from tile_oracle.problem import Kind, Problem, kind_text
from tile_oracle.problem_set import ProblemSet
from tile_oracle.process.cores import usable_cores
from tile_oracle.session.options import SessionOptions
from tile_oracle.session.plan import Plan
from tile_oracle.session.vendor_model import first_choice, vendor_rankings
from tile_oracle.target.target import REPLAY, Target
from tile_oracle.terminal.did_you_mean import did_you_mean
from tile_oracle.vendor.libraries import is_library_name

if TYPE_CHECKING:
    import pandas as pd

    from tile_oracle.model.fitting_model import Considered, ModelsFor
    from tile_oracle.model.predictor import Predictor
    from tile_oracle.report.data import RankedBy

AUTO = "auto"
OUT_OF_FOLD = "out-of-fold"
NONE = "none"
VENDOR = "vendor"
"""The own choice of the libraries of --kernels."""
ROOFLINE = "roofline"
"""The analytic model of a kernel's time, without training."""
_NO_LIGHTGBM = "lightgbm is not installed (pip install lightgbm)"


@dataclass(frozen=True)
class ModelChoice:
    """name: the model's name in baselines. folders: one for each kind that has a model; empty for
    out-of-fold, none and a file.

    why: why there is no model, "" for `--model none`. picks_file: a CSV file of picks in place of a model.
    looked: what `auto` found, a kind at a time.
    """

    name: str
    folders: Mapping[Kind, Path] = field(default_factory=dict)
    why: str = ""
    picks_file: Path | None = None
    looked: tuple[ModelsFor, ...] = ()

    def not_ranked(self, problems: ProblemSet) -> str:
        """The problems that no model ranks although others of the set have one; "" for none."""
        lacking = [one.kind for one in self.looked if self.folders and one.kind not in self.folders]
        count = sum(problem.kind in lacking for problem in problems.problems)
        if not lacking:
            return ""
        kinds = kind_text(lacking[0]) + " and others" * (len(lacking) > 1)
        return f"no model for {count} problem{'s' * (count > 1)} ({kinds}), measured and not judged"

    def lines(self, problems: ProblemSet) -> list[str]:
        """What is judged, what else fitted, and what has no model, for the session's header."""
        taken: dict[Path, list[Considered]] = {}
        others: dict[Path, str] = {}
        for found in self.looked:
            for one in found.considered:
                if not one.why_not:
                    taken.setdefault(one.folder, []).append(one)
                elif one.fits:
                    others.setdefault(one.folder, one.why_not)
        none = "; ".join(dict.fromkeys(one.why_none for one in self.looked if one.folder is None))
        if not taken:
            return [f"model: {self.name}" + (f" ({none})" if none else "")]
        lines = [f"model: {folder.name} ({_origin(several)})" for folder, several in taken.items()]
        lines += [
            f"model: not {folder}, which {why}" for folder, why in others.items() if folder not in taken
        ]
        if lacking := self.not_ranked(problems):
            lines.append(f"{lacking} ({none}); --model out-of-fold judges all by cross-validation")
        return lines

    def considered(self) -> tuple[dict[str, Any], ...]:
        """What `auto` found, a kind at a time, for the report."""
        return tuple(
            {"kind": kind_text(one.kind), "models": [each.as_json() for each in one.considered]}
            for one in self.looked
        )


def _origin(several: Sequence[Considered]) -> str:
    """Whose a model is, and how many of the candidates of several kinds it was trained on."""
    first = several[0]
    known = [one.trained for one in several if one.trained is not None]
    return replace(
        first,
        candidates=sum(one.candidates for one in several),
        trained=sum(known) if len(known) == len(several) else None,
    ).origin


def is_picks_file(model: str) -> bool:
    """Whether --model names a CSV file of picks."""
    return model.endswith(".csv")


def choose_model(options: SessionOptions, problems: ProblemSet, target: Target, plan: Plan) -> ModelChoice:
    """The model that --model means for a problem set.

    `auto` takes for each kind of problem the best founded model that can rank its candidates
    (`model.fitting_model`), one's own in models/ or a shipped one; where no kind has any, the choice of a
    library among the candidates, else out-of-fold predictions. Raises ModelError for an unusable folder.
    """
    kinds = list(dict.fromkeys(problem.kind for problem in problems.problems))
    if options.model == NONE:
        return ModelChoice(NONE)
    if options.model == VENDOR:
        return ModelChoice(VENDOR)
    if is_picks_file(options.model):
        path = Path(options.model).expanduser().resolve()
        if not path.is_file():
            raise ModelError(f"--model {options.model}: there is no such file of picks")
        return ModelChoice(path.stem, picks_file=path)
    if importlib.util.find_spec("lightgbm") is None:
        # A machine that only measures needs no model: only an explicit --model is an error.
        if options.model == AUTO:
            return ModelChoice(VENDOR) if plan.rankings else ModelChoice(NONE, why=_NO_LIGHTGBM)
        raise ModelError(f"--model {options.model}: {_NO_LIGHTGBM}")
    if options.model == OUT_OF_FOLD:
        return ModelChoice(OUT_OF_FOLD)
    from tile_oracle.model.fitting_model import models_for, rankable

    if options.model == ROOFLINE:
        from tile_oracle.model.roofline_folder import roofline_folder

        return ModelChoice(ROOFLINE, {kind: roofline_folder(kind, target.arch) for kind in kinds})
    if options.model != AUTO:
        folder = _folder(options.model, (options.models_dir, shipped_models()))
        kernels = [kernel for kind in kinds for kernel in _candidates(plan, problems, kind)]
        if kernels and not rankable(folder, kernels):
            raise ModelError(
                f"--model {options.model} ranks the kernels of a kernel set, not those of --kernels: train "
                "one on records of these kernels, leave it out, or name a CSV file of picks"
            )
        return ModelChoice(folder.name, dict.fromkeys(_predicted(folder, kinds), folder))
    places = model_places(options.models_dir, target.arch, target.name == REPLAY)
    looked = tuple(
        models_for(
            kind,
            target.arch,
            places,
            kernels=_candidates(plan, problems, kind),
            device=target.device_name,
        )
        for kind in kinds
    )
    folders = {one.kind: one.folder for one in looked if one.folder is not None}
    if not folders:
        return ModelChoice(VENDOR if plan.rankings else OUT_OF_FOLD, looked=looked)
    return ModelChoice("+".join(dict.fromkeys(one.name for one in folders.values())), folders, looked=looked)


def _candidates(plan: Plan, problems: ProblemSet, kind: Kind) -> tuple[Kernel, ...]:
    """The candidates for all problems of a kind, each once."""
    offered = [plan.offered.get(one.id, ()) for one in problems.problems if plan.offered and one.kind == kind]
    several = (plan.pools.get(kind, ()), *offered)
    return tuple({kernel.name: kernel for kernels in several for kernel in kernels}.values())


def _predicted(folder: Path, kinds: Sequence[Kind]) -> Sequence[Kind]:
    """Those of the kinds that a named model was trained for. Problems of the others are not ranked, which the
    session shows. All of them if there is none, so that the first use says why."""
    from tile_oracle.model.model_folder import read_spec
    from tile_oracle.model.predictor import kind_refusal

    spec = read_spec(folder)
    return [kind for kind in kinds if kind_refusal(spec, kind) is None] or kinds


def _folder(option: str, places: Sequence[Path]) -> Path:
    folder = named_model_folder(option, places)
    if folder is not None:
        return folder.resolve()
    words = ("auto", "roofline", "vendor", "out-of-fold", "none")
    hint = did_you_mean(option, (*model_names(places), *words))
    raise ModelError(
        f"--model {option!r} is neither a model folder (with {SPEC_FILE}) nor the name of one under models/"
        f"{hint and '; '}{hint or '; a CSV file of picks, ' + ', '.join(words) + ' are the other choices'}"
    )


def held_picks(choice: ModelChoice, baseline: Baseline | None, options: SessionOptions) -> dict[str, str]:
    """Problem id -> the kernel that is judged because it is the baseline's pick.

    Without a trained model the picks would come from models trained on each run's own records, and the
    verdict would depend on the noise of that training. Empty if a model folder picks, if the kernels are
    ranked again (--repick, --update-baseline), or if the baseline has no picks.
    """
    if choice.name != OUT_OF_FOLD or baseline is None or options.repick or options.update_baseline:
        return {}
    return {problem: margin.pick for problem, margin in baseline.picks.items()}


class Picks:
    """The picks of the models under test, one problem at a time. Models are loaded on first use.

    held: problem id -> the baseline's pick, for problems without a model folder. refusal: of the target, for
    what a kernel's declaration excludes.
    """

    def __init__(
        self,
        choices: Sequence[ModelChoice],
        plan: Plan,
        held: Mapping[str, str] | None = None,
        refusal: Callable[[Kernel, Problem], str | None] | None = None,
    ) -> None:
        self._refusal = refusal
        self._held = dict(held or {})
        self._vendor = any(choice.name == VENDOR for choice in choices)
        self._files = [choice.picks_file for choice in choices if choice.picks_file is not None]
        self._folders = {kind: folder for choice in choices for kind, folder in choice.folders.items()}
        self._plan = plan
        self._predictors: dict[Path, Predictor] = {}

    def of(self, problem: Problem) -> tuple[Kernel, ...]:
        """The pick as a tuple of one; empty where predictions come after the measurements (out-of-fold)."""
        folder = self._folders.get(problem.kind)
        kernels = self._plan.kernels(problem)
        if self._vendor:
            return first_choice(self._plan, problem)
        if self._files and kernels:
            return self._from_files(problem, kernels)
        if folder is None or not kernels:
            return tuple(kernel for kernel in kernels if kernel.name == self._held.get(problem.id))
        from tile_oracle.model.fitting_model import rankable

        if folder not in self._predictors:
            from tile_oracle.model.predictor import Predictor

            self._predictors[folder] = Predictor.load(folder)
        predictor = self._predictors[folder]
        pool = rankable(folder, kernels)
        able = load_arch(predictor.spec.arch).able(pool, problem)
        able = [one for one in able if self._refusal is None or self._refusal(one, problem) is None]
        return (predictor.select(problem, able),) if able else ()

    def _from_files(self, problem: Problem, kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
        """The pick of a file of picks, where it is one of the candidates."""
        from tile_oracle.evaluation.picks_file import read_picks

        known = {kernel.name: kernel for kernel in kernels}
        for path in self._files:
            rows = read_picks(path, [problem]).sort_values("predicted_tflops", ascending=False, kind="stable")
            for name in rows["kernel"]:
                return (known[name],) if name in known else ()
        return ()


def rank(
    choice: ModelChoice,
    plan: Plan,
    problems: ProblemSet,
    records: pd.DataFrame,
    arch: str,
    held: Mapping[str, str] | None = None,
) -> tuple[pd.DataFrame | None, RankedBy]:
    """The model's predictions for every candidate pair of a set, and their origin.

    Without a model folder they are out-of-fold: each problem is predicted by a model that was trained on the
    run's other problems. If that is impossible, the reason is given and there is no ranking. held: a
    baseline's picks, which are judged instead; then a problem's ranking is its pick alone.
    """
    from tile_oracle.report.data import HELD, NO_MODEL, RankedBy

    if choice.name == NONE:
        return None, RankedBy(NO_MODEL, detail=choice.why or "--model none")
    if choice.name == VENDOR:
        return vendor_rankings(plan, problems)
    if choice.picks_file is not None:
        return _rankings_of_file(choice.picks_file, plan, problems)
    if held:
        return _held_rankings(plan, problems, held), RankedBy(HELD, choice.name, order_only=True)
    from tile_oracle.evaluation.candidates import without_refused
    from tile_oracle.record.dataset import with_texts

    of_set = records["problem"].isin([problem.id for problem in problems.problems])
    own = records if of_set.all() else records[of_set]
    if not choice.folders and named_kernels(plan):
        return _rankings_of_neighbours(plan, with_texts(own))
    # Most models rank kernels by their fields.
    if not _rank_named(choice):
        of_libraries = [name for name in own["kernel"].unique() if is_library_name(str(name))]
        own = own[~own["kernel"].isin(of_libraries)] if of_libraries else own
    if choice.folders:
        table, ranked_by = _rankings_of_folders(choice, plan, problems, own)
    else:
        table, ranked_by = _rankings_out_of_fold(plan, with_texts(own), arch)
    return (None if table is None else without_refused(table, own, arch)), ranked_by


def _rankings_of_file(
    picks_file: Path, plan: Plan, problems: ProblemSet
) -> tuple[pd.DataFrame | None, RankedBy]:
    """The order in a file of picks, followed by the other candidates."""
    import pandas as pd

    from tile_oracle.evaluation.picks_file import read_picks_file
    from tile_oracle.report.data import NO_MODEL, PICKS, RankedBy

    picks = read_picks_file(picks_file, problems.problems)
    if picks.rankings.empty:
        return None, RankedBy(NO_MODEL, detail=f"{picks_file.name} has picks for none of these problems")
    behind = _others(plan, problems, picks.rankings)
    table = pd.concat([picks.rankings, behind], ignore_index=True)
    return table, RankedBy(PICKS, picks_file.name, picks.note, order_only=True)


def _rankings_of_folders(
    choice: ModelChoice, plan: Plan, problems: ProblemSet, own: pd.DataFrame
) -> tuple[pd.DataFrame | None, RankedBy]:
    """The predictions of the model folders. own: the records of these problems."""
    import pandas as pd

    from tile_oracle.evaluation.evaluate import PROBLEMS_AT_ONCE, rank_all, rank_each
    from tile_oracle.evaluation.folder_predictor import FolderPredictor
    from tile_oracle.features.code_table import CodeTable
    from tile_oracle.model.fitting_model import rankable
    from tile_oracle.report.data import FOLDER, NO_MODEL, RankedBy

    frames = []
    # Timing has ended, so prediction may use all cores.
    cores = usable_cores()
    code = CodeTable.of(own)
    pairs = sum(len(plan.pools[problem.kind]) for problem in problems.problems)
    predictors = {
        folder: FolderPredictor(folder, code, pairs, cores) for folder in set(choice.folders.values())
    }
    for kind, folder in choice.folders.items():
        of_kind = [problem for problem in problems.problems if problem.kind == kind]
        if predictors[folder].ranks_named and plan.offered:
            # A library offers other algorithms for each problem.
            pools = {one: plan.kernels(one) for one in of_kind}
            of_kind = [one for one in of_kind if pools[one]]
            for first in range(0, len(of_kind), PROBLEMS_AT_ONCE):
                some = of_kind[first : first + PROBLEMS_AT_ONCE]
                frames.append(rank_each(predictors[folder], some, [pools[one] for one in some]))
            continue
        pool = rankable(folder, plan.pools[kind])
        if pool and of_kind:
            frames.append(rank_all(predictors[folder], of_kind, pool))
    if not frames:
        return None, RankedBy(NO_MODEL, detail="no kernel of the kernel set is built")
    scores = any(predictor.orders_only for predictor in predictors.values())
    ranked_by = RankedBy(FOLDER, choice.name, choice.not_ranked(problems), order_only=scores)
    return pd.concat(frames, ignore_index=True), ranked_by


def _rank_named(choice: ModelChoice) -> bool:
    """Whether all folders of a choice rank NamedKernels."""
    from tile_oracle.model.model_folder import read_spec

    return bool(choice.folders) and all(read_spec(one).ranks_named for one in choice.folders.values())


def named_kernels(plan: Plan) -> frozenset[str]:
    """The names of the NamedKernels in a plan's pools."""
    pools = plan.pools.values()
    return frozenset(one.name for pool in pools for one in pool if isinstance(one, NamedKernel))


def _rankings_of_neighbours(plan: Plan, own: pd.DataFrame) -> tuple[pd.DataFrame | None, RankedBy]:
    """Predictions for each problem of the records from the nearest others: such kernels have no features."""
    from tile_oracle.report.data import NO_MODEL, RankedBy
    from tile_oracle.report.data import OUT_OF_FOLD as RANKED_OUT_OF_FOLD
    from tile_oracle.training.neighbours import neighbour_predictions

    pool = [kernel for kernels in plan.pools.values() for kernel in kernels]
    try:
        table = neighbour_predictions(own, pool)
    except ModelError as error:
        return None, RankedBy(NO_MODEL, detail=str(error))
    folds = f"{table['fold'].nunique()} folds, grouped by problem"
    return table, RankedBy(RANKED_OUT_OF_FOLD, "a nearest-neighbour model", folds)


def _rankings_out_of_fold(plan: Plan, own: pd.DataFrame, arch: str) -> tuple[pd.DataFrame | None, RankedBy]:
    """Predictions for each problem of the records by a model that was trained on the others."""
    from tile_oracle.report.data import NO_MODEL, RankedBy
    from tile_oracle.report.data import OUT_OF_FOLD as RANKED_OUT_OF_FOLD
    from tile_oracle.training.cross_validation import OUT_OF_FOLD_RECIPE, out_of_fold
    from tile_oracle.training.recipe import recipe_named

    pool = [kernel for kernels in plan.pools.values() for kernel in kernels]
    if not pool:
        return None, RankedBy(NO_MODEL, detail="a model ranks the kernels of a kernel set, and there is none")
    try:
        table = out_of_fold(own, arch, pool)
    except ModelError as error:
        return None, RankedBy(NO_MODEL, detail=str(error))
    folds = table.loc[table["fold"] >= 0, "fold"].nunique()
    grouped = f"{folds} folds, grouped by problem"
    scores = recipe_named(OUT_OF_FOLD_RECIPE).orders_only
    return table, RankedBy(RANKED_OUT_OF_FOLD, "a LightGBM model", grouped, order_only=scores)


def _others(plan: Plan, problems: ProblemSet, picks: pd.DataFrame) -> pd.DataFrame:
    """The candidates that a file of picks does not name, ranked last; for the problems in the file."""
    import pandas as pd

    named = {str(problem): set(rows) for problem, rows in picks.groupby("problem")["kernel"]}
    last = float(picks["predicted_tflops"].min()) - 1.0
    rows = [
        (problem.id, kernel.name, last)
        for problem in problems.problems
        if problem.id in named
        for kernel in plan.kernels(problem)
        if kernel.name not in named[problem.id]
    ]
    table = pd.DataFrame(rows, columns=["problem", "kernel", "predicted_tflops"])
    return table.astype({"predicted_tflops": "float64"})


def _held_rankings(plan: Plan, problems: ProblemSet, held: Mapping[str, str]) -> pd.DataFrame:
    """The held picks first, then all other candidates with equal scores."""
    import pandas as pd

    rows = []
    for problem in problems.problems:
        pick = held.get(problem.id)
        if pick is not None:
            others = [kernel.name for kernel in plan.kernels(problem) if kernel.name != pick]
            rows += [(problem.id, pick, 1.0), *((problem.id, name, 0.0) for name in others)]
    return pd.DataFrame(rows, columns=["problem", "kernel", "predicted_tflops"])


def baseline_file(choice: ModelChoice, problems: ProblemSet, device: str, options: SessionOptions) -> Path:
    """The path of a new baseline: models/<model>/<device>/<problem set>/<kernel set>.json."""
    return _paths(options.baseline_dir, choice, problems, device, options)[0]


def baseline_place(
    choice: ModelChoice, problems: ProblemSet, device: str, options: SessionOptions, target: Target
) -> Path:
    """The file that `baseline_for` reads; where there is none, the one that --update-baseline writes."""
    for root in model_places(options.baseline_dir, target.arch, target.name == REPLAY):
        for path in _paths(root, choice, problems, device, options):
            if path.is_file():
                return path
    return baseline_file(choice, problems, device, options)


def baseline_for(
    choice: ModelChoice, problems: ProblemSet, device: str, options: SessionOptions, target: Target
) -> Baseline | None:
    """The baseline for a set on a device: the user's own, or else a shipped one. Raises GateError."""
    for root in model_places(options.baseline_dir, target.arch, target.name == REPLAY):
        for path in _paths(root, choice, problems, device, options):
            baseline = load_baseline(path)
            if baseline is not None:
                return baseline
    return None


def _paths(
    root: Path, choice: ModelChoice, problems: ProblemSet, device: str, options: SessionOptions
) -> tuple[Path, ...]:
    """The baseline's file, and for a list of kernels the one of older versions, named after the whole file
    name."""
    if not device:
        raise GateError("a baseline needs the name of the device, which no measurement of this run has")
    pools = [_pool(options, name) for name in dict.fromkeys((options.set_name, options.kernel_set))]
    return tuple(baseline_path(root, choice.name, device, problems.name, pool) for pool in pools)


def _pool(options: SessionOptions, kernel_set: str) -> str:
    """The name of the pool, with everything that makes its baselines differ."""
    pool = kernel_set
    if options.kernel_filter is not None:
        pool += f" {options.kernel_filter}"
    if options.cold_cache:
        pool += " cold cache"
    if options.abstain:
        pool += " abstaining"
    if options.kernels.text:
        pool += f" {options.kernels.named(kernel_set)}"
    if (first := options.kernels.first) not in ("", NATIVE):
        pool += f" {first}"  # the kernels differ, but their names do not
    return pool
