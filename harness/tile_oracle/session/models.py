"""The model that a session judges, and its baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.compiling.kernel_source import NATIVE
from tile_oracle.errors import GateError, ModelError
from tile_oracle.judge.baseline import Baseline, baseline_path, load_baseline
from tile_oracle.judge.picker import Picker
from tile_oracle.judge.ranking import Ranking
from tile_oracle.kernel import Kernel
from tile_oracle.model.store import (
    SPEC_FILE,
    model_names,
    model_places,
    named_model_folder,
    shipped_models,
)
from tile_oracle.pickers.installed import picker_names, picker_of
from tile_oracle.pickers.of_records import (
    BestSingle,
    OutOfFold,
    choice_of_libraries,
    held_picks,
    no_picker,
)
from tile_oracle.problem import Kind, Problem, kind_text
from tile_oracle.problem_set import ProblemSet
from tile_oracle.session.options import SessionOptions
from tile_oracle.session.plan import Plan
from tile_oracle.targets.target import REPLAY, Target
from tile_oracle.terminal.did_you_mean import did_you_mean

if TYPE_CHECKING:
    from tile_oracle.model.fitting_model import ModelsFor
    from tile_oracle.training.extrapolation import RangeOf

AUTO = "auto"
SHIPPED = "shipped"
"""As AUTO, among the shipped models alone."""
OUT_OF_FOLD = "out-of-fold"
NONE = "none"
VENDOR = "vendor"
"""The own choice of the libraries of --kernels."""
ROOFLINE = "roofline"
"""The analytic model of a kernel's time, without training."""
SINGLE = "single"
"""The best single kernel of each kind of problem, chosen with hindsight."""
NEIGHBOURS = "neighbours"
"""As OUT_OF_FOLD, by nearest neighbours."""
WORDS = (AUTO, SHIPPED, ROOFLINE, VENDOR, OUT_OF_FOLD, NEIGHBOURS, SINGLE, NONE)
"""What --model can be that names neither a file nor a folder, besides pickers of other makers."""


@dataclass(frozen=True)
class ModelChoice:
    """picker: what is judged. looked: what `auto` found, a kind at a time."""

    picker: Picker
    looked: tuple[ModelsFor, ...] = ()

    @property
    def name(self) -> str:
        """The picker's name in baselines."""
        return self.picker.name

    @property
    def folders(self) -> Mapping[Kind, Path]:
        """One for each kind that has a trained model."""
        return self.picker.folders

    def lines(self, problems: ProblemSet) -> list[str]:
        """Returns what is judged, what else fitted, and what has no model, for the session's header."""
        none = "; ".join(dict.fromkeys(one.why_none for one in self.looked if one.folder is None))
        if not self.looked or not self.folders:
            return [f"model: {self.name}" + (f" ({none})" if none else "")]
        from tile_oracle.model.fitting_model import lines_on

        lines = lines_on(self.looked)
        if lacking := _not_ranked(self.looked, problems):
            lines.append(f"{lacking} ({none}); --model out-of-fold judges all by cross-validation")
        return lines

    def considered(self) -> tuple[dict[str, Any], ...]:
        """Returns what `auto` found, a kind at a time, for the report."""
        return tuple(
            {"kind": kind_text(one.kind), "models": [each.as_json() for each in one.considered]}
            for one in self.looked
        )


def choose_model(options: SessionOptions, problems: ProblemSet, target: Target, plan: Plan) -> ModelChoice:
    """Returns the model that --model means for a problem set.

    `auto` takes for each kind of problem the best founded model that can rank its candidates
    (`model.fitting_model`), one's own in models/ or a shipped one; where no kind has any, the choice of a
    library among the candidates, else out-of-fold predictions. Raises ModelError for an unusable folder.
    """
    kinds = list(dict.fromkeys(problem.kind for problem in problems.problems))
    vendor = choice_of_libraries(plan.rankings, VENDOR)
    out_of_fold = OutOfFold(OUT_OF_FOLD, target.arch)
    unfounded = {
        NONE: no_picker(NONE, "--model none"),
        VENDOR: vendor,
        SINGLE: BestSingle(SINGLE),
        NEIGHBOURS: OutOfFold(NEIGHBOURS, target.arch, neighbours=True),
    }
    picker = unfounded.get(options.model) or picker_of(options.model, target.arch, problems.problems)
    if picker is not None:
        return ModelChoice(picker)
    if options.model == OUT_OF_FOLD:
        return ModelChoice(out_of_fold)
    from tile_oracle.evaluation.folder_model import Folders
    from tile_oracle.model.fitting_model import models_for, named_for, rankable

    if options.model == ROOFLINE:
        return ModelChoice(roofline(kinds, target.arch))
    if options.model not in (AUTO, SHIPPED):
        folder = _folder(options.model, (options.models_dir, shipped_models()))
        kernels = [kernel for kind in kinds for kernel in _candidates(plan, problems, kind)]
        if kernels and not rankable(folder, kernels):
            raise ModelError(
                f"--model {options.model} ranks the kernels of a kernel set, not those of --kernels: train "
                "one on records of these kernels, leave it out, or name a CSV file of picks"
            )
        own = _predicted(folder, kinds)
        named = (named_for(folder, one, target.arch, _candidates(plan, problems, one)) for one in own)
        of_kinds = Folders(folder.name, target.arch, folders=dict.fromkeys(own, folder))
        return ModelChoice(of_kinds, looked=tuple(named))
    places = (
        (shipped_models(),)
        if options.model == SHIPPED
        else model_places(options.models_dir, target.arch, target.name == REPLAY)
    )
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
    if not folders and options.model == SHIPPED:
        none = "; ".join(dict.fromkeys(one.why_none for one in looked))
        raise ModelError(
            f"--model {SHIPPED}: no shipped model can rank these kernels" + (none and f": {none}")
        )
    if not folders:
        return ModelChoice(vendor if plan.rankings else out_of_fold, looked)
    name = "+".join(dict.fromkeys(one.name for one in folders.values()))
    return ModelChoice(Folders(name, target.arch, _not_ranked(looked, problems), folders=folders), looked)


def roofline(kinds: Iterable[Kind], arch: str) -> Picker:
    """Returns the analytic model. Raises ModelError for what it does not know."""
    from tile_oracle.evaluation.folder_model import Folders
    from tile_oracle.model.roofline import roofline_folder

    return Folders(ROOFLINE, arch, folders={kind: roofline_folder(kind, arch) for kind in kinds})


def _not_ranked(looked: Sequence[ModelsFor], problems: ProblemSet) -> str:
    """Returns the problems that no model ranks although others of the set have one; "" for none."""
    lacking = [one.kind for one in looked if one.folder is None]
    count = sum(problem.kind in lacking for problem in problems.problems)
    if not lacking or len(lacking) == len(looked):
        return ""
    kinds = kind_text(lacking[0]) + " and others" * (len(lacking) > 1)
    return f"no model for {count} problem{'s' * (count > 1)} ({kinds}), measured and not judged"


def _candidates(plan: Plan, problems: ProblemSet, kind: Kind) -> tuple[Kernel, ...]:
    """Returns the candidates for all problems of a kind, each once."""
    offered = [plan.offered.get(one.id, ()) for one in problems.problems if plan.offered and one.kind == kind]
    several = (plan.pools.get(kind, ()), *offered)
    return tuple({kernel.name: kernel for kernels in several for kernel in kernels}.values())


def _predicted(folder: Path, kinds: Sequence[Kind]) -> Sequence[Kind]:
    """Returns those of the kinds that a named model was trained for. Problems of the others are not ranked,
    which the session shows. All of them if there is none, so that the first use says why."""
    from tile_oracle.model.model_folder import read_spec
    from tile_oracle.model.predictor import kind_refusal

    spec = read_spec(folder)
    return [kind for kind in kinds if kind_refusal(spec, kind) is None] or kinds


def _folder(option: str, places: Sequence[Path]) -> Path:
    folder = named_model_folder(option, places)
    if folder is not None:
        return folder.resolve()
    words = (*WORDS, *picker_names())
    hint = did_you_mean(option, (*model_names(places), *words))
    raise ModelError(
        f"--model {option!r} is neither a model folder (with {SPEC_FILE}) nor the name of one under models/"
        f"{hint and '; '}{hint or '; a CSV file of picks, ' + ', '.join(words) + ' are the other choices'}"
    )


def held_of(choice: ModelChoice, baseline: Baseline | None, options: SessionOptions) -> dict[str, str]:
    """Problem id -> the kernel that is judged because it is the baseline's pick.

    Without a trained model the picks would come from models trained on each run's own records, and the
    verdict would depend on the noise of that training. Empty if a model folder picks, if the kernels are
    ranked again (--repick, --update-baseline), or if the baseline has no picks.
    """
    if choice.name != OUT_OF_FOLD or baseline is None or options.repick or options.update_baseline:
        return {}
    return {problem: margin.pick for problem, margin in baseline.picks.items()}


def judged(choice: ModelChoice, held: Mapping[str, str]) -> Picker:
    """Returns what is judged. held: a baseline's picks, in place of out-of-fold predictions."""
    return held_picks(held, choice.name) if held and choice.name == OUT_OF_FOLD else choice.picker


def ranges_of(choice: ModelChoice) -> RangeOf:
    """Returns the training range of the model that picks for a problem. Raises ModelError for a model folder
    that cannot be read."""
    if not choice.folders:
        return lambda problem: None
    from tile_oracle.training.training_range import TrainingRange

    of_folder = {folder: TrainingRange.of(folder) for folder in set(choice.folders.values())}
    of_kind = {kind: of_folder[folder] for kind, folder in choice.folders.items()}
    return lambda problem: of_kind.get(problem.kind)


Picks = Callable[[Problem], tuple[Kernel, ...]]
"""The picks for a problem before it is measured."""


def picks_of(
    pickers: Sequence[Sequence[ModelChoice]], plan: Plan, held: Mapping[str, str], target: Target
) -> Picks:
    """Returns the picks of the models under test: of each, the first kernel of its ranking that the target
    does not refuse. None where predictions come after the measurements (out-of-fold). Models are loaded on
    first use."""

    def first(picker: Picker, problem: Problem) -> Kernel | None:
        table, _ = picker.rank([problem], plan.kernels)
        known = {kernel.name: kernel for kernel in plan.kernels(problem)}
        ranked = () if table is None else Ranking.of(table).of_problems()
        for _, names, _ in ranked:
            able = (
                name for name in names if (one := known.get(name)) is None or not target.refusal(one, problem)
            )
            return known.get(next(able, ""))
        return None

    under_test = [judged(choice, held) for choices in pickers for choice in choices]
    return lambda problem: tuple(dict.fromkeys(one for by in under_test if (one := first(by, problem))))


def baseline_file(
    choice: ModelChoice, problems: ProblemSet, device: str, options: SessionOptions, root: Path | None = None
) -> Path:
    """Returns the path of a new baseline: models/<model>/<device>/<problem set>/<kernel set>.json. root: in
    place of --baseline-dir. Raises GateError without a device."""
    if not device:
        raise GateError("a baseline needs the name of the device, which no measurement of this run has")
    folder = root or options.baseline_dir
    return baseline_path(folder, choice.name, device, problems.name, _pool(options))


def baseline_place(
    choice: ModelChoice, problems: ProblemSet, device: str, options: SessionOptions, target: Target
) -> Path:
    """Returns the file that `baseline_for` reads; where there is none, the one that --update-baseline
    writes."""
    roots = model_places(options.baseline_dir, target.arch, target.name == REPLAY)
    paths = [baseline_file(choice, problems, device, options, root) for root in roots]
    return next((path for path in paths if path.is_file()), baseline_file(choice, problems, device, options))


def baseline_for(
    choice: ModelChoice, problems: ProblemSet, device: str, options: SessionOptions, target: Target
) -> Baseline | None:
    """Returns the baseline for a set on a device: the user's own, or else a shipped one. Raises GateError."""
    return load_baseline(baseline_place(choice, problems, device, options, target))


def refuse_damaged_baselines(
    judged: Iterable[tuple[ModelChoice, ProblemSet]], options: SessionOptions, target: Target
) -> None:
    """Reads the baselines of these models and sets for any device: which one it is, only a measurement says.
    Raises GateError."""
    for choice, part in judged:
        if choice.name == NONE:
            continue
        place = baseline_file(choice, part, "any", options)
        model, _, problems, file = place.parts[-4:]
        for root in model_places(options.baseline_dir, target.arch, target.name == REPLAY):
            for path in sorted((root / model).glob(f"*/{problems}/{file}")):
                load_baseline(path)


def _pool(options: SessionOptions) -> str:
    """Returns the name of the pool, with everything that makes its baselines differ."""
    kernel_set, first = options.set_name, options.kernels.first
    parts = (
        kernel_set,
        options.kernel_filter or "",
        "cold cache" * options.cold_cache,
        options.kernels.named(kernel_set) if options.kernels.text else "",
        first if first != NATIVE else "",  # the kernels differ, but their names do not
    )
    return " ".join(filter(None, parts))
